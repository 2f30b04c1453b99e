"""What `deterministic=True` costs."""

import itertools
from typing import Any

import jax

from validation.measuring import Run, in_processes, in_turn
from validation.scale import models

WHAT = "seconds of a generation by default and with deterministic=True; cost is the second over the first"


def run(tiny: bool) -> dict[str, Any]:
    """One device, and eight."""
    cells = [{"d": 64, "n": 1024, "tokens": 64}, {"d": 128, "n": 256, "tokens": 256}, {"d": 512, "n": 64, "tokens": 64}]
    request = {"strategies": list(models.STRATEGIES), "cells": cells, "layers": 2, "repeats": 5, "at_least_s": 1.0}
    if tiny:
        cells = [{"d": 16, "n": 16, "tokens": 4}]
        request |= {"strategies": ["LowRank(1)"], "cells": cells, "repeats": 1, "at_least_s": 0.0}
    return {"rows": in_processes(measure, *(Run(request, devices) for devices in (1, 8)))}


def measure(strategies: list[str], cells: list[dict[str, int]], **options: Any) -> list[dict[str, Any]]:
    """A row a strategy and cell."""
    return [_row(name, **cell, **options) for name, cell in itertools.product(strategies, cells)]


def _row(strategy: str, d: int, n: int, tokens: int, layers: int, repeats: int, at_least_s: float) -> dict[str, Any]:
    batch = models.batch(d, tokens)

    def side(deterministic: bool) -> Any:
        es = models.strategy(strategy, n, deterministic=deterministic)
        step, state = es.step(models.loss), es.init(jax.random.key(0), models.params(d, layers))

        def generation() -> None:
            nonlocal state
            state, _ = jax.block_until_ready(step(state, batch))

        return generation

    seconds = in_turn({"default": side(False), "deterministic": side(True)}, repeats, at_least_s)
    return {
        "devices": jax.device_count(),
        "strategy": strategy,
        "d": d,
        "n": n,
        "tokens": tokens,
        "layers": layers,
        "repeats": repeats,
        "at_least_s": at_least_s,
        "generation_s": seconds,
        "cost": seconds["deterministic"] / seconds["default"],
    }


def draw(found: dict[str, Any], figure: Any) -> None:
    """Costs, a panel a number of devices."""
    rows = found["rows"]
    devices = sorted({row["devices"] for row in rows})
    for axes, count in zip(figure.subplots(1, len(devices), sharey=True, squeeze=False)[0], devices, strict=True):
        for i, name in enumerate(dict.fromkeys(row["strategy"] for row in rows)):
            own = [row for row in rows if row["devices"] == count and row["strategy"] == name]
            bars = axes.bar([x + 0.27 * i for x in range(len(own))], [row["cost"] for row in own], 0.25, label=name)
            axes.bar_label(bars, fmt="%.2g")
        axes.set_xticks([x + 0.27 for x in range(len(own))], [f"d={row['d']}\nn={row['n']}" for row in own])
        axes.axhline(1, color="gray", linestyle="--")
        axes.set(title=f"{count} device{'s' * (count > 1)}")
    figure.supylabel("seconds with deterministic=True over the default's")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
