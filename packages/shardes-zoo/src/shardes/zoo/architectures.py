"""The architectures of the zoo, and which of them a config.json is of."""

from __future__ import annotations

from shardes.zoo import byte_transformer, gemma, llama, mistral, qwen2, qwen3, transformer_block
from shardes.zoo.architecture import Architecture
from shardes.zoo.fields import Fields

__all__ = ["ARCHITECTURES", "architecture_of"]

ARCHITECTURES: tuple[Architecture, ...] = (
    qwen2.ARCHITECTURE,
    llama.ARCHITECTURE,
    qwen3.ARCHITECTURE,
    mistral.ARCHITECTURE,
    gemma.ARCHITECTURE,
    byte_transformer.ARCHITECTURE,
    transformer_block.ARCHITECTURE,
)
"""Every architecture that the zoo can load."""


def architecture_of(fields: Fields) -> Architecture:
    """The architecture of a config.json, by its `model_type` and its `architectures`; code of a repository never runs.

    Raises:
        CheckpointError: it is none of the zoo's, or the two contradict each other.
    """
    known = {architecture.model_type: architecture for architecture in ARCHITECTURES}
    architecture = known[fields.text("model_type", among=tuple(known))]
    classes = fields.items("architectures", [architecture.class_name])
    if classes != [architecture.class_name]:
        raise fields.error(
            "architectures", f"[{architecture.class_name!r}] for model_type {architecture.model_type}, or left out"
        )
    return architecture
