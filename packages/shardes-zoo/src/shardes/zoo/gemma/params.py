"""The tensors of Gemma's checkpoints."""

from __future__ import annotations

from shardes.zoo.architecture import Tensor
from shardes.zoo.decoder.forward import DecoderConfig
from shardes.zoo.decoder.tensors import decoder_tensors

__all__ = ["tensors"]


def tensors(config: DecoderConfig) -> tuple[Tensor, ...]:
    """Every tensor of a checkpoint, and the leaf that it is."""
    return decoder_tensors(config)
