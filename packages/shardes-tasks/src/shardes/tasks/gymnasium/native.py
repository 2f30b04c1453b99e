"""Environments that Gymnasium steps as one vector, with start states that a seed says, slot by slot."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import load_env_creator

__all__ = ["Vector", "is_native"]

Array = np.ndarray[Any, Any]


def is_native(spec: Any) -> bool:
    """Whether the vector environment of a spec can begin every slot from a seed of its own, as CartPole's can."""
    entry = spec.vector_entry_point
    if isinstance(entry, str):
        entry = load_env_creator(entry)
    return isinstance(entry, type) and issubclass(entry, CartPoleVectorEnv) and not spec.additional_wrappers


class Vector:
    """`count` slots of a vector environment. What it begins anew by itself, nobody counts."""

    def __init__(self, spec: Any, options: dict[str, Any], count: int) -> None:
        self._all: Any = gymnasium.make_vec(spec, count, "vector_entry_point", **options).unwrapped
        self._one: Any = gymnasium.make_vec(spec, 1, "vector_entry_point", **options).unwrapped
        self._actions: Array = np.zeros(self._all.action_space.shape, self._all.action_space.dtype)

    def reset(self, seeds: Array) -> Array:
        """As `Group.reset`, and to the same states."""
        self._all.reset()
        starts = []
        each, place = np.unique(seeds, return_inverse=True)
        for seed in each:
            self._one.reset(seed=int(seed))
            starts.append(self._one.state[:, 0])
        self._all.state = np.stack(starts, axis=1)[:, place]
        observations: Array = self._all.state.T.astype(np.float32)
        return observations

    def step(self, which: Array, actions: Array) -> tuple[Array, Array, Array]:
        """As `Group.step`."""
        self._actions[which] = actions
        observations, rewards, terminated, truncated, _ = self._all.step(self._actions)
        return observations.take(which, axis=0), rewards[which], (terminated | truncated)[which]

    def close(self) -> None:
        """Close the vector environment."""
        self._all.close()
        self._one.close()
