"""Tasks by name: "suite:name", such as "gymnasium:CartPole-v1"."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from shardes.tasks.errors import TaskError
from shardes.tasks.task import Task

__all__ = ["SUITES", "make", "names"]

SUITES = ("gymnasium", "playground", "brax")
"""Names of the modules of `shardes.tasks` that make tasks; each has `make` and `names`."""


def make(task: str, **options: Any) -> Task:
    """The task of a name such as "playground:CartpoleBalance", with the options of its suite's `make`.

    Raises:
        TaskError: there is none of this name, or it cannot be made here.
    """
    suite, colon, name = task.partition(":")
    if not colon or suite not in SUITES:
        near = difflib.get_close_matches(suite, SUITES, n=1)
        hint = f" Did you mean {near[0]}:{name or 'NAME'}?" if near else ""
        raise TaskError(
            f"{task!r} is no task: it must be SUITE:NAME, such as gymnasium:CartPole-v1, with a suite of "
            f"{', '.join(SUITES)}.{hint}"
        )
    made: Task = _suite(suite).make(name, **options)
    return made


def names(suite: str | None = None) -> dict[str, list[str]]:
    """The tasks of a suite, or of all that are installed, by suite.

    Raises:
        TaskError: there is no such suite, or it is not installed.
    """
    if suite is not None and suite not in SUITES:
        raise TaskError(f"{suite!r} is no suite. There are {', '.join(SUITES)}.")
    found = {}
    for one in SUITES if suite is None else [suite]:
        try:
            found[one] = _suite(one).names()
        except TaskError:
            # Not installed, which matters to who asks for it.
            if suite is not None:
                raise
    return found


def _suite(name: str) -> Any:
    try:
        return importlib.import_module(f"shardes.tasks.{name}")
    except ImportError as error:
        raise TaskError(str(error)) from error
