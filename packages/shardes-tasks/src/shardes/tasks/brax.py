"""Environments of Brax as tasks, the extra `brax`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from shardes.tasks.environments import check_name, imported, quiet, task
from shardes.tasks.errors import TaskError
from shardes.tasks.functional import Functional

__all__ = ["make", "names"]


def make(
    name: str,
    *,
    episodes: int = 1,
    episode_length: int = 1000,
    hidden: Sequence[int] = (32, 32),
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh,
    normalize: bool = False,
    **options: Any,
) -> Functional:
    """A task of a registered environment, which runs inside the jitted generation.

    An episode ends when the environment is done; nothing resets it. A step whose physics are not finite ends it too,
    and counts nothing.

    Args:
        name: of the environment, such as "ant".
        episodes: of every member in a generation.
        episode_length: steps after which an episode ends, if nothing has ended it.
        hidden: sizes of the policy's hidden layers.
        activation: after each of them.
        normalize: observations by their running statistics.
        options: of the environment, such as `backend`: "generalized" by default, "mjx", "positional" or "spring".

    Raises:
        TaskError: there is no such environment, or it cannot be made.
    """
    check_name(name, names(), "Brax")
    try:
        with quiet():
            environment = _envs().get_environment(name, **options)
    except Exception as error:
        raise TaskError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    return task(
        environment,
        name=name,
        physics=lambda state: (state.pipeline_state.q, state.pipeline_state.qd),
        drawn=lambda state: state.pipeline_state,
        episode_length=episode_length,
        episodes=episodes,
        hidden=hidden,
        activation=activation,
        normalize=normalize,
    )


def names() -> list[str]:
    """Names of the environments. Raises TaskError when Brax is not installed."""
    return sorted(_envs()._envs)


def _envs() -> Any:
    return imported("brax.envs", "brax")
