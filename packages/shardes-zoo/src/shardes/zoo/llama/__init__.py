"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783) and what has its shape, such as SmolLM2."""

from shardes.zoo.decoder.language_model import decoder_architecture
from shardes.zoo.llama.modeling import FUNCTIONS, generate, logits, nll, read
from shardes.zoo.llama.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = decoder_architecture("llama", "LlamaForCausalLM", read, tensors, FUNCTIONS)
"""Llama, as the zoo loads it."""
