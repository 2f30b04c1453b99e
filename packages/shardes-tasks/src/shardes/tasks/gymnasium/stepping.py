"""Environments that one process steps, one after another; run as a script, for another process.

The script imports neither JAX nor shardes, so that it starts at once.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import flatdim, flatten

__all__ = ["Group", "make_one", "part"]

Array = np.ndarray[Any, Any]


def make_one(spec: Any, options: dict[str, Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """An environment of a spec of Gymnasium's, wrapped."""
    environment = gymnasium.make(spec, **{"disable_env_checker": True, **options})
    for wrapper in wrappers:
        environment = wrapper(environment)
    return environment


class Group:
    """`count` equal environments. Observations are flat, float32."""

    def __init__(self, spec: Any, options: dict[str, Any], wrappers: Sequence[Any], count: int) -> None:
        self.environments = [make_one(spec, options, wrappers) for _ in range(count)]
        self._space = self.environments[0].observation_space
        self._size = flatdim(self._space)

    def reset(self, seeds: Array) -> Array:
        """The first observations, (count, size), from a seed each."""
        observations = np.empty((len(seeds), self._size), np.float32)
        for environment, seed, row in zip(self.environments, seeds, observations, strict=True):
            self._flatten(environment.reset(seed=int(seed))[0], row)
        return observations

    def step(self, which: Array, actions: Any) -> tuple[Array, Array, Array]:
        """Observations, rewards and ends of a step of those numbered `which`, whose actions these are in order."""
        observations = np.empty((len(which), self._size), np.float32)
        rewards, ended = np.empty(len(which)), np.empty(len(which), bool)
        for row, number in enumerate(which):
            observation, reward, terminated, truncated, _ = self.environments[number].step(part(actions, row))
            self._flatten(observation, observations[row])
            rewards[row], ended[row] = reward, terminated or truncated
        return observations, rewards, ended

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()

    def _flatten(self, observation: Any, row: Array) -> None:
        flat = np.asarray(flatten(self._space, observation))
        if flat.shape != row.shape or flat.dtype == object:
            raise ValueError(f"The observation {observation!r} is not one of {self._space}.")
        # What float32 does not hold is infinite, and ends the episode.
        with np.errstate(over="ignore"):
            row[:] = flat


def part(actions: Any, rows: int | slice | Array) -> Any:
    """One action of a batch, or some."""
    if isinstance(actions, dict):
        return {name: part(inner, rows) for name, inner in actions.items()}
    if isinstance(actions, tuple):
        return tuple(part(inner, rows) for inner in actions)
    return actions[rows]


def _serve(connection: Connection) -> None:
    """Make a group, and call the methods of it that come over a connection, until it is closed."""
    try:
        sys.path[:], made = connection.recv()
        group = Group(*pickle.loads(made).fn)
        connection.send((True, None))
        while True:
            method, arguments = connection.recv()
            connection.send((True, getattr(group, method)(*arguments)))
            if method == "close":
                break
    except (EOFError, OSError):
        return
    except Exception:
        connection.send((False, traceback.format_exc()))


def _end_with(descriptor: int) -> None:
    """End this process when the other end of its connection closes, whatever it is at."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    descriptor = int(sys.argv[1])
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()
    _serve(Connection(descriptor))
