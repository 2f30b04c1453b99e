"""One run at a time writes to a file or a folder."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["lock"]


def lock(descriptor: int, path: Path) -> None:
    """Keep an open file or folder for this run, until it is closed or the process ends, however it ends.

    Where the system or the file system has no such locks, nothing is kept.

    Raises:
        ValueError: another run has it.
    """
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{path} is written to by another run. Wait for its end, or choose another.") from None
    except OSError:
        pass
