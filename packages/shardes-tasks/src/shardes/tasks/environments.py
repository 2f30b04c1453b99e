"""Environments of Brax's interface, which Playground shares, as tasks."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardes.tasks.errors import TaskError
from shardes.tasks.functional import Functional, functional
from shardes.tasks.headless import headless, undrawable
from shardes.tasks.heads import Box
from shardes.tasks.names import nearest

__all__ = ["check_name", "imported", "quiet", "task"]

# More than this a GIF cannot show.
_FRAMES_A_SECOND = 50


def task(
    environment: Any,
    *,
    name: str,
    physics: Callable[[Any], Sequence[jax.Array]],
    drawn: Callable[[Any], Any],
    observation: str = "state",
    repeat: int = 1,
    **options: Any,
) -> Functional:
    """The task of an environment whose `reset(key)` and `step(state, action)` give states with obs, reward and done.

    Args:
        environment: it acts between -1 and 1.
        name: of the task.
        physics: the arrays of a state that are finite as long as the simulation is sound; a step after which they are
            not counts nothing.
        drawn: of a state, what `environment.render` takes.
        observation: of several in a dict, the one that the policy sees.
        repeat: simulated steps for an action, of which those after the environment's end count nothing.
        options: of `shardes.tasks.functional`.
    """

    def observed(state: Any) -> Any:
        if not isinstance(state.obs, Mapping):
            return state.obs
        if observation not in state.obs:
            raise TaskError(
                f"{name} has the observations {', '.join(state.obs)}, and {observation!r} is given. Give one of them "
                "as observation."
            )
        return state.obs[observation]

    def reset(key: jax.Array) -> tuple[Any, Any]:
        state = environment.reset(key)
        return state, observed(state)

    def once(state: Any, action: jax.Array) -> tuple[Any, jax.Array]:
        # Environments write into the dicts of the state that they are given.
        state = environment.step(jax.tree.map(lambda x: x, state), action)
        sound = jnp.stack([jnp.isfinite(x).all() for x in physics(state)]).all()
        return state, jnp.where(sound, state.reward, jnp.nan)

    def again(action: jax.Array, carry: tuple[Any, jax.Array], _: None) -> tuple[tuple[Any, jax.Array], None]:
        state, total = carry
        ended = state.done.astype(bool)
        after, reward = once(state, action)
        state = jax.tree.map(lambda old, new: jnp.where(ended, old, new), state, after)
        return (state, total + jnp.where(ended, 0, reward)), None

    def step(state: Any, action: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
        state, reward = once(state, action)
        if repeat > 1:
            (state, reward), _ = lax.scan(lambda *carry: again(action, *carry), (state, reward), None, repeat - 1)
        return state, observed(state), reward, state.done

    def draw(states: Sequence[Any]) -> tuple[Sequence[np.ndarray[Any, Any]], float]:
        seconds = float(environment.dt) * repeat
        every = math.ceil(1 / (seconds * _FRAMES_A_SECOND) - 1e-6)
        try:
            with headless():
                return environment.render([drawn(state) for state in states[::every]]), 1 / (seconds * every)
        except Exception as error:
            raise undrawable(name, error) from error

    bounds = np.ones(environment.action_size, np.float32)
    return functional(reset, step, action=Box(-bounds, bounds), name=name, draw=draw, **options)


def imported(module: str, extra: str) -> Any:
    """A module that an extra of shardes-tasks brings. Raises TaskError when it is missing."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        raise TaskError(f"shardes.tasks.{extra} needs more: pip install 'shardes-tasks[{extra}]'")
    with quiet():
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise TaskError(
                f"shardes.tasks.{extra} cannot import {module}: {error}. Versions that fit together come with: "
                f"pip install --upgrade 'shardes-tasks[{extra}]'"
            ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep stdout for results, and what others warn their own authors of to them."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_name(name: str, names: Sequence[str], suite: str) -> None:
    """Raise a TaskError with the nearest name when there is none of this."""
    if name not in names:
        near = nearest(name, names)
        advice = f"Did you mean {near!r}?" if near else f"There are {', '.join(names)}."
        raise TaskError(f"{suite} has no environment {name!r}. {advice}")
