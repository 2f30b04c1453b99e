"""Shaping: from the fitness of a generation to the weight of each member in the update.

A shaping is any function from float32 fitness, (n,) or (n, groups), lower is better and all finite, to n weights. A
positive weight pushes the params away from a member. Scores of several episodes, columns, are averaged first, but for
`group_relative`, which reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["Shaping", "centered", "centered_ranks", "group_relative", "none", "z_score"]

Shaping = Callable[[jax.Array], jax.Array]


def none(fitness: jax.Array) -> jax.Array:
    """The fitness itself."""
    return fitness if fitness.ndim == 1 else fitness.mean(axis=1)


def centered(fitness: jax.Array) -> jax.Array:
    """Fitness less the mean of the population; exactly zero when all are equal."""
    return _deviations(none(fitness))


def centered_ranks(fitness: jax.Array) -> jax.Array:
    """Ranks spread evenly over [-1/2, 1/2], ties sharing their mean rank (Salimans et al. 2017)."""
    values = none(fitness)
    values = jnp.where(values == 0, jnp.zeros_like(values), values)  # -0.0 ties with 0.0
    ordered = jnp.sort(values)
    below = jnp.searchsorted(ordered, values, side="left")
    through = jnp.searchsorted(ordered, values, side="right")
    twice_rank = (below + through - 1).astype(values.dtype)
    return twice_rank / (2 * max(values.size - 1, 1)) - (0.5 if values.size > 1 else 0.0)


def z_score(fitness: jax.Array) -> jax.Array:
    """Fitness less its mean, divided by its standard deviation over the population; zero when all are equal."""
    return _standardized(none(fitness))


def group_relative(fitness: jax.Array) -> jax.Array:
    """Scores of shape (n, groups), each group centred on its mean, divided by the standard deviation of them all.

    A group is a prompt or an episode that every member met: groups that are hard for all do not drown the others. The
    mean over groups is the weight (EGGROLL, arXiv 2511.16652).
    """
    if fitness.ndim != 2:
        raise ValueError(
            f"group_relative needs fitness of shape (n, groups), got {fitness.shape}. Return one score a group from "
            "the loss, or use z_score."
        )
    return _standardized(fitness).mean(axis=1)


def _deviations(values: jax.Array) -> jax.Array:
    """Less the mean over members; offset first, so that equal values give exact zeros."""
    offset = values - values[:1]
    return offset - offset.mean(axis=0, keepdims=True)


def _standardized(values: jax.Array) -> jax.Array:
    """Deviations divided by their root mean square, scaled so that no value is too large or too small for it."""
    # A power of two scales without rounding: equal values stay equal, however their difference is compiled.
    half = 2.0 ** (jnp.finfo(values.dtype).maxexp // 2)
    deviations = _deviations(jnp.where(jnp.max(jnp.abs(values)) > half, values * (1 / half), values))
    largest = jnp.max(jnp.abs(deviations))
    scaled = deviations / jnp.where(largest > 0, largest, 1)
    spread = jnp.sqrt(jnp.mean(scaled**2))
    return scaled / jnp.where(spread > 0, spread, 1)
