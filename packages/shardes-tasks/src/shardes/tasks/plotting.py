"""Learning curves of runs, by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["plot"]


def plot(logs: Mapping[str, Sequence[Mapping[str, Any]]], path: Path, title: str = "") -> Path:
    """Write a PNG of the returns of runs by generation: mean, best, and the spread between the members.

    Args:
        logs: lines of each run's log, by what to call it.
        path: of the PNG.
        title: above the axis.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (name, lines) in enumerate(logs.items()):
        color = f"C{i}"
        generation = [line["generation"] for line in lines]
        mean, best, std = (np.array([line[key] for line in lines], np.float64) for key in ("mean", "best", "std"))
        label = f"{name}: " if len(logs) > 1 else ""
        axes.fill_between(generation, -mean - std, -mean + std, color=color, alpha=0.2, linewidth=0)
        axes.plot(generation, -mean, color=color, label=f"{label}mean, and one standard deviation")
        axes.plot(generation, -best, color=color, linestyle=":", linewidth=1, label=f"{label}best member")
    axes.set_xlabel("generation")
    axes.set_ylabel("return")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
    return path
