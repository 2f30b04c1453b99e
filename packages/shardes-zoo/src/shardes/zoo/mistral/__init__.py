"""Mistral (arXiv 2310.06825): a sliding window in every layer."""

from shardes.zoo.decoder.language_model import decoder_architecture
from shardes.zoo.mistral.modeling import FUNCTIONS, generate, logits, nll, read
from shardes.zoo.mistral.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = decoder_architecture("mistral", "MistralForCausalLM", read, tensors, FUNCTIONS)
"""Mistral, as the zoo loads it."""
