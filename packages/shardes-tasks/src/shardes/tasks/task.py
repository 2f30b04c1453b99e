"""What every task is, whatever simulates it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from shardes import ESState, Perturbation, ShardedES
from shardes.tasks.errors import TaskError
from shardes.tasks.policy import MLP

__all__ = ["LARGEST_RETURN", "Spec", "Task", "Trajectory"]

LARGEST_RETURN = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A task in numbers.

    Attributes:
        name: as its suite calls it.
        episode_length: steps of an episode at most.
        observation_size: numbers of an observation, flattened.
        action_size: numbers that the policy puts out for an action.
    """

    name: str
    episode_length: int
    observation_size: int
    action_size: int


class Trajectory(NamedTuple):
    """One episode, as long as it was, on the host."""

    observations: np.ndarray[Any, Any]
    """What the policy saw before each step, (length, observation_size)."""
    actions: Any
    """What it did, arrays with a leading axis of length."""
    rewards: np.ndarray[Any, Any]
    """What it got for each step, (length,)."""

    @property
    def total(self) -> float:
        """The return: the sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))


class Task:
    """Base of tasks: episodes of a simulator as the fitness of a policy, lower is better.

    Attributes:
        spec: the task in numbers.
        policy: from observation to action.
        episodes: of every member in a generation; all members have the same, and a generation's key chooses them.
        on_host: whether it steps its simulator on the host, so that it cannot be called inside `jax.jit`.
    """

    on_host = False

    def __init__(self, spec: Spec, policy: MLP, episodes: int) -> None:
        if episodes < 1:
            raise ValueError(f"episodes is {episodes}, and must be at least 1.")
        if spec.episode_length < 1:
            raise ValueError(f"episode_length is {spec.episode_length}, and must be at least 1.")
        self.spec = spec
        self.policy = policy
        self.episodes = episodes

    def init(self, key: jax.Array) -> dict[str, Any]:
        """First params of the policy."""
        return self.policy.init(key)

    def evaluate(self, es: ShardedES, state: ESState, pert: Perturbation, key: jax.Array) -> Any:
        """The negated return of every episode of every member, float32 of shape (n, episodes)."""
        return self.play(es, state, pert, key)[0]

    def play(self, es: ShardedES, state: ESState, pert: Perturbation, key: jax.Array) -> tuple[Any, ESState]:
        """What `evaluate` gives, and the state with what the policy has learned of its observations."""
        raise NotImplementedError

    def rollout(self, params: Any, key: jax.Array) -> Trajectory:
        """One episode of one policy, such as `state.params`."""
        raise NotImplementedError

    def render(self, params: Any, key: jax.Array, path: str | os.PathLike[str]) -> Path:
        """Write one episode of one policy as a picture that moves, GIF or MP4 by the path's end.

        Raises:
            TaskError: the simulator draws no pictures, or what draws them is missing.
        """
        raise TaskError(f"{self.spec.name} draws no pictures.")
