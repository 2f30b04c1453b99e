"""The checks of what an evolution strategy is made of and given."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from shardes.counts import is_count
from shardes.mesh import POPULATION
from shardes.state import ESState, Perturbation
from shardes.strategies import Strategy

__all__ = ["check_arguments", "check_perturbation", "check_state", "checked_fitness"]


def check_arguments(
    strategy: Any,
    n: Any,
    sigma: Any,
    lr: Any,
    optimizer: Any,
    mesh: Any,
    shaping: Any,
    how: Any,
    member_chunk: Any,
    compute_dtype: Any,
    freeze: Any,
) -> None:
    """Raise TypeError or ValueError, saying what is needed, for an argument that `shardes.ShardedES` does not take."""
    if not isinstance(strategy, Strategy):
        raise TypeError(
            f"strategy must be a shardes.Strategy, got {strategy!r}. Pass an instance, such as LowRank(r=1)."
        )
    if strategy.chunk is not None and not is_count(strategy.chunk):
        raise ValueError(
            f"chunk of {strategy!r} must be an integer of at least 1 or None, got {strategy.chunk!r}: the directions "
            "held at once."
        )
    if not is_count(n):
        raise ValueError(f"n must be an integer of at least 1, got {n!r}: the members of a generation.")
    if n % len(strategy.signs):
        raise ValueError(
            f"n must be a multiple of {len(strategy.signs)} for {strategy!r}, whose directions are shared by that "
            f"many members, got {n}. Use n={n + 1} or a strategy that is not mirrored."
        )
    if (lr is None) == (optimizer is None):
        given = "neither" if lr is None else "both"
        raise ValueError(f"Give lr, for plain SGD, or optimizer, and not both; got {given}.")
    if lr is not None and not callable(lr) and not (_is_number(lr) and lr >= 0):
        raise ValueError(
            f"lr must be a finite number of at least 0 or a schedule, got {lr!r}. To maximise, return the negative."
        )
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(f"optimizer must have init and update, as optax's have, got {optimizer!r}.")
    if not callable(sigma) and not _is_sigma(sigma):
        raise ValueError(f"sigma must be finite and above 0 in float32, one number or one a leaf, got {sigma!r}.")
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a jax.sharding.Mesh, got {mesh!r}. Use shardes.make_mesh().")
    if POPULATION not in mesh.axis_names:
        raise ValueError(
            f'The mesh has axes {mesh.axis_names} and needs one named "{POPULATION}". Use shardes.make_mesh().'
        )
    if any(kind != AxisType.Auto for kind in mesh.axis_types):
        raise ValueError(
            f"The mesh has axes of types {mesh.axis_types} and needs them Auto, so that models need not name "
            "shardings. Use shardes.make_mesh(), or pass axis_types to jax.make_mesh."
        )
    if how not in ("A", "B", "auto"):
        raise ValueError(f'how must be "A", "B" or "auto", got {how!r}.')
    if member_chunk is not None and not is_count(member_chunk):
        raise ValueError(f"member_chunk must be an integer of at least 1 or None, got {member_chunk!r}.")
    if not callable(shaping):
        raise TypeError(f"shaping must be a function such as shardes.shaping.centered_ranks, got {shaping!r}.")
    if compute_dtype is not None and not jnp.issubdtype(compute_dtype, jnp.floating):
        raise ValueError(f"compute_dtype must be a float dtype, got {compute_dtype!r}.")
    if freeze is not None and not callable(freeze):
        raise TypeError(f'freeze must be a function of a path, such as lambda path: "norm" in path, got {freeze!r}.')


def check_state(state: Any) -> None:
    """Raise TypeError unless it is a state."""
    if not isinstance(state, ESState):
        raise TypeError(f"state must be an ESState, as init, ask and tell give it, got {type(state).__name__}.")


def check_perturbation(pert: Any, strategy: Strategy, n: int, with_lr: bool) -> None:
    """Raise TypeError or ValueError unless it is a perturbation of such an evolution strategy."""
    if not isinstance(pert, Perturbation):
        raise TypeError(f"pert must be a Perturbation, as ask gives it, got {type(pert).__name__}.")
    if (pert.strategy, pert.n) != (strategy, n) or (pert.lr is not None) != with_lr:
        raise ValueError(
            f"The perturbation is one of {pert.strategy!r} with n={pert.n}, and this ES is {strategy!r} with n={n} and "
            f"{'an lr' if with_lr else 'an optimizer'}. Ask this ES for one."
        )


def checked_fitness(given: Any, n: int) -> jax.Array:
    """The fitness of `n` members. Raises TypeError or ValueError for what is none."""
    if given is None or isinstance(given, tuple | dict):
        kind = type(given).__name__
        raise TypeError(f"fitness must be an array, got {kind}. Return the loss, and nothing beside it.")
    fitness = jnp.asarray(given)
    if not jnp.issubdtype(fitness.dtype, jnp.floating):
        raise TypeError(f"fitness must be float32 or wider, got {fitness.dtype}. Return a float loss.")
    if jnp.finfo(fitness.dtype).bits < 32:
        raise TypeError(
            f"fitness must be float32 or wider, got {fitness.dtype}: below it a population's losses collapse to a few "
            "ties. Reduce the loss in float32."
        )
    if fitness.ndim not in (1, 2) or fitness.shape[0] != n or fitness.shape[-1] == 0:
        raise ValueError(f"fitness must have shape (n,) or (n, groups) with n={n}, got {fitness.shape}.")
    return fitness


_TINY = float(np.finfo(np.float32).tiny)
_HUGE = float(np.finfo(np.float32).max)


def _is_number(value: Any) -> bool:
    """Whether a value is one real number that is finite in float32."""
    try:
        return not isinstance(value, str | bool) and np.ndim(value) == 0 and bool(abs(float(value)) <= _HUGE)
    except (TypeError, ValueError):
        return False


def _is_sigma(value: Any) -> bool:
    """Whether a value is one number above 0, or a tree of them."""
    scales = jax.tree.leaves(value)
    return bool(scales) and all(_is_number(scale) and scale >= _TINY for scale in scales)
