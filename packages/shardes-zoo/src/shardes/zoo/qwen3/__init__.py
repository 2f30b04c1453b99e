"""Qwen3 (arXiv 2505.09388), dense: RMSNorm on every query and key."""

from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.qwen3.modeling import generate, logits, nll, read
from shardes.zoo.qwen3.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = Architecture(
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    config=read,
    tensors=tensors,
    leftovers=LEFTOVERS,
    copies=COPIES,
    logits=logits,
    nll=nll,
    generate=generate,
)
"""Qwen3, as the zoo loads it."""
