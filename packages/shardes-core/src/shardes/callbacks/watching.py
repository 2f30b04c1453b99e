"""Callbacks that take a run's numbers as they arrive, without waiting for them."""

from __future__ import annotations

from collections import deque

from shardes.callbacks.base import Callback, Run, is_writer
from shardes.generation import Generation

__all__ = ["Watcher"]


class Watcher(Callback):
    """Base of what is told every generation once it is over, in order and in process 0 alone.

    That is up to two generations late, and no later than a checkpoint of it or the run's end.
    """

    _pending: deque[Generation] | None = None

    def begin(self, run: Run) -> None:
        """Before the first."""

    def watch(self, generation: Generation) -> None:
        """One generation, which is over. Its state is gone."""

    def finish(self, run: Run) -> None:
        """After the last."""

    def start(self, run: Run) -> None:
        """Begin."""
        if is_writer():
            self.begin(run)
            self._pending = deque()

    def generation(self, generation: Generation) -> None:
        """Watch what is at hand."""
        if self._pending is not None:
            self._pending.append(generation)
            self._take(wait=False)

    def flush(self) -> None:
        """Watch the rest."""
        self._take(wait=True)

    def end(self, run: Run) -> None:
        """Watch the rest, and finish."""
        if self._pending is None:
            return
        try:
            # What raised may keep the rest from ever arriving.
            self._take(wait=run.ended != "error")
        finally:
            self._pending = None
            self.finish(run)

    def _take(self, wait: bool) -> None:
        while self._pending and (wait or self._pending[0].is_over):
            generation = self._pending.popleft()
            generation.summary  # noqa: B018 waits for it
            self.watch(generation)
