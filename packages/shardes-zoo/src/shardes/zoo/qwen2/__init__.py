"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): biases on queries, keys and values."""

from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.qwen2.modeling import generate, logits, nll, read
from shardes.zoo.qwen2.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = Architecture(
    model_type="qwen2",
    class_name="Qwen2ForCausalLM",
    config=read,
    tensors=tensors,
    leftovers=LEFTOVERS,
    copies=COPIES,
    logits=logits,
    nll=nll,
    generate=generate,
)
"""Qwen2, as the zoo loads it."""
