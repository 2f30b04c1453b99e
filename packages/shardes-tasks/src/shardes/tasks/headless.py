"""Pictures of simulators on a machine that may have no screen."""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import os
import sys
from collections.abc import Iterator

from shardes.tasks.errors import TaskError

__all__ = ["headless", "undrawable"]


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
        if "mujoco" in sys.modules:
            # It has read MUJOCO_GL when it was imported, which others may have done long ago.
            importlib.reload(importlib.import_module("mujoco.rendering.classic.gl_context"))
        yield
    finally:
        for name in chosen:
            del os.environ[name]


def undrawable(name: str, error: Exception) -> TaskError:
    """The error of something by this name that cannot be drawn."""
    return TaskError(
        f"{name} cannot be drawn here: {type(error).__name__}: {error}\nWithout a screen, MuJoCo needs libEGL or "
        "libOSMesa (on Debian: apt install libegl1, or libosmesa6), which MUJOCO_GL=egl or osmesa chooses."
    )
