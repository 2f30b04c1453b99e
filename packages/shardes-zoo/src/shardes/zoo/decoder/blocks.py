"""The block that most decoders are made of."""

from __future__ import annotations

from collections.abc import Callable

import jax

from shardes.zoo.decoder.forward import DecoderConfig
from shardes.zoo.decoder.layers import Attend, Part, attention, gated_mlp, rms_norm

__all__ = ["pre_norm_block"]


def pre_norm_block(
    x: jax.Array,
    layer: Part,
    attend: Attend,
    config: DecoderConfig,
    norm: Callable[[jax.Array, jax.Array, float], jax.Array] = rms_norm,
) -> jax.Array:
    """Attention and a gated MLP, each behind a norm and beside the residual stream x of shape (batch, seq, d)."""
    part = layer["attention"]
    x = x + attention(norm(x, part["norm"], config.norm_eps), part, attend, config.head_dim)
    part = layer["mlp"]
    return x + gated_mlp(norm(x, part["norm"], config.norm_eps), part, config.activation)
