"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): biases on queries, keys and values."""

from shardes.zoo.decoder.language_model import decoder_architecture
from shardes.zoo.qwen2.modeling import FUNCTIONS, generate, logits, nll, read
from shardes.zoo.qwen2.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = decoder_architecture("qwen2", "Qwen2ForCausalLM", read, tensors, FUNCTIONS)
"""Qwen2, as the zoo loads it."""
