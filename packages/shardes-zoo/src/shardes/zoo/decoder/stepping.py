"""A token a step through layers that were taken apart once.

Scanned over stacked layers, a CPU copies every layer's matrices out of their stack before it multiplies by them. At one
token a step that copy takes as long as all the products.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardes.zoo.decoder.attention import Cache, by_head, grouped_attention, visible
from shardes.zoo.decoder.forward import Decoder, DecoderConfig, Params, embedded, turn_at
from shardes.zoo.decoder.rope import rotate

__all__ = ["is_worthwhile", "step", "take_apart"]

_MOST_BYTES = 2**32
_MOST_LAYERS = 64
_FEW_STEPS = 8


def is_worthwhile(params: Params, config: DecoderConfig, steps: int) -> bool:
    """Whether to take layers apart: on a CPU, for more than a few steps, if neither copy nor program is too large."""
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(params["blocks"]))
    small = size <= _MOST_BYTES and config.n_layers <= _MOST_LAYERS
    return jax.default_backend() == "cpu" and small and steps > _FEW_STEPS


def take_apart(stacked: Any, layers: int) -> list[Any]:
    """The subtree of every layer."""
    return [jax.tree.map(lambda x, i=i: lax.index_in_dim(x, i, keepdims=False), stacked) for i in range(layers)]


def step(
    params: Params,
    blocks: list[Any],
    ids: jax.Array,
    config: DecoderConfig,
    decoder: Decoder,
    positions: jax.Array,
    real: jax.Array,
    caches: list[Cache],
    slot: jax.Array,
) -> tuple[jax.Array, list[Cache]]:
    """As `decoder.run` with a slot: activations after the last norm, and the filled caches, one a layer."""
    x = embedded(params, ids, config)
    turn = turn_at(positions, config)
    queries = lax.iota(jnp.int32, ids.shape[1]) + slot
    filled = []
    for number, (weights, cache) in enumerate(zip(blocks, caches, strict=True)):
        window = None if config.windows is None else config.windows[number]

        def attend(q: jax.Array, k: jax.Array, v: jax.Array, cache: Cache = cache, window: Any = window) -> jax.Array:
            k, v = by_head(rotate(k, turn)), by_head(v)
            k, v = (
                lax.dynamic_update_slice_in_dim(old, new, slot, axis=2) for old, new in zip(cache, (k, v), strict=True)
            )
            filled.append(Cache(k, v))
            return grouped_attention(rotate(q, turn), k, v, visible(real, queries, window))

        x = decoder.block(x, weights, attend, config)
    return decoder.norm(x, params["norm"], config.norm_eps), filled
