"""From Gymnasium's spaces to the size of a flat observation, to heads, and from their numbers to actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim

from shardes.tasks import heads
from shardes.tasks.errors import TaskError

__all__ = ["actions_of", "head", "observation_size"]

_FLAT = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def observation_size(space: Any) -> int:
    """Numbers of an observation that `gymnasium.spaces.flatten` has made flat, which makes choices one-hot."""
    _check(space, "Observations", "gymnasium.wrappers.TransformObservation", space)
    return int(flatdim(space))


def head(space: Any) -> heads.Head:
    """The head that acts in a space."""
    _check(space, "Actions", "gymnasium.wrappers.TransformAction", space)
    return _head(space)


def actions_of(space: Any, batch: Any) -> Any:
    """Batches of what a head puts out, as one batch of actions that the space contains, of its dtypes."""
    if isinstance(space, spaces.Dict):
        return {name: actions_of(part, batch[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(actions_of(part, batch[i]) for i, part in enumerate(space.spaces))
    batch = np.asarray(batch)
    if isinstance(space, spaces.Box):
        # Bounds of float64 may lie between two numbers of float32.
        batch = np.clip(batch, space.low, space.high)
    return batch.astype(space.dtype).reshape(-1, *space.shape)


def _head(space: Any) -> heads.Head:
    if isinstance(space, spaces.Dict):
        return heads.Each({name: _head(part) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return heads.Each([_head(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete):
        return heads.Discrete(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return heads.MultiDiscrete(space.nvec, space.start)
    if isinstance(space, spaces.MultiBinary):
        return heads.MultiBinary(space.shape)
    # What float32 cannot hold is without a bound for it.
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return heads.Box(low, high, _at_most_32_bits(space.dtype))


def _at_most_32_bits(dtype: Any) -> Any:
    """The dtype that JAX has for a dtype of numpy's."""
    if np.dtype(dtype).itemsize <= 4:
        return dtype
    return np.int32 if np.issubdtype(dtype, np.integer) else np.float32


def _check(space: Any, what: str, wrapper: str, whole: Any) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            _check(part, what, wrapper, whole)
    elif not isinstance(space, _FLAT):
        raise TaskError(
            f"{what} are of {whole}, and {type(space).__name__} is not an array of numbers of one shape. They must be "
            f"of Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these: use {wrapper} in `wrappers`."
        )
