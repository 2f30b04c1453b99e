"""Rebuilding a run's params from its log beside the run itself."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import shardes
from validation.measuring import Run, in_processes, in_turn
from validation.scale import models

WHAT = (
    "seconds of a generation in shardes.fit with a ReplayLog, and in shardes.replay of its log; speed is the one over "
    "the other. log_bytes: of the file. difference: the largest of a param, over the largest update of one"
)


def run(tiny: bool) -> dict[str, Any]:
    """A model whose evaluation takes most of a generation."""
    shape = {"d": 128, "layers": 4, "tokens": 256, "n": 128, "generations": 10, "repeats": 5}
    if tiny:
        shape = {"d": 16, "layers": 1, "tokens": 4, "n": 8, "generations": 2, "repeats": 1}
    names = list(models.STRATEGIES)[: 1 if tiny else None]
    return {"rows": in_processes(measure, *(Run({**shape, "strategy": name}) for name in names))}


def measure(
    strategy: str, d: int, layers: int, tokens: int, n: int, generations: int, repeats: int
) -> list[dict[str, Any]]:
    """One row."""
    es = models.strategy(strategy, n)
    base, batch = models.params(d, layers), models.batch(d, tokens)
    first = es.init(jax.random.key(0), base)
    with tempfile.TemporaryDirectory() as folder:
        logs = (Path(folder) / str(number) for number in itertools.count())
        ends: dict[str, Any] = {}

        def run() -> None:
            log = shardes.ReplayLog(next(logs), es, first)
            state, _ = shardes.fit(es, first, models.loss, data=batch, generations=generations, callbacks=[log])
            ends["run"], ends["log"] = jax.block_until_ready(state), log.path

        def again() -> None:
            ends["replay"] = jax.block_until_ready(shardes.replay(base, shardes.ReplayLog(ends["log"], es)))

        seconds = in_turn({"run": run, "replay": again}, repeats)
        size = ends["log"].stat().st_size
    begun, ran, replayed = (np.asarray(state.params.layers["weight"]) for state in (first, ends["run"], ends["replay"]))
    return [
        {
            "strategy": strategy,
            "d": d,
            "layers": layers,
            "tokens": tokens,
            "n": n,
            "generations": generations,
            "repeats": repeats,
            "generation_s": {name: total / generations for name, total in seconds.items()},
            "speed": seconds["run"] / seconds["replay"],
            "log_bytes": size,
            "difference": float(np.abs(ran - replayed).max() / np.abs(ran - begun).max()),
        }
    ]


def draw(found: dict[str, Any], figure: Any) -> None:
    """Generations a second."""
    rows = found["rows"]
    axes = figure.subplots()
    for i, name in enumerate(("run", "replay")):
        values = [1 / row["generation_s"][name] for row in rows]
        axes.bar_label(axes.bar([x + 0.4 * i for x in range(len(rows))], values, 0.38, label=name), fmt="%.3g")
    labels = [f"{row['strategy']}\n{row['speed']:.1f} times as fast" for row in rows]
    axes.set_xticks([x + 0.2 for x in range(len(rows))], labels)
    axes.set(yscale="log", ylabel="generations a second", title="shardes.replay beside the run")
    axes.legend()
