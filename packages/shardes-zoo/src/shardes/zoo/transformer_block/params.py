"""The transformer block's config.json and tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardes.zoo.architecture import Tensor
from shardes.zoo.decoder.config import MOST_SIZE
from shardes.zoo.fields import Fields
from shardes.zoo.transformer_block.modeling import MATRICES

__all__ = ["Config", "config_json", "read", "tensors"]


@dataclasses.dataclass(frozen=True)
class Config:
    """The size of a transformer block: the width that all its matrices have."""

    d_model: int = 64


def read(fields: Fields) -> Config:
    """The config. Raises CheckpointError."""
    return Config(fields.integer("d_model", most=MOST_SIZE))


def config_json(config: Config) -> dict[str, Any]:
    """What `read` reads."""
    return dataclasses.asdict(config)


def tensors(config: Config) -> tuple[Tensor, ...]:
    """Every tensor of a checkpoint, named by its leaf."""
    return tuple(Tensor((name,), f"{name}.weight", (config.d_model, config.d_model)) for name in MATRICES)
