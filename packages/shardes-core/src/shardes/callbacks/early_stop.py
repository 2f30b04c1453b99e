"""The end of a run that no longer gets better."""

from __future__ import annotations

import math

from shardes.callbacks.base import Callback, Run
from shardes.generation import Generation

__all__ = ["EarlyStop"]


class EarlyStop(Callback):
    """Ends a run when the mean fitness has not fallen for some generations, or has reached a target.

    It waits for every generation's numbers.

    Args:
        patience: generations without a new lowest mean, or None for no limit.
        min_delta: how much lower than the lowest a mean must be to count.
        target: mean fitness at which the run ends.

    Raises:
        ValueError: neither a patience of at least 1 nor a target is given, or `min_delta` is negative.
    """

    def __init__(self, patience: int | None = None, *, min_delta: float = 0.0, target: float | None = None) -> None:
        if (patience is None and target is None) or (patience is not None and patience < 1):
            raise ValueError(f"patience is {patience}, and must be at least 1, or a target be given.")
        if not min_delta >= 0:
            raise ValueError(f"min_delta is {min_delta}, and must be at least 0.")
        self.patience = patience
        self.min_delta = min_delta
        self.target = target

    def start(self, run: Run) -> None:
        """Forget what an earlier run was like."""
        self._lowest = math.inf
        self._waited = 0

    def generation(self, generation: Generation) -> bool:
        """Whether it is enough."""
        mean = generation.summary.mean
        if self.target is not None and mean <= self.target:
            return True
        if mean < self._lowest - self.min_delta:
            self._lowest, self._waited = mean, 0
        else:
            self._waited += 1
        return self.patience is not None and self._waited >= self.patience
