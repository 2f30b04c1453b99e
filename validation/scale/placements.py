"""Where the update is contracted: both placements, and what `how="auto"` chooses."""

import itertools
from typing import Any

import jax

from validation.measuring import Run, in_processes, in_turn
from validation.scale import models

WHAT = (
    'seconds of a generation under how="A" and how="B", in turn, and what how="auto" chose when it measured by itself; '
    "ratio is A's over B's. devices: simulated ones of each process"
)
LAYOUTS: tuple[tuple[int, int], ...] = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4))
"""Processes, and devices of each."""


def run(tiny: bool) -> dict[str, Any]:
    """One run a layout."""
    request = {"strategies": list(models.STRATEGIES), "widths": [64, 512], "sizes": [64, 1024], "tokens": 32}
    request |= {"repeats": 3, "at_least_s": 0.6}
    if tiny:
        request |= {"strategies": ["LowRank(1)"], "widths": [16], "sizes": [16], "repeats": 1, "at_least_s": 0.0}
    layouts = LAYOUTS[-1 if tiny else 0 :]
    return {"rows": in_processes(measure, *(Run(request, devices, processes) for processes, devices in layouts))}


def measure(strategies: list[str], widths: list[int], sizes: list[int], **options: Any) -> list[dict[str, Any]]:
    """A row a strategy, width and size."""
    return [_row(name, d, n, **options) for name, d, n in itertools.product(strategies, widths, sizes)]


def _row(strategy: str, d: int, n: int, tokens: int, repeats: int, at_least_s: float) -> dict[str, Any]:
    batch, params = models.batch(d, tokens), models.params(d, 1)

    def side(how: str) -> tuple[Any, Any]:
        es = models.strategy(strategy, n, how=how)
        step, state = es.step(models.loss), es.init(jax.random.key(0), params)

        def generation() -> None:
            nonlocal state
            state, _ = jax.block_until_ready(step(state, batch))

        return es, generation

    seconds = in_turn({how: side(how)[1] for how in ("A", "B")}, repeats, at_least_s)
    es, generation = side("auto")
    generation()
    return {
        "processes": jax.process_count(),
        "devices": jax.local_device_count(),
        "strategy": strategy,
        "d": d,
        "n": n,
        "tokens": tokens,
        "repeats": repeats,
        "at_least_s": at_least_s,
        "generation_s": seconds,
        "ratio": seconds["A"] / seconds["B"],
        "auto": {"how": es.placement.how, "seconds": dict(es.placement.seconds)},
    }


def draw(found: dict[str, Any], figure: Any) -> None:
    """Ratios over layouts, a panel a width and size, with what `how="auto"` chose."""
    rows = found["rows"]
    figure.set_size_inches(9, 7)
    cells = sorted({(row["d"], row["n"]) for row in rows})
    panels = figure.subplots(-(-len(cells) // 2), 2, sharex=True, sharey=True, squeeze=False).reshape(-1)
    for axes, (d, n) in zip(panels, cells, strict=False):
        for name in dict.fromkeys(row["strategy"] for row in rows):
            own = [row for row in rows if (row["d"], row["n"], row["strategy"]) == (d, n, name)]
            layouts = [f"{row['processes']}x{row['devices']}" for row in own]
            (line,) = axes.plot(layouts, [row["ratio"] for row in own], "-", label=name)
            for layout, row in zip(layouts, own, strict=True):
                marker, color = f"${row['auto']['how']}$", line.get_color()
                axes.plot([layout], [row["ratio"]], marker=marker, color=color, markersize=9, zorder=3)
        axes.axhline(1, color="gray", linestyle="--")
        axes.set(yscale="log", title=f"d={d}, n={n}")
    figure.supxlabel("processes x devices")
    figure.supylabel('seconds under "A" over "B"; the letter is what how="auto" chose')
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
