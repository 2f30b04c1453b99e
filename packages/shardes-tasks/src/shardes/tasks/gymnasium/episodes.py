"""Episodes of many environments at once, step by step, and what the policies see in them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from shardes.tasks.errors import TaskError
from shardes.tasks.gymnasium.stepping import part
from shardes.tasks.statistics import SQUARABLE

__all__ = ["Environments", "Seen", "Step", "failures", "steps"]

Array = np.ndarray[Any, Any]


class Environments(Protocol):
    """Equal environments that are stepped together."""

    def reset(self, seeds: Array) -> Array: ...

    def step(self, which: Array, actions: Any) -> tuple[Array, Array, Array]: ...

    def close(self) -> None: ...


class Step(NamedTuple):
    """A step of the environments that had not ended."""

    which: Array
    """Their numbers, ascending."""
    observations: Array
    """What was seen before it, (them, size)."""
    actions: Any
    """What was done, arrays with a leading axis of them."""
    rewards: Array
    """What it gave, float64, (them,); 0 where it does not count."""
    counts: Array
    """Whether it counts, (them,): where what it gave is finite."""


def steps(
    name: str, environments: Environments, act: Callable[[Array], Any], seeds: Array, length: int
) -> Iterator[Step]:
    """Steps from a reset until all have ended, `length` at most.

    A step whose action, reward or next observation is not finite ends its episode, and counts nothing.

    Args:
        name: of the environments, for errors.
        environments: as many as there are seeds.
        act: from all observations, (count, size), to all actions; those of what has ended are of no use.
        seeds: of the episodes.
        length: of an episode at most.

    Raises:
        TaskError: an environment fails.
    """
    with failures(name):
        observations = environments.reset(seeds)
    which = np.flatnonzero(_all_of_each(np.isfinite(observations)))
    seen = observations[which]
    for _ in range(length):
        if not which.size:
            return
        actions = part(act(observations), which)
        sound = _finite(actions, len(which))
        with failures(name):
            if sound.all():
                after, rewards, ended = environments.step(which, actions)
            else:
                after, rewards, ended = np.copy(seen), np.zeros(len(which)), np.ones(len(which), bool)
                if sound.any():
                    at = which[sound], part(actions, sound)
                    after[sound], rewards[sound], ended[sound] = environments.step(*at)
        sound &= np.isfinite(rewards) & _all_of_each(np.isfinite(after))
        yield Step(which, seen, actions, np.where(sound, rewards, 0), sound)
        goes_on = sound & ~ended
        if not goes_on.all():
            which, after = which[goes_on], after.compress(goes_on, axis=0)
        observations[which] = seen = after


@contextlib.contextmanager
def failures(name: str) -> Iterator[None]:
    """Make a TaskError of an environment's error, with where it happened."""
    try:
        yield
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f"An environment of {name} has failed:\n{traceback.format_exc()}") from error


def _finite(actions: Any, count: int) -> Array:
    finite = np.ones(count, bool)
    for leaf in jax.tree.leaves(actions):
        if np.issubdtype(leaf.dtype, np.inexact):
            finite &= _all_of_each(np.isfinite(leaf))
    return finite


def _all_of_each(truths: Array) -> Array:
    """Whether all of each row are true; at once where all are, since numpy is slow at many short rows."""
    count = len(truths)
    return np.ones(count, bool) if truths.all() else truths.reshape(count, -1).all(axis=1)


class Seen:
    """Statistics of what each of many environments shows, float64 (Welford 1962)."""

    def __init__(self, count: int, size: int) -> None:
        self.count = np.zeros(count)
        self.mean = np.zeros((count, size))
        self.squares = np.zeros((count, size))

    def add(self, which: Array, observations: Array) -> None:
        """One more observation of those numbered `which`, those of 1e15 or more left out."""
        squarable = _all_of_each(np.abs(observations) < SQUARABLE)
        if not squarable.all():
            which, observations = which[squarable], observations[squarable]
        self.count[which] += 1
        difference = observations - self.mean[which]
        self.mean[which] += difference / self.count[which, None]
        self.squares[which] += difference * (observations - self.mean[which])
