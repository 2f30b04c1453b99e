"""Qwen3's config and block, and its functions."""

from __future__ import annotations

import jax

from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.config import read_config, read_switched_windows
from shardes.zoo.decoder.forward import Decoder, DecoderConfig
from shardes.zoo.decoder.language_model import language_model
from shardes.zoo.decoder.layers import Attend, Part, rms_norm
from shardes.zoo.fields import Fields

__all__ = ["DECODER", "FUNCTIONS", "block", "generate", "logits", "nll", "read"]


def read(fields: Fields) -> DecoderConfig:
    """The config; `attention_bias` gives biases to all projections of attention. Raises CheckpointError."""
    biased = ("q", "k", "v", "o") if fields.boolean("attention_bias", False) else ()
    return read_config(fields, head_dim=128, biased=biased, windows=read_switched_windows(fields))


def block(x: jax.Array, layer: Part, attend: Attend, config: DecoderConfig) -> jax.Array:
    """`pre_norm_block`, with a norm over every head of the queries and the keys before they are turned."""
    part = layer["attention"]

    def attend_normed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q = rms_norm(q, part["q_norm"], config.norm_eps)
        return attend(q, rms_norm(k, part["k_norm"], config.norm_eps), v)

    return pre_norm_block(x, layer, attend_normed, config)


DECODER = Decoder(block, rms_norm)
FUNCTIONS = language_model(DECODER)
logits, nll, generate = FUNCTIONS
