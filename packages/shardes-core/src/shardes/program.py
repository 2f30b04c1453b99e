"""A generation as `shardes.fit` runs it: evaluated, told, and put into numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardes import random
from shardes.arguments import check_state
from shardes.es import ShardedES
from shardes.generation import summarize
from shardes.leaves import Leaves
from shardes.placement import How
from shardes.state import ESState, Perturbation

__all__ = ["Program"]

# Counters of the key of a task's episodes, which no leaf has.
_EPISODES = (2**32 - 1, 2**32 - 1)


class Program:
    """The generation of an evolution strategy on a loss or a task, compiled once.

    Called with a state, which is donated, a batch, or nothing where there is none, and whether this process wants the
    run to end, it gives the state, the fitness, and the numbers of `Summary`, with how many devices' processes want
    the end as one more: float32 of shape (6,).
    """

    def __init__(self, es: ShardedES, task: Any) -> None:
        self.es = es
        self.is_of_many = jax.process_count() > 1
        self._flags = (_flag(es, 0), _flag(es, 1)) if self.is_of_many else None
        self._evaluate = _evaluation(es, task)
        self._on_host = bool(getattr(task, "on_host", False))
        self._run = es._placement.program(self._told if self._on_host else self._whole)

    def __call__(self, state: ESState, batch: tuple[Any, ...], wants_end: bool) -> tuple[ESState, Any, jax.Array]:
        flag = None if self._flags is None else self._flags[wants_end]
        if not self._on_host:
            return self._run(state, batch, flag)
        check_state(state)
        pert, state = self.es.ask(state)
        fitness, state = self._evaluate(state, pert, batch)
        return self._run(state, pert, jnp.asarray(fitness), flag)

    def _whole(self, how: How) -> Callable[..., tuple[ESState, jax.Array, jax.Array]]:
        @partial(jax.jit, donate_argnums=0)
        def generation(state: ESState, batch: tuple[Any, ...], flag: Any) -> tuple[ESState, jax.Array, jax.Array]:
            pert, state = self.es.ask(state)
            fitness, state = self._evaluate(state, pert, batch)
            return self._tell(how, state, pert, fitness, flag)

        return generation

    def _told(self, how: How) -> Callable[..., tuple[ESState, jax.Array, jax.Array]]:
        return jax.jit(partial(self._tell, how), donate_argnums=0)

    def _tell(
        self, how: How, state: ESState, pert: Perturbation, fitness: jax.Array, flag: Any
    ) -> tuple[ESState, jax.Array, jax.Array]:
        told = self.es._tell_under[how](state, pert, fitness)
        leaves = Leaves(state.params, self.es.freeze)
        wants_end = jnp.float32(0) if flag is None else jnp.sum(flag)
        numbers = summarize(leaves.select(state.params), leaves.select(told.params), fitness, wants_end)
        return told, fitness, numbers


def _evaluation(es: ShardedES, task: Any) -> Callable[[ESState, Perturbation, tuple[Any, ...]], tuple[Any, ESState]]:
    """The fitness of a population, and the state as the task leaves it."""
    if hasattr(task, "play"):
        return lambda state, pert, batch: task.play(es, state, pert, _episodes(pert), *batch)
    if hasattr(task, "evaluate"):
        return lambda state, pert, batch: (task.evaluate(es, state, pert, _episodes(pert), *batch), state)
    return lambda state, pert, batch: (es.apply(task, state, pert)(*batch), state)


def _episodes(pert: Perturbation) -> jax.Array:
    """The key of a generation's episodes."""
    return jax.random.wrap_key_data(random.fold_in(pert.key, *map(np.uint32, _EPISODES)), impl="threefry2x32")


def _flag(es: ShardedES, value: int) -> jax.Array:
    """A number a device of the mesh, of which each process says its own."""
    numbers = np.full(es.mesh.size, value, np.float32)
    sharding = NamedSharding(es.mesh, P(es.mesh.axis_names))
    return jax.make_array_from_callback(numbers.shape, sharding, lambda index: numbers[index])
