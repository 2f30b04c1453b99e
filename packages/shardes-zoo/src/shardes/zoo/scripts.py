"""Modules that a process of their own runs, by their files."""

from __future__ import annotations

import os
from types import ModuleType

from shardes.zoo.errors import ZooError

__all__ = ["script_of"]


def script_of(module: ModuleType) -> str:
    """The path of a module that an interpreter can run as a script. Raises ZooError where it is no file."""
    path = module.__file__
    if path is None or not os.path.isfile(path):
        raise ZooError(
            f"{path} is no file, and Python must run it in a process of its own. Install shardes-zoo into a folder, "
            "not into an archive."
        )
    return path
