"""Reinforcement learning tasks as fitness functions for `shardes`."""

from shardes.tasks import heads
from shardes.tasks.errors import TaskError
from shardes.tasks.functional import functional
from shardes.tasks.policy import MLP
from shardes.tasks.task import Spec, Task, Trajectory

__all__ = ["MLP", "Spec", "Task", "TaskError", "Trajectory", "functional", "heads"]
