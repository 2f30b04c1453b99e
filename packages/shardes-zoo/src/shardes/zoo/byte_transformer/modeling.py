"""Params and forward pass of the byte transformer, as pure functions on the seams."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardes import Stacked
from shardes.nn import dense, embed
from shardes.zoo.byte_transformer.config import Config

__all__ = ["init", "logits", "loss", "nll"]

Params = dict[str, Any]

BYTES = 256


def init(key: jax.Array, config: Config) -> Params:
    """Params of a byte transformer, float32: the embedding, the stacked blocks, and the last norm.

    Every branch starts small beside the residual stream, and the embedding small enough that the first predictions are
    nearly uniform: with rows of unit length, a tied embedding would predict every byte to come again.
    """
    n, d, f = config.n_layers, config.d_model, config.d_ff
    kv = config.n_kv_heads * config.head_dim
    shapes = {"q": (d, d), "k": (kv, d), "v": (kv, d), "o": (d, d), "gate": (f, d), "up": (f, d), "down": (d, f)}
    small = {"o": 0.1, "down": 0.1}
    keys = dict(zip(("embed", *shapes), jax.random.split(key, 1 + len(shapes)), strict=True))

    def matrix(name: str) -> jax.Array:
        scale = small.get(name, 1.0) / math.sqrt(shapes[name][1])
        return scale * jax.random.normal(keys[name], (n, *shapes[name]), jnp.float32)

    def gain(*shape: int) -> jax.Array:
        return jnp.ones(shape, jnp.float32)

    attention = {"norm": gain(n, d), **{name: matrix(name) for name in ("q", "k", "v", "o")}}
    mlp = {"norm": gain(n, d), **{name: matrix(name) for name in ("gate", "up", "down")}}
    return {
        "embed": 0.3 / math.sqrt(d) * jax.random.normal(keys["embed"], (BYTES, d), jnp.float32),
        "blocks": Stacked({"attention": attention, "mlp": mlp}),
        "norm": gain(d),
    }


def logits(params: Params, ids: jax.Array, config: Config) -> jax.Array:
    """Scores of the next byte after each.

    Args:
        params: from `init`, in float32 or bfloat16.
        ids: bytes of shape (..., seq), uint8 or a wider integer dtype.
        config: the model's sizes.

    Returns:
        Logits of shape (..., seq, 256), in the params' dtype.
    """
    rotation = _rotation(ids.shape[-1], config)

    def block(x: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        x = x + _attention(_rms_norm(x, layer["attention"]["norm"], config), layer["attention"], rotation, config)
        x = x + _mlp(_rms_norm(x, layer["mlp"]["norm"], config), layer["mlp"])
        return x, None

    x, _ = lax.scan(block, embed(params["embed"], ids), params["blocks"].layers)
    return dense(_rms_norm(x, params["norm"], config), params["embed"])


def nll(params: Params, ids: jax.Array, config: Config) -> jax.Array:
    """Negative log-likelihood of every sequence given its first byte, in nats a byte.

    Args:
        params: from `init`, in float32 or bfloat16.
        ids: bytes of shape (..., seq), seq at least 2.
        config: the model's sizes.

    Returns:
        Means over the seq - 1 predicted bytes, of shape (...), float32.

    Raises:
        ValueError: a sequence is shorter than two bytes.
    """
    if ids.shape[-1] < 2:
        raise ValueError(f"nll got ids of shape {ids.shape}, and needs sequences of at least two bytes to predict one.")
    scores = logits(params, ids[..., :-1], config).astype(jnp.float32)
    picked = jnp.take_along_axis(scores, ids[..., 1:, None].astype(jnp.int32), axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - picked, axis=-1)


def loss(params: Params, batch: jax.Array, config: Config) -> jax.Array:
    """Mean of `nll` over a batch of bytes of shape (..., seq): a float32 scalar in nats a byte, lower is better."""
    return jnp.mean(nll(params, batch, config))


def _attention(x: jax.Array, layer: Params, rotation: tuple[jax.Array, jax.Array], config: Config) -> jax.Array:
    *lead, seq, _ = x.shape
    groups, width = config.n_kv_heads, config.head_dim
    q = dense(x, layer["q"]).reshape(*lead, seq, groups, -1, width)
    k = dense(x, layer["k"]).reshape(*lead, seq, groups, width)
    v = dense(x, layer["v"]).reshape(*lead, seq, groups, width)
    # The queries that share a key are rows of one matrix: fewer and larger products.
    q = _rotate(jnp.moveaxis(q, -4, -2), rotation).reshape(*lead, groups, -1, width)
    k = _rotate(jnp.moveaxis(k, -3, -2), rotation)
    scores = jnp.einsum("...qd,...kd->...qk", q, k, preferred_element_type=jnp.float32) * width**-0.5
    scores = scores.reshape(*lead, groups, -1, seq, seq)
    future = jnp.where(jnp.tri(seq, dtype=bool), 0.0, -jnp.inf)
    weights = jax.nn.softmax(scores + jnp.broadcast_to(future, scores.shape), axis=-1).astype(x.dtype)
    mixed = jnp.einsum("...qk,...kd->...qd", weights.reshape(*lead, groups, -1, seq), jnp.moveaxis(v, -3, -2))
    mixed = jnp.moveaxis(mixed.reshape(*lead, groups, -1, seq, width), -2, -4)
    return dense(mixed.reshape(*lead, seq, -1), layer["o"])


def _mlp(x: jax.Array, layer: Params) -> jax.Array:
    return dense(jax.nn.silu(dense(x, layer["gate"])) * dense(x, layer["up"]), layer["down"])


def _rms_norm(x: jax.Array, gain: jax.Array, config: Config) -> jax.Array:
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + config.norm_eps)
    return (wide * scale).astype(x.dtype) * jnp.broadcast_to(gain, x.shape)


def _rotation(seq: int, config: Config) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines of shape (seq, head_dim / 2) by which RoPE (Su et al. 2021, arXiv 2104.09864) turns."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(seq, dtype=jnp.float32)[:, None] * frequencies[None]
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(x: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn heads of shape (..., seq, head_dim), a pair being the same entry of the two halves."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = (jnp.broadcast_to(table, first.shape) for table in rotation)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
