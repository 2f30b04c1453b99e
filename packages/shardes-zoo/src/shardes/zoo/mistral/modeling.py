"""Mistral's config, and its functions."""

from __future__ import annotations

from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.config import read_config, read_windows
from shardes.zoo.decoder.forward import Decoder, DecoderConfig
from shardes.zoo.decoder.language_model import language_model
from shardes.zoo.decoder.layers import rms_norm
from shardes.zoo.fields import Fields

__all__ = ["DECODER", "FUNCTIONS", "generate", "logits", "nll", "read"]


def read(fields: Fields) -> DecoderConfig:
    """The config; `sliding_window` is 4096 if absent, and null turns it off. Raises CheckpointError."""
    window = fields.integer("sliding_window", None) if "sliding_window" in fields.values else 4096
    return read_config(fields, windows=read_windows(fields, window))


DECODER = Decoder(pre_norm_block, rms_norm)
FUNCTIONS = language_model(DECODER)
logits, nll, generate = FUNCTIONS
