"""Qwen2's config, and its functions."""

from __future__ import annotations

from shardes.zoo.blocks import pre_norm_block
from shardes.zoo.decoder import Decoder, DecoderConfig
from shardes.zoo.decoder_config import read_config, read_switched_windows
from shardes.zoo.fields import Fields
from shardes.zoo.language_model import language_model
from shardes.zoo.layers import rms_norm

__all__ = ["DECODER", "generate", "logits", "nll", "read"]


def read(fields: Fields) -> DecoderConfig:
    """The config. Raises CheckpointError."""
    return read_config(fields, biased=("q", "k", "v"), windows=read_switched_windows(fields))


DECODER = Decoder(pre_norm_block, rms_norm)
logits, nll, generate = language_model(DECODER)
