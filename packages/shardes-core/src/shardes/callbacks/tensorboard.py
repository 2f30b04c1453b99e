"""A run's numbers for TensorBoard."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path

from shardes.callbacks.base import Run
from shardes.callbacks.watching import Watcher
from shardes.generation import Generation

__all__ = ["TensorBoard"]


class TensorBoard(Watcher):
    """Writes scalars that TensorBoard shows: fitness/mean, fitness/best, fitness/std, update_ratio, non_finite.

    By the package `tensorboard` itself, the extra `tensorboard`. In a run of many processes process 0 writes.

    Args:
        folder: where the event files go; a resumed run adds one.

    Raises:
        ImportError: the extra is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise ImportError("TensorBoard needs more: pip install 'shardes-core[tensorboard]'")
        self.folder = Path(folder).absolute()

    def begin(self, run: Run) -> None:
        """Open an event file."""
        from tensorboard.summary import Writer

        self._writer = Writer(str(self.folder))

    def watch(self, generation: Generation) -> None:
        """Write the scalars that are finite."""
        summary = generation.summary
        for tag, value in {
            "fitness/mean": summary.mean,
            "fitness/best": summary.best,
            "fitness/std": summary.std,
            "update_ratio": summary.update_ratio,
            "non_finite": summary.non_finite,
        }.items():
            if math.isfinite(value):
                self._writer.add_scalar(tag, value, summary.generation)

    def finish(self, run: Run) -> None:
        """Close the file."""
        self._writer.close()
