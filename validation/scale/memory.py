"""Memory of a generation from 1,024 to 262,144 members, the state and the factors apart."""

import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from validation.scale import models
from validation.scale.measuring import Run

WHAT = (
    "bytes of one generation of Mirrored(LowRank(1)) as es.step compiles it, a fresh process for every n. temporary: "
    "of the compiled program, state and batch apart. factors: of the perturbation's noise, by its shapes. rest: "
    "temporary without factors. peak: by how much the first generation raises the resident memory, as the kernel says."
)
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def runs(tiny: bool) -> list[Run]:
    """A process for every n."""
    shape = {"d": 64, "layers": 2, "tokens": 8, "member_chunk": 64}
    return [Run({**shape, "n": 4**power}) for power in ((5, 6) if tiny else (5, 6, 7, 8, 9))]


def measure(n: int, d: int, layers: int, tokens: int, member_chunk: int) -> list[dict[str, Any]]:
    """One row."""
    es = models.strategy("LowRank(1)", n, member_chunk=member_chunk)
    state, batch = es.init(jax.random.key(0), models.params(d, layers)), models.batch(d, tokens)
    step = es.step(models.loss).lower(state, batch).compile()
    temporary = step.memory_analysis().temp_size_in_bytes
    noise = jax.eval_shape(es.ask, state)[0].noise
    factors = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(noise))
    size = sum(x.nbytes for x in jax.tree.leaves(state))
    before, seconds, complete = _resident("VmRSS"), [], True
    _RESET.write_text("5")
    for generation in range(4):
        start = time.perf_counter()
        state, fitness = jax.block_until_ready(step(state, batch))
        seconds.append(time.perf_counter() - start)
        complete = complete and bool(np.isfinite(np.asarray(fitness)).all()) and fitness.shape == (n,)
        if generation == 0:
            peak = _resident("VmHWM") - before
    complete = complete and int(state.generation) == 4 and int(state.skipped) == 0
    return [
        {
            "n": n,
            "d": d,
            "layers": layers,
            "tokens": tokens,
            "member_chunk": member_chunk,
            "complete": complete,
            "generation_s": statistics.median(seconds[1:]),
            "state": size,
            "factors": factors,
            "temporary": temporary,
            "rest": temporary - factors,
            "rest_a_member": (temporary - factors) / n,
            "peak": peak,
            "peak_without_factors": peak - factors,
            "params_of_every_member": n * size,
        }
    ]


def draw(rows: list[dict[str, Any]], figure: Any) -> None:
    """Bytes over n."""
    axes = figure.subplots()
    n = [row["n"] for row in rows]
    for name, label, style in (
        ("params_of_every_member", "params of every member, never held", ":"),
        ("temporary", "compiled: temporary", "o-"),
        ("factors", "of which the factors", "s-"),
        ("rest", "of which the rest", "^-"),
        ("peak", "measured: peak over before", "x--"),
    ):
        axes.plot(n, [row[name] / 2**20 for row in rows], style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="members", ylabel="MiB", title="Memory of a generation of LowRank(1)")
    axes.set_xticks(n, [f"{members:,}" for members in n])
    axes.minorticks_off()
    axes.legend()


def _resident(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
