"""Llama 1 to 3 (arXiv 2302.13971, 2407.21783) and what has its shape, such as SmolLM2."""

from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.llama.modeling import generate, logits, nll, read
from shardes.zoo.llama.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    config=read,
    tensors=tensors,
    leftovers=LEFTOVERS,
    copies=COPIES,
    logits=logits,
    nll=nll,
    generate=generate,
)
"""Llama, as the zoo loads it."""
