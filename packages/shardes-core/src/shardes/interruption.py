"""Ctrl-C, SIGTERM and a terminal that hangs up, which end a run after the generation that is running."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption", "end_signals"]

_TWICE = 1.0


def end_signals() -> list[int]:
    """SIGINT, SIGTERM, and SIGHUP where there is one: those of them that a handler of Python's can take."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # None is a handler that was not set from Python, and could not be set again. What nohup or a scheduler has ignored
    # stays so; shells ignore SIGINT for all that they start in the background.
    return [
        number
        for number in numbers
        if (before := signal.getsignal(number)) is not None and (before != signal.SIG_IGN or number == signal.SIGINT)
    ]


class Interruption:
    """While it is entered, the first of `end_signals` is noted in `received`; a later one raises KeyboardInterrupt.

    One within a second of the first is the same: launchers send it on to a process that has had it already. Outside
    the main thread, to which Python gives signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in end_signals()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if time.monotonic() - self._at > _TWICE:
                raise KeyboardInterrupt
            return
        self.received, self._at = number, time.monotonic()
        name = signal.Signals(number).name
        # It may come amid another print, or the terminal be gone; the run is to end well all the same.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            print(
                f"\n{name}: the run ends after this generation. Once more ends it at once.", file=sys.stderr, flush=True
            )
