"""Gemma (arXiv 2403.08295): gains of 1 + weight, a scaled embedding, gelu."""

from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.gemma.modeling import generate, logits, nll, read
from shardes.zoo.gemma.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = Architecture(
    model_type="gemma",
    class_name="GemmaForCausalLM",
    config=read,
    tensors=tensors,
    leftovers=LEFTOVERS,
    copies=COPIES,
    logits=logits,
    nll=nll,
    generate=generate,
)
"""Gemma, as the zoo loads it."""
