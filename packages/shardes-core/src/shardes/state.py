"""What a run carries between generations, and what a generation carries from ask to tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax

from shardes.strategies import Strategy

__all__ = ["ESState", "Optimizer", "Perturbation"]


class Optimizer(Protocol):
    """What an optax gradient transformation looks like; the core does not import optax."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


class ESState(NamedTuple):
    """Everything a run carries from one generation to the next. A pytree of arrays, replicated over the mesh."""

    params: Any
    """The master params: every float leaf at least float32."""
    opt_state: Any
    """State of the optimizer, over the trained leaves; an empty tuple for plain SGD."""
    key: jax.Array
    """The threefry key of the run, uint32 of shape (2,)."""
    generation: jax.Array
    """Generations asked for so far, int32."""
    non_finite: jax.Array
    """Members so far whose fitness was not finite, int32."""
    skipped: jax.Array
    """Generations so far that changed no params, since no fitness was finite or the update was not, int32."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("generation", "key", "sigma", "lr", "noise"),
    meta_fields=("strategy", "n"),
)
@dataclasses.dataclass(frozen=True)
class Perturbation:
    """One generation's perturbation, as ask decided it. Never a batch of params."""

    generation: jax.Array
    """The generation that it is of, int32."""
    key: jax.Array
    """The threefry key of the generation, uint32 of shape (2,)."""
    sigma: Any
    """Sigma at this generation: a float32 scalar, or a params-shaped tree of them."""
    lr: jax.Array | None
    """Learning rate at this generation, float32; None with an optimizer."""
    noise: list[Any] | None
    """Noise of every direction, split over the mesh, where the strategy keeps it."""
    strategy: Strategy
    """The strategy that was asked."""
    n: int
    """Members of the population."""
