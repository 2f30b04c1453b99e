"""The tensors of Qwen3's checkpoints."""

from __future__ import annotations

from shardes.zoo.architecture import Tensor
from shardes.zoo.decoder.forward import DecoderConfig
from shardes.zoo.decoder.tensors import decoder_tensors

__all__ = ["tensors"]


def tensors(config: DecoderConfig) -> tuple[Tensor, ...]:
    """Every tensor of a checkpoint, and the leaf that it is; the norms of queries and keys are one for all heads."""
    shape = (config.head_dim,)
    return decoder_tensors(config, attention={"q_norm": ("q_norm", shape), "k_norm": ("k_norm", shape)})
