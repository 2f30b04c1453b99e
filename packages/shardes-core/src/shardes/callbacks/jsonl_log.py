"""A run's numbers as lines of JSON."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from shardes.callbacks.base import Run
from shardes.callbacks.watching import Watcher
from shardes.generation import Generation
from shardes.locking import lock

__all__ = ["JSONLLog"]

_LONGEST = 2**16
_BEGINNING = b'{"generation": '


class JSONLLog(Watcher):
    """Appends a line of JSON a generation to a file: the fields of `Summary`, with null for what is not finite.

    A resumed run goes on with the file: lines of generations that it does again, and what a killed process left
    half-written, are dropped, and `seconds` counts on. A line is written when the run has its numbers, which is a few
    generations late. In a run of many processes process 0 writes.

    Args:
        path: the file; its folder is made.

    Raises:
        ValueError: at the run's start, when the file holds something else, or another run writes to it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def begin(self, run: Run) -> None:
        """Open the file behind the line of the generation before the state's."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self.path, "ab")  # noqa: SIM115
        try:
            lock(file.fileno(), self.path)
            end, self._seconds = self._kept(int(run.state.generation))
            file.truncate(end)
        except BaseException:
            file.close()
            raise
        self._file: BinaryIO = file

    def watch(self, generation: Generation) -> None:
        """Write a line; it is in the file when this returns."""
        summary = generation.summary
        fields: dict[str, Any] = summary._asdict()
        fields["seconds"] = round(self._seconds + summary.seconds, 6)
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
        self._file.write(json.dumps(finite, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def finish(self, run: Run) -> None:
        """Close the file."""
        self._file.close()

    def _kept(self, generations: int) -> tuple[int, float]:
        """Where the lines of that many generations end, and the seconds of the last of them."""
        end, seconds = 0, 0.0
        with open(self.path, "rb") as file:
            while line := file.readline(_LONGEST):
                if not line.endswith(b"\n"):
                    if _BEGINNING.startswith(line[: len(_BEGINNING)]) and len(line) < _LONGEST:
                        break  # half-written when the process ended
                    raise self._foreign(line)
                try:
                    fields = json.loads(line)
                    generation, at = int(fields["generation"]), float(fields["seconds"])
                except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
                    raise self._foreign(line) from None
                if generation >= generations:
                    break
                end, seconds = file.tell(), at
        return end, seconds

    def _foreign(self, line: bytes) -> ValueError:
        return ValueError(f"{self.path} holds what no run wrote, {line[:80]!r}. Choose another file.")
