"""What the zoo knows of an architecture: how its config is read, its tensors are named, and its model is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from shardes.zoo.fields import Fields

__all__ = ["Architecture", "Tensor"]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A leaf of the params and the tensors of a checkpoint that it comes from.

    Attributes:
        leaf: keys from the root of the params, such as ("blocks", "q"); "blocks" holds a `shardes.Stacked` dict.
        name: name in the checkpoint; where the leaf is stacked, "{}" in it stands for the number of the layer.
        shape: shape of the tensor, that of one layer where the leaf is stacked.
        layers: number of layers of a stacked leaf, None for any other.
    """

    leaf: tuple[str, ...]
    name: str
    shape: tuple[int, ...]
    layers: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all the tensors of the leaf, layer by layer."""
        return (self.name,) if self.layers is None else tuple(self.name.format(i) for i in range(self.layers))


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One architecture of the zoo, as plain functions.

    Attributes:
        model_type: what `model_type` in config.json says.
        class_name: the entry of `architectures` in config.json.
        config: the model's config, hashable, from the checked fields of config.json. Raises CheckpointError.
        tensors: every tensor that a checkpoint of this config must hold, no other being allowed.
        leftovers: regular expressions of the names of tensors that real checkpoints hold and no model needs.
        copies: names of tensors that a checkpoint may hold beside those of the model, each with the name of the one
            that it must equal.
        logits: `(params, ids, config, mask=None)`, None where the model is not one of tokens; so are the next two.
        nll: `(params, ids, config, mask=None)`.
        generate: `(params, ids, config, *, mask, max_new_tokens, ...)`.
        config_json: the fields from which `config` would read a config, beside `model_type` and `architectures`; None
            where a config.json has more to say than the config holds, and is kept as it came.
    """

    model_type: str
    class_name: str
    config: Callable[[Fields], Any]
    tensors: Callable[[Any], tuple[Tensor, ...]]
    leftovers: tuple[str, ...] = ()
    copies: tuple[tuple[str, str], ...] = ()
    logits: Callable[..., Any] | None = None
    nll: Callable[..., Any] | None = None
    generate: Callable[..., Any] | None = None
    config_json: Callable[[Any], dict[str, Any]] | None = None
