"""Gymnasium's environments as a task, stepped on the host for all members at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardes import ESState, Perturbation, ShardedES
from shardes.tasks.errors import TaskError
from shardes.tasks.gymnasium.episodes import Environments, Seen, failures, steps
from shardes.tasks.gymnasium.native import Vector
from shardes.tasks.gymnasium.spaces import actions_of
from shardes.tasks.gymnasium.stepping import Group
from shardes.tasks.gymnasium.workers import Workers
from shardes.tasks.headless import headless, undrawable
from shardes.tasks.policy import MLP
from shardes.tasks.rendering import checked, write
from shardes.tasks.statistics import Statistics
from shardes.tasks.task import LARGEST_RETURN, Spec, Task, Trajectory

__all__ = ["GymnasiumTask"]

_WORTH_WORKERS = 32
"""Environments from which on processes are worth their messages."""


class GymnasiumTask(Task):
    """The task that `make` makes.

    Between generations it keeps one environment for every episode of every member of this process, and the workers
    that step them, until `close`, another population size, or its own end.
    """

    on_host = True

    def __init__(
        self,
        spec: Spec,
        policy: MLP,
        episodes: int,
        registered: Any,
        options: dict[str, Any],
        wrappers: Sequence[Callable[[Any], Any]],
        action_space: Any,
        metadata: dict[str, Any],
        vectorization: str | None,
    ) -> None:
        super().__init__(spec, policy, episodes)
        self._made_of = (registered, options, tuple(wrappers))
        self._action_space = action_space
        self._metadata = metadata
        self._vectorization = vectorization
        self._kept: tuple[int, Environments] | None = None
        # Of this instance, so that what it compiled goes when it goes.
        self._act = jax.vmap(policy, in_axes=(None, 0))
        self._act_alone = jax.jit(self._act)
        self._with_seen = jax.jit(self._with_seen_eagerly, static_argnums=0)

    def play(self, es: ShardedES, state: ESState, pert: Perturbation, key: jax.Array) -> tuple[Any, ESState]:
        """Losses of shape (n, episodes), and the state with the statistics of all that was seen."""
        members = es.local_members.size
        count, size = members * self.episodes, self.spec.observation_size
        returns = np.zeros(count)
        seen = Seen(count, size) if self.policy.normalize else None
        apply = es.apply(self._act, state, pert, in_axes=(0,), local=True)

        def act(observations: Any) -> Any:
            return actions_of(self._action_space, apply(observations.reshape(members, self.episodes, size)))

        if count:
            seeds = np.tile(_seeds(key, self.episodes), members)
            for step in self._steps(count, act, seeds):
                returns[step.which] += step.rewards
                if seen is not None:
                    seen.add(step.which, step.observations)
        # What float32 cannot hold is the best there is, rather than lost.
        returns = returns.clip(-LARGEST_RETURN, LARGEST_RETURN).astype(np.float32)
        losses = es.gather(-returns.reshape(members, self.episodes))
        if seen is None:
            return losses, state
        # From all processes and in the order of members, so that all add up in one order, however many there are.
        everything = [
            es.gather(x.astype(np.float32).reshape(members, self.episodes, *x.shape[1:])).reshape(-1, *x.shape[1:])
            for x in (seen.count, seen.mean, seen.squares)
        ]
        return losses, state._replace(params=self._with_seen(es.mesh, state.params, everything))

    def rollout(self, params: Any, key: jax.Array) -> Trajectory:
        """One episode of one policy."""
        with failures(self.spec.name):
            alone = Group(*self._made_of, count=1)
        return self._trajectory(params, key, alone, lambda: None)

    def render(self, params: Any, key: jax.Array, path: str | os.PathLike[str]) -> Path:
        """Write one episode of one policy, a frame after every step, GIF or MP4 by the path's end."""
        registered, options, wrappers = self._made_of
        if "rgb_array" not in self._metadata.get("render_modes", ()):
            raise TaskError(f"{self.spec.name} draws no pictures: it has no render mode rgb_array.")
        target, frames = checked(path), list[Any]()
        with headless(), failures(self.spec.name):
            alone = Group(registered, {**options, "render_mode": "rgb_array"}, wrappers, count=1)
            environment = alone.environments[0]
            self._trajectory(params, key, alone, lambda: frames.append(self._picture(environment)))
        return write(target, frames, self._metadata.get("render_fps") or 30)

    def close(self) -> None:
        """End the workers and close the environments. A later generation makes new ones."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _steps(self, count: int, act: Callable[[Any], Any], seeds: Any) -> Any:
        try:
            yield from steps(self.spec.name, self._environments(count), act, seeds, self.spec.episode_length)
        except BaseException:
            # What has failed or was interrupted is at no known step.
            self.close()
            raise

    def _environments(self, count: int) -> Environments:
        if self._kept is None or self._kept[0] != count:
            self.close()
            with failures(self.spec.name):
                self._kept = count, self._make(count)
        return self._kept[1]

    def _make(self, count: int) -> Environments:
        registered, options, _ = self._made_of
        if self._vectorization == "native":
            return Vector(registered, {**options, "max_episode_steps": self.spec.episode_length}, count)
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        several = cpus > 1 and count >= _WORTH_WORKERS
        if self._vectorization == "async" or (self._vectorization is None and several):
            return Workers(*self._made_of, count=count, processes=min(cpus, count))
        return Group(*self._made_of, count=count)

    def _trajectory(self, params: Any, key: jax.Array, alone: Group, after_step: Callable[[], None]) -> Trajectory:
        params = jax.device_get(params)

        def act(observations: Any) -> Any:
            return actions_of(self._action_space, self._act_alone(params, observations))

        nothing = np.zeros((1, self.spec.observation_size), np.float32)
        taken = [(nothing[:0], jax.tree.map(lambda x: x[:0], act(nothing)), np.zeros(0))]
        try:
            for step in steps(self.spec.name, alone, act, _seeds(key, 1), self.spec.episode_length):
                if step.counts[0]:
                    taken.append((step.observations, step.actions, step.rewards))
                    after_step()
        finally:
            alone.close()
        return Trajectory(*jax.tree.map(lambda *xs: np.concatenate(xs), *taken))

    def _picture(self, environment: Any) -> np.ndarray[Any, Any]:
        try:
            frame = environment.render()
        except Exception as error:
            raise undrawable(self.spec.name, error) from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise TaskError(f"{self.spec.name} draws no pictures: its render gives {type(frame).__name__}.")
        return frame

    def _with_seen_eagerly(self, mesh: Mesh, params: Any, seen: Sequence[jax.Array]) -> Any:
        merged = self.policy.with_seen(params, Statistics(*seen).together())
        return lax.with_sharding_constraint(merged, NamedSharding(mesh, P()))


def _seeds(key: jax.Array, count: int) -> np.ndarray[Any, Any]:
    """A seed for every episode."""
    return np.asarray(jax.random.bits(key, (count,), np.uint32))
