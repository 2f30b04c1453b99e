"""The layers that decoders share: a product with an optional bias, RMSNorm, attention's projections, a gated MLP.

A part of a block is a dict of its weights: matrices such as "q" of shape (out, in), biases such as "q_bias", gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from shardes.nn import dense

__all__ = ["ACTIVATIONS", "Attend", "Part", "attention", "gated_mlp", "heads", "linear", "rms_norm"]

Part = Mapping[str, Any]
Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Queries (batch, seq, heads, head_dim), keys and values (batch, seq, kv heads, head_dim) to mixed values."""

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
}
"""Activations by the names that config.json has for them."""


def linear(x: jax.Array, part: Part, name: str) -> jax.Array:
    """`x @ w.T`, and the bias where the part has one."""
    y = dense(x, part[name])
    bias = part.get(f"{name}_bias")
    return y if bias is None else y + jnp.broadcast_to(bias, y.shape)


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467): normalised in float32, cast back, times the gain."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    return (wide * scale).astype(x.dtype) * jnp.broadcast_to(gain, x.shape)


def heads(x: jax.Array, part: Part, name: str, head_dim: int) -> jax.Array:
    """A projection of (batch, seq, d) cut into heads: (batch, seq, heads, head_dim)."""
    y = linear(x, part, name)
    return y.reshape(*y.shape[:-1], -1, head_dim)


def attention(x: jax.Array, part: Part, attend: Attend, head_dim: int) -> jax.Array:
    """Queries, keys and values of (batch, seq, d), what `attend` makes of them, and the product back to d."""
    q, k, v = (heads(x, part, name, head_dim) for name in ("q", "k", "v"))
    return linear(attend(q, k, v).reshape(*x.shape[:-1], -1), part, "o")


def gated_mlp(x: jax.Array, part: Part, activation: str) -> jax.Array:
    """The activated "gate" times "up", through "down" (Shazeer 2020, arXiv 2002.05202)."""
    gate = ACTIVATIONS[activation](linear(x, part, "gate"))
    return linear(gate * linear(x, part, "up"), part, "down")
