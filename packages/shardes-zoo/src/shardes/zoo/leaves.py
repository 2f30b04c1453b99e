"""Whether params are those of a model: its leaves, all of them and no others, each of its shape."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from shardes import StructuredWeight
from shardes.zoo.architecture import Tensor
from shardes.zoo.errors import ZooError

__all__ = ["check_leaves"]


def check_leaves(params: Any, tensors: tuple[Tensor, ...]) -> None:
    """Check the structure and the shapes of params, from what is known while tracing.

    Args:
        params: of arrays, tracers or structured weights.
        tensors: of the model.

    Raises:
        ZooError: a leaf is missing, is not of the model, or has another shape.
    """
    found = dict(
        _shape(path, leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=_is_structured)
    )
    required = dict(_required(tensor) for tensor in tensors)
    if missing := [name for name in required if name not in found]:
        raise ZooError(
            f"params have no {_few(missing)}, which this model needs. Give params structured as model.params."
        )
    if others := [name for name in found if name not in required]:
        raise ZooError(f"params have {_few(others)}, which this model has not. Give params structured as model.params.")
    for name, shape in required.items():
        if found[name] != shape:
            raise ZooError(f"params: {name} has shape {found[name]}, and must have {shape}. Give params of this model.")


def _shape(path: Any, leaf: Any) -> tuple[str, tuple[int, ...]]:
    return jax.tree_util.keystr(path, simple=True, separator="/"), tuple(np.shape(leaf))


def _required(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    if tensor.layers is None:
        return "/".join(tensor.leaf), tensor.shape
    first, *rest = tensor.leaf
    return "/".join((first, "layers", *rest)), (tensor.layers, *tensor.shape)


def _is_structured(leaf: Any) -> bool:
    return isinstance(leaf, StructuredWeight)


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
