"""Llama's config, and its functions."""

from __future__ import annotations

from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.config import read_config, read_windows
from shardes.zoo.decoder.forward import Decoder, DecoderConfig
from shardes.zoo.decoder.language_model import language_model
from shardes.zoo.decoder.layers import rms_norm
from shardes.zoo.fields import Fields

__all__ = ["DECODER", "FUNCTIONS", "generate", "logits", "nll", "read"]


def read(fields: Fields) -> DecoderConfig:
    """The config; `attention_bias` and `mlp_bias` give biases to all projections of a part. Raises CheckpointError."""
    biased: tuple[str, ...] = ()
    if fields.boolean("attention_bias", False):
        biased += ("q", "k", "v", "o")
    if fields.boolean("mlp_bias", False):
        biased += ("gate", "up", "down")
    return read_config(fields, kv_heads=None, biased=biased, windows=read_windows(fields, None))


DECODER = Decoder(pre_norm_block, rms_norm)
FUNCTIONS = language_model(DECODER)
logits, nll, generate = FUNCTIONS
