"""What goes wrong with a task."""

__all__ = ["TaskError"]


class TaskError(Exception):
    """A task cannot be made or run; the message says what happened and what to do."""
