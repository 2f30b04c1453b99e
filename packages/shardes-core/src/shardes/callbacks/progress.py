"""A run's progress for a person: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
from collections import deque
from typing import Any

from shardes.callbacks.base import Run
from shardes.callbacks.watching import Watcher
from shardes.generation import Generation, Summary

__all__ = ["Progress"]

# Seconds over which rates are taken.
_WINDOW = 30.0
# Some generations may be seen to be over at once, from which no rate follows.
_FEWEST, _SHORTEST = 10, 1.0


class Progress(Watcher):
    """Shows a run on stderr: generation, fitness, members and tokens a second, update ratio, time left.

    On a terminal it is a live display by rich, the extra `progress`; elsewhere plain lines, of the first generation,
    of the last, and one every now and then. It never waits for a generation. In a run of many processes process 0
    shows it.

    Args:
        tokens: that a member reads a generation, for tokens a second; left out without.
        every: seconds between plain lines.

    Raises:
        ImportError: stderr is a terminal and the extra is missing.
    """

    def __init__(self, *, tokens: int | None = None, every: float = 10.0) -> None:
        if _on_terminal() and importlib.util.find_spec("rich") is None:
            raise ImportError("Progress on a terminal needs more: pip install 'shardes-core[progress]'")
        self.tokens = tokens
        self.every = every

    def begin(self, run: Run) -> None:
        """Begin to show."""
        self._run = run
        self._times: deque[tuple[int, float]] = deque()
        self._latest: Summary | None = None
        self._shown: tuple[int, float] | None = None
        self._live: Any = None
        if _on_terminal():
            from shardes.callbacks.live import Live

            self._live = Live(int(run.state.generation), run.generations)

    def watch(self, generation: Generation) -> None:
        """Show a generation, if it is time."""
        summary = generation.summary
        if self._latest is None and self._run.es.placement is not None:
            self._say(str(self._run.es.placement))
        self._latest = summary
        self._times.append((summary.generation + 1, summary.seconds))
        while summary.seconds - self._times[0][1] > _WINDOW and len(self._times) > 2:
            self._times.popleft()
        if self._live is not None:
            self._live.update(summary.generation + 1, self._left(), self._numbers(summary))
        elif self._shown is None or time.monotonic() - self._shown[1] >= self.every:
            self._print(summary)

    def finish(self, run: Run) -> None:
        """Show the last generation and why the run ended."""
        if self._live is not None:
            self._live.close()
        elif self._latest is not None and (self._shown is None or self._shown[0] != self._latest.generation):
            self._print(self._latest)
        if run.ended not in ("generations", "error"):
            _write(f"The run ended by {run.ended}.")

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._live.say(text)
        else:
            _write(text)

    def _print(self, summary: Summary) -> None:
        self._shown = (summary.generation, time.monotonic())
        numbers = "  ".join(f"{name} {value}" for name, value in self._numbers(summary))
        left = self._left()
        at = f"generation {summary.generation + 1}/{self._run.generations}"
        self._say(f"{at}  {numbers}{f'  left {left}' if left else ''}")

    def _numbers(self, summary: Summary) -> list[tuple[str, str]]:
        numbers = [
            ("mean", f"{summary.mean:.6g}"),
            ("best", f"{summary.best:.6g}"),
            ("std", f"{summary.std:.3g}"),
            ("update", f"{summary.update_ratio:.2g}"),
            ("non-finite", str(summary.non_finite)),
        ]
        rate = self._rate() * self._run.es.n
        if rate:
            numbers.append(("members/s", _short(rate)))
        if rate and self.tokens is not None:
            numbers.append(("tokens/s", _short(rate * self.tokens)))
        return numbers

    def _rate(self) -> float:
        """Generations a second of late but for the first, which was compiled; 0 while too few are over."""
        (generation, seconds), (last, now) = self._times[0], self._times[-1]
        if last - generation < _FEWEST and now - seconds < _SHORTEST:
            return 0.0
        return (last - generation) / max(now - seconds, 1e-9)

    def _left(self) -> str:
        """Time to the end, empty while that is unknown or over."""
        generations, rate = self._run.generations - self._times[-1][0], self._rate()
        if not generations or not rate:
            return ""
        minutes, seconds = divmod(round(generations / rate), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"


def _on_terminal() -> bool:
    """Whether stderr shows what changes in place."""
    return getattr(sys.stderr, "isatty", bool)() and os.environ.get("TERM") not in ("dumb", "unknown")


def _write(line: str) -> None:
    # A reader that is gone is no reason to end a run.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


def _short(value: float) -> str:
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}T"
