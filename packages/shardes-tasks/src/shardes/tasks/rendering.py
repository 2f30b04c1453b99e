"""Frames to a file."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shardes.tasks.errors import TaskError

__all__ = ["checked", "write"]


def checked(path: str | os.PathLike[str]) -> Path:
    """The path of what is to be written, before anything is played for it.

    Raises:
        TaskError: it ends in neither .gif nor .mp4, or imageio, the extra `render`, is missing.
    """
    target = Path(path)
    if target.suffix.lower() not in (".gif", ".mp4"):
        raise TaskError(f"{target} ends in {target.suffix or 'nothing'}, and must end in .gif or .mp4.")
    if importlib.util.find_spec("imageio") is None:
        raise TaskError("Rendering needs more: pip install 'shardes-tasks[render]'")
    return target


def write(target: Path, frames: Sequence[np.ndarray[Any, Any]], rate: float) -> Path:
    """Write frames, uint8 of shape (height, width, 3), as GIF or MP4, by imageio.

    Args:
        target: by `checked`; its folder is made.
        frames: at least one.
        rate: frames a second.

    Raises:
        TaskError: there is no frame.
    """
    if not frames:
        raise TaskError(f"There is no frame to write to {target}: the episode has no step.")
    import imageio.v3 as imageio

    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix.lower() == ".gif":
        # A GIF counts hundredths of a second, and players slow down what is under two.
        imageio.imwrite(target, np.stack(frames), duration=max(20, round(100 / rate) * 10), loop=0)
    else:
        # Else it is started by a fork, in which the locks of JAX's threads are held for ever.
        os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
        imageio.imwrite(target, np.stack(frames), fps=rate, codec="libx264", macro_block_size=2)
    return target
