"""Qwen3 (arXiv 2505.09388), dense: RMSNorm on every query and key."""

from shardes.zoo.decoder.language_model import decoder_architecture
from shardes.zoo.qwen3.modeling import FUNCTIONS, generate, logits, nll, read
from shardes.zoo.qwen3.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = decoder_architecture("qwen3", "Qwen3ForCausalLM", read, tensors, FUNCTIONS)
"""Qwen3, as the zoo loads it."""
