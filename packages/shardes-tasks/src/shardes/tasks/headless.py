"""MuJoCo's pictures on a machine that may have no screen."""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib
import os
import sys
from collections.abc import Iterator

from shardes.tasks.errors import TaskError

__all__ = ["headless"]


@contextlib.contextmanager
def headless(name: str) -> Iterator[None]:
    """Have MuJoCo draw without a screen, where there is none and MUJOCO_GL says nothing else.

    Args:
        name: of what is drawn, for the error.

    Raises:
        TaskError: it cannot be drawn here.
    """
    chosen = "MUJOCO_GL" not in os.environ and sys.platform == "linux" and not os.environ.get("DISPLAY")
    libraries = [library for library in ("EGL", "OSMesa") if ctypes.util.find_library(library) is not None]
    if chosen and libraries:
        os.environ["MUJOCO_GL"] = libraries[0].lower()
    try:
        # It reads MUJOCO_GL when it is imported, which others may have done long ago.
        importlib.reload(importlib.import_module("mujoco.rendering.classic.gl_context"))
        yield
    except Exception as error:
        raise TaskError(
            f"{name} cannot be drawn here: {type(error).__name__}: {error}\nWithout a screen, MuJoCo needs libEGL or "
            "libOSMesa (on Debian: apt install libegl1, or libosmesa6), which MUJOCO_GL=egl or osmesa chooses."
        ) from error
    finally:
        if chosen:
            os.environ.pop("MUJOCO_GL", None)
