"""The live display of a run's progress, by rich."""

from __future__ import annotations

import contextlib
import sys

from rich.console import Console, Group
from rich.live import Live as RichLive
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

__all__ = ["Live"]


class Live:
    """A bar with the time that is left, and a line of numbers under it, which wraps where the terminal is narrow."""

    def __init__(self, done: int, generations: int) -> None:
        self._bar = Progress(
            TextColumn("generation"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task("", total=generations, completed=done, left="compiling")
        self._display = RichLive(
            Group(self._bar),
            console=Console(stderr=True),
            refresh_per_second=4,
            # Above the bar where it goes to the terminal, and left alone where it goes to a file or a pipe.
            redirect_stdout=getattr(sys.stdout, "isatty", bool)(),
        )
        self._display.start()

    def update(self, done: int, left: str, numbers: list[tuple[str, str]]) -> None:
        """Show what is done, the time that is left, and the numbers by name."""
        self._bar.update(self._task, completed=done, left=f"left {left}" if left else "")
        line = Text()
        for name, value in numbers:
            # Held together where the line wraps.
            line.append(f"{name}\N{NO-BREAK SPACE}", style="dim")
            line.append(f"{value}  ", style="bold red" if name == "non-finite" and value != "0" else "bold")
        self._display.update(Group(self._bar, line))

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        with contextlib.suppress(OSError):
            self._display.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Leave the last state of it on the terminal."""
        self._bar.update(self._task, left="")
        # The terminal may be gone, which is no reason to end a run.
        with contextlib.suppress(OSError):
            self._display.stop()
