"""Environments of Gymnasium as tasks."""

import importlib.util

if importlib.util.find_spec("gymnasium") is None:
    raise ImportError("shardes.tasks.gymnasium needs more: pip install 'shardes-tasks[gymnasium]'")

from shardes.tasks.gymnasium.making import make, names
from shardes.tasks.gymnasium.task import GymnasiumTask

__all__ = ["GymnasiumTask", "make", "names"]
