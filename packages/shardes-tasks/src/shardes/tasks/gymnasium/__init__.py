"""Environments of Gymnasium as tasks."""

import importlib.util

if any(importlib.util.find_spec(name) is None for name in ("gymnasium", "cloudpickle")):
    raise ImportError("shardes.tasks.gymnasium needs more: pip install 'shardes-tasks[gymnasium]'")

from shardes.tasks.gymnasium.making import make
from shardes.tasks.gymnasium.task import GymnasiumTask

__all__ = ["GymnasiumTask", "make"]
