"""The training loop beside the bare one."""

import contextlib
import itertools
import os
import tempfile
from typing import Any

import jax
import jax.numpy as jnp

import shardes
from validation.measuring import Run, in_processes, in_turn
from validation.scale import models

WHAT = (
    "seconds of a generation, from the same state: in a bare loop over es.step, in shardes.fit, and in shardes.fit "
    "with Progress and JSONLLog; ratio is generations a second over the bare loop's"
)


def run(tiny: bool) -> dict[str, Any]:
    """A tiny model, where the loop weighs most, and a middle one."""
    if tiny:
        requests = [{"model": "tiny", "d": 16, "layers": 1, "tokens": 4, "n": 16, "generations": 4, "repeats": 1}]
    else:
        requests = [
            {"model": "tiny", "d": 64, "layers": 2, "tokens": 8, "n": 256, "generations": 500, "repeats": 11},
            {"model": "middle", "d": 128, "layers": 4, "tokens": 32, "n": 512, "generations": 100, "repeats": 7},
        ]
    return {"rows": in_processes(measure, *map(Run, requests))}


def measure(model: str, d: int, layers: int, tokens: int, n: int, generations: int, repeats: int) -> list[Any]:
    """One row."""
    es = models.strategy("LowRank(1)", n)
    first, batch = es.init(jax.random.key(0), models.params(d, layers)), models.batch(d, tokens)
    step, files = es.step(models.loss), itertools.count()

    def bare() -> None:
        state = jax.tree.map(jnp.copy, first)
        for _ in range(generations):
            state, _ = step(state, batch)
        jax.block_until_ready(state)

    def fit(*callbacks: shardes.callbacks.Callback) -> None:
        state, _ = shardes.fit(es, first, models.loss, data=batch, generations=generations, callbacks=callbacks)
        jax.block_until_ready(state)

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:

        def watched() -> None:
            with contextlib.redirect_stderr(nowhere):
                fit(shardes.callbacks.Progress(), shardes.callbacks.JSONLLog(f"{folder}/{next(files)}.jsonl"))

        seconds = in_turn({"bare": bare, "fit": fit, "fit, watched": watched}, repeats)
    return [
        {
            "model": model,
            "d": d,
            "layers": layers,
            "tokens": tokens,
            "n": n,
            "generations": generations,
            "repeats": repeats,
            "generation_s": {name: total / generations for name, total in seconds.items()},
            "ratio": {name: seconds["bare"] / seconds[name] for name in ("fit", "fit, watched")},
        }
    ]


def draw(found: dict[str, Any], figure: Any) -> None:
    """Ratios."""
    rows = found["rows"]
    axes = figure.subplots()
    for i, name in enumerate(("fit", "fit, watched")):
        bars = axes.bar([x + 0.4 * i for x in range(len(rows))], [row["ratio"][name] for row in rows], 0.38)
        axes.bar_label(bars, fmt="%.3f")
        bars.set_label(name)
    labels = [f"{row['model']}: {1e3 * row['generation_s']['bare']:.3g} ms a generation" for row in rows]
    axes.set_xticks([x + 0.2 for x in range(len(rows))], labels)
    axes.axhline(0.97, color="gray", linestyle="--", label="0.97")
    axes.set(ylabel="generations a second over the bare loop's", title="shardes.fit beside a bare loop")
    figure.legend(loc="outside lower center", ncols=3)
