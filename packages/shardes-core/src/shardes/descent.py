"""From fitness to weights, and from a gradient to new params."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from shardes.leaves import Leaves
from shardes.shaping import Shaping
from shardes.state import Optimizer

__all__ = ["descend", "shaped"]


def shaped(shaping: Shaping, fitness: jax.Array, finite: jax.Array) -> jax.Array:
    """The weight of every member, (n,); what is not finite counts as the worst of its generation, or of its group."""
    worst = jnp.max(jnp.where(finite, fitness, -jnp.inf), axis=0, keepdims=True)
    worst = jnp.where(jnp.isfinite(worst), worst, 0)
    weights = jnp.asarray(shaping(jnp.where(finite, fitness, worst)))
    n = fitness.shape[0]
    if weights.shape != (n,):
        raise ValueError(
            f"shaping must return one weight a member, shape ({n},), got {weights.shape} for fitness of shape "
            f"{fitness.shape}."
        )
    return weights


def descend(
    optimizer: Optimizer | None,
    leaves: Leaves,
    masters: list[Any],
    gradient: list[Any],
    opt_state: Any,
    lr: jax.Array | None,
) -> tuple[list[Any], Any]:
    """The trained leaves after a step down the gradient, and the state of the optimizer, plain SGD without one."""
    if optimizer is None:
        assert lr is not None
        return [m - lr.astype(g.dtype) * g for m, g in zip(masters, gradient, strict=True)], opt_state
    updates, opt_state = optimizer.update(leaves.mask(gradient), opt_state, leaves.mask(masters))
    return [m + u.astype(m.dtype) for m, u in zip(masters, leaves.select(updates), strict=True)], opt_state
