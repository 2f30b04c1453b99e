"""Environments of Gymnasium that are pure functions of JAX, inside the jitted generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes.tasks.functional import Functional, functional
from shardes.tasks.gymnasium.spaces import head
from shardes.tasks.headless import headless

__all__ = ["pure"]


def pure(name: str, environment: Any, **options: Any) -> Functional:
    """The task of a `gymnasium.envs.functional_jax_env.FunctionalJaxEnv`; options are those of `functional`.

    Observations are as the functions give them, flat, and not one-hot.
    """
    functions = environment.func_env

    def reset(key: jax.Array) -> tuple[Any, Any]:
        now, later = jax.random.split(key)
        with _promotion():
            state = functions.initial(rng=now)
            return (state, later), functions.observation(state, now)

    def step(at: tuple[Any, jax.Array], action: Any) -> tuple[Any, Any, Any, Any]:
        state, key = at
        now, later = jax.random.split(key)
        with _promotion():
            after = functions.transition(state, action, now)
            reward = jnp.reshape(functions.reward(state, action, after, now), ())
            done = jnp.reshape(functions.terminal(after, now), ())
            # An action of shape (1,) makes such numbers of some that were of none.
            after = jax.tree.map(lambda new, old: jnp.reshape(new, jnp.shape(old)), after, state)
            return (after, later), functions.observation(after, now), reward, done

    def draw(states: Sequence[Any]) -> tuple[list[np.ndarray[Any, Any]], float]:
        frames = []
        with headless():
            renderer = functions.render_init()
            for state, _ in states:
                renderer, frame = functions.render_image(state, renderer)
                frames.append(np.asarray(frame))
            functions.render_close(renderer)
        return frames, environment.metadata.get("render_fps") or 30

    return functional(reset, step, action=head(environment.action_space), name=name, draw=draw, **options)


def _promotion() -> Any:
    """What Gymnasium's functions rely on, though a user may be stricter."""
    return jax.numpy_dtype_promotion("standard")
