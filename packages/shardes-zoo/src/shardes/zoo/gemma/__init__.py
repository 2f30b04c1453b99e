"""Gemma (arXiv 2403.08295): gains of 1 + weight, a scaled embedding, gelu."""

from shardes.zoo.decoder.language_model import decoder_architecture
from shardes.zoo.gemma.modeling import FUNCTIONS, generate, logits, nll, read
from shardes.zoo.gemma.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = decoder_architecture("gemma", "GemmaForCausalLM", read, tensors, FUNCTIONS)
"""Gemma, as the zoo loads it."""
