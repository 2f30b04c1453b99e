"""Ctrl-C and SIGTERM, which end a run after the generation that is running."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interruption"]

_TWICE = 1.0


class Interruption:
    """While it is entered, the first SIGINT or SIGTERM is noted in `received`; a later one raises KeyboardInterrupt.

    One within a second of the first is the same: launchers send it on to a process that has had it already. Outside
    the main thread, to which Python gives signals, it does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # None is a handler that was not set from Python, and could not be set again.
                if signal.getsignal(number) is not None:
                    self._before[number] = signal.signal(number, self._note)
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
