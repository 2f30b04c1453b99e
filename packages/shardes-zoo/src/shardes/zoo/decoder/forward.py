"""A decoder of any architecture as pure functions: embedding, blocks scanned over stacked layers, last norm, head."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from shardes.nn import dense, embed
from shardes.zoo.decoder.attention import Cache, by_head, grouped_attention, visible
from shardes.zoo.decoder.layers import Attend, Part
from shardes.zoo.decoder.rope import Rope, Rotation, rotate, rotation

__all__ = [
    "Decoder",
    "DecoderConfig",
    "Params",
    "embedded",
    "head",
    "hidden_states",
    "logits",
    "nll",
    "run",
    "turn_at",
]

Params = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """What a decoder must know beside its params. Hashable, so that it can be a static argument of `jax.jit`.

    Attributes:
        vocab_size: rows of the embedding.
        d_model: width of the residual stream.
        n_layers: number of blocks.
        n_heads: number of query heads.
        n_kv_heads: number of key and value heads; each serves `n_heads / n_kv_heads` adjacent query heads.
        head_dim: width of a head.
        d_ff: width of the gated MLP.
        norm_eps: added to the mean square in RMSNorm.
        rope: the rotary embedding.
        tied: whether the embedding is the head too.
        activation: a name in `layers.ACTIVATIONS`.
        biased: names of the projections that have a bias.
        windows: for each layer how many tokens a query sees, None for all; None where no layer has a window.
        embed_scale: factor of the embedding, None for none.
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    norm_eps: float
    rope: Rope
    tied: bool
    activation: str = "silu"
    biased: tuple[str, ...] = ()
    windows: tuple[int | None, ...] | None = None
    embed_scale: float | None = None


class Decoder(NamedTuple):
    """What an architecture does its own way.

    Attributes:
        block: `(x, layer, attend, config)`, one block on x of shape (batch, seq, d); it hands `attend` its queries,
            keys and values, and leaves to it positions, mask and cache.
        norm: `(x, gain, eps)`, the last norm.
    """

    block: Callable[[jax.Array, Part, Attend, DecoderConfig], jax.Array]
    norm: Callable[[jax.Array, jax.Array, float], jax.Array]


class Run(NamedTuple):
    """Activations after the last norm, the filled cache, and the inputs of all layers where they were asked for."""

    x: jax.Array
    cache: Cache | None
    inputs: jax.Array | None


def run(
    params: Params,
    ids: jax.Array,
    config: DecoderConfig,
    decoder: Decoder,
    positions: jax.Array,
    real: jax.Array,
    cache: Cache | None = None,
    slot: jax.Array | None = None,
    keep: bool = False,
) -> Run:
    """Run the blocks over ids of shape (batch, seq).

    Args:
        params: "embed", "blocks" and "norm".
        ids: integers of shape (batch, seq).
        config: the sizes.
        decoder: the block and the last norm.
        positions: (batch or 1, seq), for the rotary embedding.
        real: (batch or 1, slots), true at real tokens. A slot is a token of `ids`, or of the cache where `slot` is
            given.
        cache: is filled with keys and values.
        slot: slot of the cache at which `ids` start, which see what it holds; None to start one, at its first slot.
        keep: whether to return the inputs of all layers, (layers, batch, seq, d).
    """
    turn = turn_at(positions, config)
    queries = lax.iota(jnp.int32, ids.shape[1]) + (0 if slot is None else slot)
    windows = None if config.windows is None else jnp.asarray([w or 2**30 for w in config.windows], jnp.int32)

    def layer(carry: tuple[jax.Array, Cache | None], at: Any) -> tuple[tuple[jax.Array, Cache | None], Any]:
        x, cache = carry
        weights, number, window = at

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            nonlocal cache
            q, k, v = rotate(q, turn), by_head(rotate(k, turn)), by_head(v)
            if cache is not None:
                cache = cache.write(number, 0 if slot is None else slot, k, v)
                if slot is not None:
                    k, v = cache.read(number)
            return grouped_attention(q, k, v, visible(real, queries, window))

        return (decoder.block(x, weights, attend, config), cache), x if keep else None

    each = (params["blocks"].layers, lax.iota(jnp.int32, config.n_layers), windows)
    (x, cache), inputs = lax.scan(layer, (embedded(params, ids, config), cache), each)
    return Run(decoder.norm(x, params["norm"], config.norm_eps), cache, inputs)


def embedded(params: Params, ids: jax.Array, config: DecoderConfig) -> jax.Array:
    """What the first block is given: ids of shape (batch, seq) to (batch, seq, d)."""
    x = embed(params["embed"], ids)
    return x if config.embed_scale is None else x * jnp.asarray(config.embed_scale, x.dtype)


def turn_at(positions: jax.Array, config: DecoderConfig) -> Rotation:
    """Tables that turn heads of shape (batch, seq, heads, head_dim) at positions (batch or 1, seq)."""
    cos, sin = rotation(positions, config.rope)
    return cos[:, :, None], sin[:, :, None]


def head(params: Params, x: jax.Array, config: DecoderConfig) -> jax.Array:
    """Scores of every entry of the vocabulary: (..., d) to (..., vocab_size)."""
    return dense(x, params["embed" if config.tied else "head"])


def _run_plainly(
    params: Params, ids: jax.Array, config: DecoderConfig, decoder: Decoder, mask: jax.Array | None, keep: bool = False
) -> Run:
    real = jnp.ones((1, ids.shape[1]), bool) if mask is None else mask
    return run(params, ids, config, decoder, lax.iota(jnp.int32, ids.shape[1])[None], real, keep=keep)


@partial(jax.jit, static_argnames=("config", "decoder"))
def hidden_states(
    params: Params, ids: jax.Array, config: DecoderConfig, decoder: Decoder, mask: jax.Array | None = None
) -> jax.Array:
    """Inputs of all blocks, then what the last norm gives: (layers + 1, batch, seq, d)."""
    x, _, inputs = _run_plainly(params, ids, config, decoder, mask, keep=True)
    assert inputs is not None
    return jnp.concatenate([inputs, x[None]])


@partial(jax.jit, static_argnames=("config", "decoder"))
def logits(
    params: Params, ids: jax.Array, config: DecoderConfig, decoder: Decoder, mask: jax.Array | None = None
) -> jax.Array:
    """Scores of the next token after each: (batch, seq, vocab_size), in the params' dtype."""
    return head(params, _run_plainly(params, ids, config, decoder, mask).x, config)


@partial(jax.jit, static_argnames=("config", "decoder"))
def nll(
    params: Params, ids: jax.Array, config: DecoderConfig, decoder: Decoder, mask: jax.Array | None = None
) -> jax.Array:
    """Mean over the predicted real tokens of each sequence, (batch,), float32; 0 where there is none."""
    scores = head(params, _run_plainly(params, ids, config, decoder, mask).x[:, :-1], config)
    picked = jnp.take_along_axis(scores, ids[:, 1:, None].astype(jnp.int32), axis=-1)[..., 0].astype(jnp.float32)
    lost = jax.nn.logsumexp(scores.astype(jnp.float32), axis=-1) - picked
    if mask is None:
        return jnp.mean(lost, axis=-1)
    predicted = mask[:, 1:] & mask[:, :-1]
    count = jnp.maximum(jnp.sum(predicted, axis=-1), 1).astype(jnp.float32)
    return jnp.sum(jnp.where(predicted, lost, 0.0), axis=-1) / count
