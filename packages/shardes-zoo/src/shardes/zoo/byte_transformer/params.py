"""The byte transformer's config.json and tensors."""

from __future__ import annotations

import dataclasses
from typing import Any

from shardes.zoo.architecture import Tensor
from shardes.zoo.byte_transformer.config import BYTES, Config
from shardes.zoo.decoder.config import MOST_LAYERS, MOST_SIZE
from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields

__all__ = ["config_json", "read", "tensors"]


def read(fields: Fields) -> Config:
    """The config: every field of `Config`, by its name. Raises CheckpointError."""
    values = {
        field.name: fields.number(field.name, most=1e12)
        if isinstance(field.default, float)
        else fields.integer(field.name, most=MOST_LAYERS if field.name == "n_layers" else MOST_SIZE)
        for field in dataclasses.fields(Config)
    }
    try:
        return Config(**values)
    except ValueError as error:
        raise CheckpointError(f"{fields.where}: {error}") from None


def config_json(config: Config) -> dict[str, Any]:
    """What `read` reads."""
    return dataclasses.asdict(config)


def tensors(config: Config) -> tuple[Tensor, ...]:
    """Every tensor of a checkpoint, named by its leaf."""
    d, f = config.d_model, config.d_ff
    kv = config.n_kv_heads * config.head_dim
    blocks: dict[str, dict[str, tuple[int, ...]]] = {
        "attention": {"norm": (d,), "q": (d, d), "k": (kv, d), "v": (kv, d), "o": (d, d)},
        "mlp": {"norm": (d,), "gate": (f, d), "up": (f, d), "down": (d, f)},
    }
    return (
        Tensor(("embed",), "embed.weight", (BYTES, d)),
        *(
            Tensor(("blocks", part, leaf), f"blocks.{{}}.{part}.{leaf}.weight", shape, config.n_layers)
            for part, leaves in blocks.items()
            for leaf, shape in leaves.items()
        ),
        Tensor(("norm",), "norm.weight", (d,)),
    )
