"""Memory of a generation from 1,024 to 262,144 members, the state and the factors apart."""

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from validation.measuring import Run, in_processes
from validation.scale import models

WHAT = (
    "bytes of one generation of Mirrored(LowRank(1)) as es.step compiles it, a fresh process for every n. temporary: "
    "of the compiled program, state and batch apart. factors: of the perturbation's noise, by its shapes. rest: "
    "temporary without factors. peak: by how much the first generation raises the process's anonymous memory at most, "
    "looked at every millisecond."
)


class Peak:
    """The most anonymous memory that this process holds while it is entered, over what it held before.

    The kernel's own peak counts pages of files as well, which it drops as it likes.
    """

    def __enter__(self) -> "Peak":
        self.before = self._now()
        self.most, self._over = self.before, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def added(self) -> int:
        """Bytes."""
        return self.most - self.before

    def _watch(self) -> None:
        while not self._over.wait(1e-3):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def run(tiny: bool) -> dict[str, Any]:
    """A process for every n."""
    shape = {"d": 64, "layers": 2, "tokens": 8, "member_chunk": 64}
    powers = (5, 6) if tiny else (5, 6, 7, 8, 9)
    return {"rows": in_processes(measure, *(Run({**shape, "n": 4**power}) for power in powers))}


def measure(n: int, d: int, layers: int, tokens: int, member_chunk: int) -> list[dict[str, Any]]:
    """One row."""
    es = models.strategy("LowRank(1)", n, member_chunk=member_chunk)
    state, batch = es.init(jax.random.key(0), models.params(d, layers)), models.batch(d, tokens)
    program: Any = es.step(models.loss)
    step = program.lower(state, batch).compile()
    temporary = step.memory_analysis().temp_size_in_bytes
    noise = jax.eval_shape(es.ask, state)[0].noise
    factors = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(noise))
    size = sum(x.nbytes for x in jax.tree.leaves(state))
    with Peak() as peak:
        state, fitness = jax.block_until_ready(step(state, batch))
    seconds, complete = [], True
    for _ in range(3):
        complete = complete and bool(np.isfinite(np.asarray(fitness)).all()) and fitness.shape == (n,)
        start = time.perf_counter()
        state, fitness = jax.block_until_ready(step(state, batch))
        seconds.append(time.perf_counter() - start)
    complete = complete and int(state.generation) == 4 and int(state.skipped) == 0
    return [
        {
            "n": n,
            "d": d,
            "layers": layers,
            "tokens": tokens,
            "member_chunk": member_chunk,
            "complete": complete,
            "generation_s": statistics.median(seconds),
            "state": size,
            "factors": factors,
            "temporary": temporary,
            "rest": temporary - factors,
            "rest_a_member": (temporary - factors) / n,
            "peak": peak.added,
            "peak_without_factors": peak.added - factors,
            "params_of_every_member": n * size,
        }
    ]


def draw(found: dict[str, Any], figure: Any) -> None:
    """Bytes over n."""
    rows = found["rows"]
    axes = figure.subplots()
    n = [row["n"] for row in rows]
    for name, label, style in (
        ("params_of_every_member", "params of every member, never held", ":"),
        ("temporary", "compiled: temporary", "o-"),
        ("factors", "of which the factors", "s-"),
        ("rest", "of which the rest", "^-"),
        ("peak", "measured: peak", "x--"),
    ):
        axes.plot(n, [row[name] / 2**20 for row in rows], style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="members", ylabel="MiB", title="Memory of a generation of LowRank(1)")
    axes.set_xticks(n, [f"{members:,}" for members in n])
    axes.minorticks_off()
    axes.legend()
