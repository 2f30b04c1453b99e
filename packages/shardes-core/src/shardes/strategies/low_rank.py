"""Rank-r factored noise (EGGROLL): two thin factors a matrix, whose product is never formed."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from shardes import random
from shardes.counts import is_count
from shardes.strategies.base import Strategy
from shardes.structured import StructuredWeight

__all__ = ["LowRank", "LowRankWeight"]


class Factors(NamedTuple):
    """Noise of an (out, in) matrix: `left.T @ right / sqrt(r)` of `left` (r, out) and `right` (r, in)."""

    left: jax.Array
    right: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(eq=False)
class LowRankWeight(StructuredWeight):
    """The matrix `base + left.T @ right`: `base` (out, in), `left` (r, out), `right` (r, in), one dtype."""

    base: jax.Array
    left: jax.Array
    right: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the base."""
        return self.base.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the base."""
        return self.base.dtype

    def apply(self, x: jax.Array) -> jax.Array:
        """`x @ w.T`, the correction added to the activations of the base."""
        return _contract(x, self.base) + _correction(_contract(x, self.right), self.left)

    def rows(self, ids: jax.Array) -> jax.Array:
        """`w[ids]`: the rows of the base, corrected."""
        return self.base[ids] + _correction(jnp.moveaxis(self.left[:, ids], 0, -1), self.right)


def _correction(coefficients: jax.Array, factor: jax.Array) -> jax.Array:
    """`coefficients` (..., r) times `factor` (r, columns), in the dtype of the coefficients."""
    factor = factor.astype(coefficients.dtype)
    if factor.shape[0] == 1:
        # An outer product fuses with the sum that follows; a matrix product over an axis of one does not.
        return coefficients * factor.reshape((1,) * (coefficients.ndim - 1) + factor.shape[1:])
    return lax.dot_general(coefficients, factor, (((coefficients.ndim - 1,), (0,)), ((), ())))


def _contract(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x @ w.T` over the last axis of each, in the dtype to which theirs promote."""
    dtype = jnp.result_type(x, w)
    return lax.dot_general(x.astype(dtype), w.astype(dtype), (((x.ndim - 1,), (1,)), ((), ())))


@dataclasses.dataclass(frozen=True)
class LowRank(Strategy):
    """Rank-`r` noise `A B^T / sqrt(r)` for every matrix, dense noise for every other leaf.

    Models must read their matrices through `shardes.nn.dense` and `shardes.nn.embed`, and must not compute with them
    through `jax.tree` functions, which see the factors apart. arXiv 2511.16652.
    """

    r: int

    def __post_init__(self) -> None:
        if not is_count(self.r):
            raise ValueError(f"r must be an integer of at least 1, got {self.r!r}: the rank of a matrix's noise.")

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Two factors of standard normals for a matrix; standard normals for any other shape."""
        if len(shape) != 2:
            return random.normal(key, shape)
        rows, columns = shape
        return Factors(random.normal(key, (self.r, rows)), random.normal(key, (self.r, columns), self.r))

    def shift(self, weight: jax.Array, noise: Any, scale: jax.Array) -> Any:
        """A `LowRankWeight` for a matrix; the shifted array for any other leaf."""
        if not isinstance(noise, Factors):
            return super().shift(weight, noise, scale)
        left = noise.left * (scale / math.sqrt(self.r))
        return LowRankWeight(weight, left.astype(weight.dtype), noise.right.astype(weight.dtype))

    def contract(self, noise: Any, weights: jax.Array) -> jax.Array:
        """One matrix product over directions and ranks."""
        if not isinstance(noise, Factors):
            return super().contract(noise, weights)
        left = noise.left * (weights / math.sqrt(self.r))[:, None, None]
        return jnp.tensordot(left, noise.right, axes=((0, 1), (0, 1)), precision=lax.Precision.HIGHEST)
