"""Mistral (arXiv 2310.06825): a sliding window in every layer."""

from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.mistral.modeling import generate, logits, nll, read
from shardes.zoo.mistral.params import tensors

__all__ = ["ARCHITECTURE", "generate", "logits", "nll", "read", "tensors"]

ARCHITECTURE = Architecture(
    model_type="mistral",
    class_name="MistralForCausalLM",
    config=read,
    tensors=tensors,
    leftovers=LEFTOVERS,
    copies=COPIES,
    logits=logits,
    nll=nll,
    generate=generate,
)
"""Mistral, as the zoo loads it."""
