"""What a checkpoint costs a run."""

import itertools
import statistics
import tempfile
import time
from typing import Any

import jax

import shardes
from validation.measuring import Run, in_processes, in_turn
from validation.scale import models

WHAT = (
    "seconds a checkpoint. held_up: for which the run waits once its generation is over. on_disk: from then until all "
    "is on the disk, of the last one. whole_run: by which a run with checkpoints is longer, writing beside the "
    "generations and the last wait counted. at_every_100: held_up a generation"
)
PACKAGES = ("orbax-checkpoint",)


class Timed(shardes.callbacks.Checkpoint):
    """Notes for how long it holds the run up."""

    def __init__(self, folder: str, every: int) -> None:
        super().__init__(folder, every=every, keep_last=1)
        self.held_up: list[float] = []
        self.on_disk = 0.0

    def generation(self, generation: shardes.Generation) -> None:
        """Save, if it is time."""
        if (generation.number + 1) % self.every:
            return super().generation(generation)
        jax.block_until_ready(generation.state)
        start = time.perf_counter()
        super().generation(generation)
        self.held_up.append(time.perf_counter() - start)
        return None

    def end(self, run: Any) -> None:
        """Wait until all is on the disk."""
        start = time.perf_counter()
        super().end(run)
        self.on_disk = self.held_up[-1] + time.perf_counter() - start


def run(tiny: bool) -> dict[str, Any]:
    """States of about 25 and 250 MB."""
    if tiny:
        requests = [{"d": 32, "layers": 2, "n": 4, "every": 2, "saves": 1, "repeats": 1}]
    else:
        shape = {"d": 1024, "n": 8}
        requests = [
            {**shape, "layers": 6, "every": 10, "saves": 3, "repeats": 5},
            {**shape, "layers": 60, "every": 4, "saves": 2, "repeats": 3},
        ]
    return {"rows": in_processes(measure, *map(Run, requests))}


def measure(d: int, layers: int, n: int, every: int, saves: int, repeats: int) -> list[dict[str, Any]]:
    """One row."""
    es = models.strategy("LowRank(1)", n)
    first, batch = es.init(jax.random.key(0), models.params(d, layers)), models.batch(d, 1)
    checkpoints: list[Timed] = []

    def run(*callbacks: shardes.callbacks.Callback) -> None:
        state, _ = shardes.fit(es, first, models.loss, data=batch, generations=every * saves, callbacks=callbacks)
        jax.block_until_ready(state)

    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()

        def saving() -> None:
            checkpoints.append(Timed(f"{folder}/{next(numbers)}", every))
            run(checkpoints[-1])

        seconds = in_turn({"without": run, "with": saving}, repeats)
    held_up = statistics.median(held for checkpoint in checkpoints[2:] for held in checkpoint.held_up)
    return [
        {
            "d": d,
            "layers": layers,
            "n": n,
            "state_bytes": sum(x.nbytes for x in jax.tree.leaves(first)),
            "every": every,
            "saves": saves,
            "repeats": repeats,
            "generation_s": seconds["without"] / (every * saves),
            "held_up_s": held_up,
            "on_disk_s": statistics.median(checkpoint.on_disk for checkpoint in checkpoints[2:]),
            "whole_run_s": (seconds["with"] - seconds["without"]) / saves,
            "at_every_100_s": held_up / 100,
        }
    ]


def draw(found: dict[str, Any], figure: Any) -> None:
    """Seconds by kind, a group of bars a size."""
    rows = found["rows"]
    axes = figure.subplots()
    kinds = {"held_up_s": "the run waits", "on_disk_s": "until on the disk", "whole_run_s": "the run is longer by"}
    for i, (kind, label) in enumerate(kinds.items()):
        bars = axes.bar([x + 0.27 * i for x in range(len(rows))], [row[kind] for row in rows], 0.25, label=label)
        axes.bar_label(bars, fmt="%.2g")
    axes.set_xticks([x + 0.27 for x in range(len(rows))], [f"{row['state_bytes'] / 1e6:.0f} MB" for row in rows])
    axes.set(xlabel="state", ylabel="seconds a checkpoint", title="What a checkpoint costs")
    axes.legend()
