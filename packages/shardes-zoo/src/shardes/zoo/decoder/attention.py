"""Grouped-query attention under a mask (Ainslie et al. 2023, arXiv 2305.13245), and the cache of keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["Cache", "by_head", "grouped_attention", "visible"]


class Cache(NamedTuple):
    """Keys and values of all layers so far, each of shape (layers, batch, kv heads, slots, head_dim)."""

    k: jax.Array
    v: jax.Array

    @classmethod
    def empty(cls, layers: int, batch: int, kv_heads: int, slots: int, head_dim: int, dtype: Any) -> Cache:
        """A cache of zeros."""
        zeros = jnp.zeros((layers, batch, kv_heads, slots, head_dim), dtype)
        return cls(zeros, zeros)

    def write(self, layer: jax.Array, slot: jax.Array | int, k: jax.Array, v: jax.Array) -> Cache:
        """The cache with a layer's keys and values, (batch, kv heads, seq, head_dim), from a slot on."""
        at = (layer, 0, 0, slot, 0)
        return Cache(*(lax.dynamic_update_slice(old, new[None], at) for old, new in zip(self, (k, v), strict=True)))

    def read(self, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of a layer, (batch, kv heads, slots, head_dim)."""
        k, v = (lax.dynamic_index_in_dim(x, layer, keepdims=False) for x in self)
        return k, v


def by_head(x: jax.Array) -> jax.Array:
    """Heads of shape (batch, seq, heads, head_dim) as (batch, heads, seq, head_dim)."""
    return jnp.moveaxis(x, 1, 2)


def visible(real: jax.Array, queries: jax.Array, window: jax.Array | None) -> jax.Array:
    """Which slots each query sees: (batch, queries, slots), or one entry for the whole batch.

    Args:
        real: (batch or 1, slots), true where a slot holds a real token.
        queries: (queries,), the slots of the queries.
        window: how many slots a query sees, its own included; all up to its own if None.
    """
    slots = lax.iota(jnp.int32, real.shape[-1])
    distance = queries[:, None] - slots[None]
    near = distance >= 0
    if window is not None:
        near &= distance < window
    return real[:, None] & near[None]


def grouped_attention(q: jax.Array, k: jax.Array, v: jax.Array, seen: jax.Array) -> jax.Array:
    """Softmax of scaled scores in float32, times the values; a query that sees nothing takes the mean of all values.

    Args:
        q: (batch, queries, heads, head_dim); adjacent heads share a key and value head.
        k: (batch, kv heads, slots, head_dim).
        v: as `k`.
        seen: as from `visible`.

    Returns:
        (batch, queries, heads, head_dim), in the dtype of `v`.
    """
    batch, queries, n_heads, width = q.shape
    groups, slots = k.shape[1:3]
    # The queries that share a key are rows of one matrix: fewer and larger products.
    q = jnp.moveaxis(q.reshape(batch, queries, groups, -1, width), 1, 3).reshape(batch, groups, -1, width)
    scores = jnp.einsum("bgqd,bgsd->bgqs", q, k, preferred_element_type=jnp.float32) * width**-0.5
    scores = scores.reshape(batch, groups, -1, queries, slots)
    # The least finite number, not -inf: a row of it has a softmax.
    scores = jnp.where(seen[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(v.dtype).reshape(batch, groups, -1, slots)
    mixed = jnp.einsum("bgqs,bgsd->bgqd", weights, v).reshape(batch, groups, -1, queries, width)
    return jnp.moveaxis(mixed, 3, 1).reshape(batch, queries, n_heads, width)
