"""A generation of a run as callbacks see it, and the history that a run leaves."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from shardes.state import ESState

__all__ = ["Generation", "History", "Summary", "summarize"]


class Summary(NamedTuple):
    """A generation in numbers, on the host."""

    generation: int
    """Its number, from 0."""
    mean: float
    """Mean of the fitness of the members whose fitness was finite; NaN when none was. So the next two."""
    best: float
    """The lowest fitness of a member, the mean over its groups where there are groups."""
    std: float
    """Standard deviation of the members' fitness."""
    non_finite: int
    """Members whose fitness was not finite."""
    update_ratio: float
    """Norm of the update over the norm of the params that train."""
    seconds: float
    """Since the run's start, at which the numbers were on the host."""


class Generation:
    """A generation that a run has begun. Reading `summary` waits for it.

    Attributes:
        number: from 0.
        state: after it; to be read before the callback returns, since the next generation takes its memory.
        fitness: of its members, (n,) or (n, groups), on the devices.
    """

    def __init__(self, number: int, state: ESState, fitness: jax.Array, numbers: jax.Array, start: float) -> None:
        self.number = number
        self.state = state
        self.fitness = fitness
        self._numbers = numbers
        self._start = start
        self._summary: Summary | None = None

    @property
    def summary(self) -> Summary:
        """The generation in numbers."""
        if self._summary is None:
            mean, best, std, non_finite, ratio, wants_end = np.asarray(self._numbers).tolist()
            self._wants_end = bool(wants_end)
            seconds = time.perf_counter() - self._start
            self._summary = Summary(self.number, mean, best, std, round(non_finite), ratio, seconds)
        return self._summary

    @property
    def wants_end(self) -> bool:
        """Whether a process of a run of many wants it to end. Waits, as `summary` does."""
        return self.summary is not None and self._wants_end

    @property
    def is_over(self) -> bool:
        """Whether `summary` is at hand without waiting."""
        return self._summary is not None


@dataclasses.dataclass(frozen=True)
class History:
    """What a run was: an array a number, with one entry a generation, and why it ended.

    The arrays are those of `Summary`. `ended` says "generations" when all were done, "data" when there was no more,
    "callback" when one asked for the end, or the name of the signal, such as "SIGINT".
    """

    generation: np.ndarray[Any, Any]
    mean: np.ndarray[Any, Any]
    best: np.ndarray[Any, Any]
    std: np.ndarray[Any, Any]
    non_finite: np.ndarray[Any, Any]
    update_ratio: np.ndarray[Any, Any]
    seconds: np.ndarray[Any, Any]
    ended: str

    @classmethod
    def of(cls, summaries: list[Summary], ended: str) -> History:
        """The history of generations in order."""
        columns = zip(*summaries, strict=True) if summaries else ([] for _ in Summary._fields)
        kinds = {"generation": np.int64, "non_finite": np.int64}
        arrays = {
            name: np.array(column, kinds.get(name, np.float64))
            for name, column in zip(Summary._fields, columns, strict=True)
        }
        return cls(**arrays, ended=ended)

    def __len__(self) -> int:
        return len(self.generation)


def summarize(before: list[jax.Array], after: list[jax.Array], fitness: jax.Array, wants_end: jax.Array) -> jax.Array:
    """Mean, best, std, non-finite members, update ratio and `wants_end`: float32 of shape (6,).

    `before` and `after` are the trained leaves.
    """
    members = fitness.astype(jnp.float32).reshape(fitness.shape[0], -1)
    finite = jnp.isfinite(members).all(axis=1)
    count = jnp.sum(finite, dtype=jnp.float32)
    value = jnp.where(finite, jnp.mean(members, axis=1), 0)
    mean = jnp.sum(value) / count
    std = jnp.sqrt(jnp.sum(jnp.where(finite, (value - mean) ** 2, 0)) / count)
    best = jnp.where(count > 0, jnp.min(jnp.where(finite, value, jnp.inf)), jnp.nan)
    moved = jnp.stack([jnp.sum((new - old) ** 2).astype(jnp.float32) for new, old in zip(after, before, strict=True)])
    norm = jnp.stack([jnp.sum(old**2).astype(jnp.float32) for old in before])
    ratio = jnp.sqrt(jnp.sum(moved) / jnp.sum(norm))
    return jnp.stack([mean, best, std, fitness.shape[0] - count, ratio, wants_end])
