"""Gemma's config, norm and block, and its functions."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.config import read_config, read_windows
from shardes.zoo.decoder.forward import Decoder, DecoderConfig
from shardes.zoo.decoder.language_model import language_model
from shardes.zoo.decoder.layers import Attend, Part
from shardes.zoo.fields import Fields

__all__ = ["DECODER", "FUNCTIONS", "block", "generate", "logits", "nll", "norm", "read"]


def read(fields: Fields) -> DecoderConfig:
    """The config; the activation is the tanh form of gelu whatever `hidden_act` says. Raises CheckpointError."""
    fields.text("hidden_act", None, among=("gelu", "gelu_pytorch_tanh"))
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh", among=("gelu_pytorch_tanh",))
    biased = ("q", "k", "v", "o") if fields.boolean("attention_bias", False) else ()
    windows = read_windows(fields, None)
    config = read_config(fields, head_dim=256, tied=True, activation=activation, biased=biased, windows=windows)
    return dataclasses.replace(config, embed_scale=math.sqrt(config.d_model))


def norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """RMSNorm with a gain of 1 + weight, in float32 to the end."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + eps)
    return (wide * scale * jnp.broadcast_to(1 + gain.astype(jnp.float32), x.shape)).astype(x.dtype)


def block(x: jax.Array, layer: Part, attend: Attend, config: DecoderConfig) -> jax.Array:
    """`pre_norm_block` with Gemma's norm."""
    return pre_norm_block(x, layer, attend, config, norm)


DECODER = Decoder(block, norm)
FUNCTIONS = language_model(DECODER)
logits, nll, generate = FUNCTIONS
