"""From the numbers that a policy puts out to an action, one class a kind of action space."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

__all__ = ["Box", "Discrete", "Each", "Head", "MultiBinary", "MultiDiscrete"]


class Head(Protocol):
    """Makes an action of `size` numbers, an array of shape (size,)."""

    @property
    def size(self) -> int: ...

    def __call__(self, x: jax.Array) -> Any: ...


class Box:
    """Real actions between bounds, which tanh reaches; as they are where a bound is infinite.

    Args:
        low: lowest action, of the shape of the action.
        high: highest action, of the same shape.
        dtype: of the action.
    """

    def __init__(self, low: ArrayLike, high: ArrayLike, dtype: Any = np.float32) -> None:
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        if self.low.shape != self.high.shape or not (self.low <= self.high).all():
            raise ValueError(f"low is {low} and high is {high}: they must have one shape, and low be at most high.")
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.low.shape)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(self.low.shape).astype(jnp.float32)
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        low, high = np.where(bounded, self.low, 0), np.where(bounded, self.high, 0)
        # Of two sides, since their difference may be more than a float holds.
        share = (jnp.tanh(x) + 1) / 2
        action = jnp.where(bounded, low * (1 - share) + high * share, jnp.clip(x, self.low, self.high))
        if np.issubdtype(self.dtype, np.integer):
            action = jnp.round(action)
        return action.astype(self.dtype)


class Discrete:
    """One of `n` choices, that of the largest number; they are counted from `start`."""

    def __init__(self, n: int, start: int = 0) -> None:
        if n < 1:
            raise ValueError(f"n is {n}, and must be at least 1: the number of choices.")
        self.size = int(n)
        self.start = int(start)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.argmax(x, axis=-1).astype(jnp.int32) + jnp.int32(self.start)


class MultiDiscrete:
    """Several choices at once: of `nvec[i]` each, an array of any shape, counted from `start`."""

    def __init__(self, nvec: ArrayLike, start: ArrayLike = 0) -> None:
        self.nvec = np.asarray(nvec, np.int64)
        if self.nvec.size == 0 or self.nvec.min() < 1:
            raise ValueError(f"nvec is {nvec}, and must hold numbers of choices, each at least 1.")
        self.start = np.broadcast_to(np.asarray(start, np.int32), self.nvec.shape)
        self.size = int(self.nvec.sum())

    def __call__(self, x: jax.Array) -> jax.Array:
        ends = np.cumsum(self.nvec.reshape(-1)).tolist()
        chosen = [
            jnp.argmax(x[end - count : end]) for end, count in zip(ends, self.nvec.reshape(-1).tolist(), strict=True)
        ]
        return jnp.stack(chosen).astype(jnp.int32).reshape(self.nvec.shape) + self.start


class MultiBinary:
    """Yes or no of every number, as int8 of a shape: whether it is above 0."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.size = math.prod(self.shape)

    def __call__(self, x: jax.Array) -> jax.Array:
        return (x > 0).astype(jnp.int8).reshape(self.shape)


class Each:
    """Several actions at once, in a dict or a tuple: each head takes its share of the numbers, in order."""

    def __init__(self, heads: Mapping[str, Head] | Sequence[Head]) -> None:
        self.heads = dict(heads) if isinstance(heads, Mapping) else tuple(heads)
        self._all = list(self.heads.values()) if isinstance(self.heads, dict) else list(self.heads)
        self.size = sum(head.size for head in self._all)

    def __call__(self, x: jax.Array) -> Any:
        ends = np.cumsum([head.size for head in self._all]).tolist()
        actions = [head(x[end - head.size : end]) for head, end in zip(self._all, ends, strict=True)]
        return dict(zip(self.heads, actions, strict=True)) if isinstance(self.heads, dict) else tuple(actions)
