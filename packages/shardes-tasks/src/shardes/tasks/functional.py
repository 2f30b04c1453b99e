"""Tasks of simulators that are pure functions: whole episodes run inside the jitted generation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardes import ESState, Perturbation, ShardedES
from shardes.tasks.batching import flat
from shardes.tasks.heads import Head
from shardes.tasks.policy import MLP
from shardes.tasks.task import LARGEST_RETURN, Spec, Task, Trajectory

__all__ = ["Functional", "functional"]

Reset = Callable[[jax.Array], tuple[Any, Any]]
Step = Callable[[Any, Any], tuple[Any, Any, jax.Array, jax.Array]]
Draw = Callable[[Sequence[Any]], tuple[Sequence[np.ndarray[Any, Any]], float]]


def functional(
    reset: Reset,
    step: Step,
    *,
    action: Head,
    episode_length: int,
    episodes: int = 1,
    hidden: Sequence[int] = (32, 32),
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh,
    normalize: bool = False,
    name: str = "functional",
    draw: Draw | None = None,
) -> Functional:
    """A task of two pure functions.

    Args:
        reset: `key -> (state, observation)`, both trees of arrays.
        step: `(state, action) -> (state, observation, reward, done)`; reward and done are scalars.
        action: a head of `shardes.tasks.heads`, which says what an action is.
        episode_length: steps after which an episode ends, if `done` has not ended it.
        episodes: of every member in a generation.
        hidden: sizes of the policy's hidden layers.
        activation: after each of them.
        normalize: observations by their running statistics.
        name: of the task.
        draw: `states -> (frames, frames a second)`, of an episode's states; frames are uint8 of shape (height, width,
            3). Without it there is no `render`.
    """
    observation = jax.eval_shape(lambda: _flat(reset(jax.random.key(0))[1]))
    policy = MLP(observation.size, action, hidden=hidden, activation=activation, normalize=normalize)
    spec = Spec(name, episode_length, observation.size, action.size)
    return Functional(spec, policy, episodes, reset, step, draw)


class Functional(Task):
    """The task that `functional` makes.

    A step after an episode's end counts nothing. An observation or a reward that is not finite ends the episode before
    it, so that nothing of it reaches the fitness or the statistics.
    """

    def __init__(
        self, spec: Spec, policy: MLP, episodes: int, reset: Reset, step: Step, draw: Draw | None = None
    ) -> None:
        super().__init__(spec, policy, episodes)
        self._reset = reset
        self._step = step
        self._draw = draw
        self._next = flat(self._simulate)
        self._recorded = jax.jit(self._record, static_argnums=0)

    def play(self, es: ShardedES, state: ESState, pert: Perturbation, key: jax.Array) -> tuple[Any, ESState]:
        """Losses of shape (n, episodes), and the state with the statistics of all that was seen."""
        keys = jax.random.split(key, self.episodes)
        returns, seen = es.apply(self._member, state, pert)(keys)
        if seen is not None:
            # On every device, so that all add up in one order, however many there are.
            seen = lax.with_sharding_constraint(seen, NamedSharding(es.mesh, P())).together()
        return -returns, state._replace(params=self.policy.with_seen(state.params, seen))

    def rollout(self, params: Any, key: jax.Array) -> Trajectory:
        """One episode of one policy."""
        return self._trajectory(False, params, key)[0]

    def render(self, params: Any, key: jax.Array, path: str | os.PathLike[str]) -> Path:
        """Write one episode of one policy, GIF or MP4 by the path's end."""
        from shardes.tasks.rendering import checked, write

        if self._draw is None:
            return super().render(params, key, path)
        target = checked(path)
        frames, rate = self._draw(self._trajectory(True, params, key)[1])
        return write(target, frames, rate)

    def _member(self, params: Any, keys: jax.Array) -> tuple[jax.Array, Any]:
        """The return of every episode, and what was seen in all of them."""

        def episode(key: jax.Array) -> tuple[jax.Array, Any]:
            (_, _, _, total, seen), _ = self._episode(params, key, lambda *_: None)
            return total, seen

        returns, seen = jax.vmap(episode)(keys)
        return returns, None if seen is None else seen.together()

    def _episode(self, params: Any, key: jax.Array, record: Callable[..., Any]) -> tuple[Any, Any]:
        simulated, observation = self._reset(key)
        observation = _flat(observation)
        alive = jnp.isfinite(observation).all()

        def step(carry: Any, _: None) -> tuple[Any, Any]:
            simulated, observation, alive, total, seen = carry
            action = self.policy(params, observation)
            after, next_observation, reward, counts, goes_on = self._next(simulated, observation, alive, action)
            recorded = record(simulated, observation, action, reward, counts)
            seen = None if seen is None else seen.with_one(observation, alive)
            # What float32 cannot hold is the best there is, rather than lost.
            total = jnp.clip(total + jnp.where(counts, reward, 0), -LARGEST_RETURN, LARGEST_RETURN)
            return (after, next_observation, goes_on, total, seen), recorded

        carry = (simulated, observation, alive, jnp.float32(0), self.policy.nothing_seen())
        return lax.scan(step, carry, None, length=self.spec.episode_length)

    def _simulate(self, simulated: Any, observation: jax.Array, alive: jax.Array, action: Any) -> Any:
        """A step: state and observation after it, reward, whether it counts, and whether the episode goes on."""
        after, next_observation, reward, done = self._step(simulated, action)
        next_observation, reward = _flat(next_observation), jnp.asarray(reward).astype(jnp.float32)
        counts = alive & jnp.isfinite(next_observation).all() & jnp.isfinite(reward)
        goes_on = counts & ~jnp.asarray(done).astype(bool)
        # What has ended is left where it was: a simulator that broke may be slow, and its numbers are of no use.
        after, next_observation = jax.tree.map(
            lambda new, old: jnp.where(goes_on, new, old), (after, next_observation), (simulated, observation)
        )
        return after, next_observation, reward, counts, goes_on

    def _record(self, with_states: bool, params: Any, key: jax.Array) -> Any:
        def record(simulated: Any, *values: Any) -> Any:
            return simulated if with_states else None, *values

        return self._episode(params, key, record)[1]

    def _trajectory(self, with_states: bool, params: Any, key: jax.Array) -> tuple[Trajectory, list[Any]]:
        """An episode, and where it is asked for the states of the simulator, which may be large, before each step."""
        states, *seen, counts = jax.device_get(self._recorded(with_states, params, key))
        length = int(np.sum(counts))
        taken = [jax.tree.map(lambda x, i=i: x[i], states) for i in range(length)]
        return Trajectory(*jax.tree.map(lambda x: x[:length], seen)), taken


def _flat(observation: Any) -> jax.Array:
    """A tree of numbers as one vector, float32."""
    leaves = [jnp.asarray(x).astype(jnp.float32).reshape(-1) for x in jax.tree.leaves(observation)]
    return jnp.concatenate(leaves)
