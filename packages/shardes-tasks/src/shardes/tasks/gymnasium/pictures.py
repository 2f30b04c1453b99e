"""Pictures of environments, on a machine that may have no screen."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from shardes.tasks.errors import TaskError

__all__ = ["headless", "picture"]


@contextlib.contextmanager
def headless() -> Iterator[None]:
    """Have pygame and MuJoCo draw without a screen, where there is none and the environment says nothing else."""
    chosen = {}
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        chosen["SDL_VIDEODRIVER"] = "dummy"
        for library in ("EGL", "OSMesa"):
            if ctypes.util.find_library(library) is not None:
                chosen.setdefault("MUJOCO_GL", library.lower())
    chosen = {name: value for name, value in chosen.items() if name not in os.environ}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]


def picture(environment: Any, name: str) -> np.ndarray[Any, Any]:
    """A picture of an environment as it is, uint8 of shape (height, width, 3).

    Raises:
        TaskError: it draws none, or what draws it is missing.
    """
    try:
        frame = environment.render()
    except Exception as error:
        raise TaskError(
            f"{name} cannot be drawn here: {type(error).__name__}: {error}\nWithout a screen, MuJoCo needs libEGL or "
            "libOSMesa (on Debian: apt install libegl1, or libosmesa6), which MUJOCO_GL=egl or osmesa chooses."
        ) from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise TaskError(f"{name} draws no pictures: its render gives {type(frame).__name__}.")
    return frame
