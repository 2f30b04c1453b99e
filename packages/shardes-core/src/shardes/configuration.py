"""What an evolution strategy is made of, in words that another process can compare, and the params it starts from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from shardes.es import ShardedES

__all__ = ["checksum", "configuration", "difference"]


def configuration(es: ShardedES) -> dict[str, str]:
    """What decides the update, by the name of the argument. Functions are known by their qualified name alone.

    Left out is what changes results by rounding at most: the mesh, `how`, `member_chunk`.
    """
    return {
        "strategy": repr(es.strategy),
        "n": str(es.n),
        "sigma": _described(es.sigma),
        "lr": _described(es.lr),
        "optimizer": "None" if es.optimizer is None else _described(es.optimizer.update),
        "shaping": _described(es.shaping),
        "compute_dtype": "None" if es.compute_dtype is None else np.dtype(es.compute_dtype).name,
        "freeze": _described(es.freeze),
        "deterministic": str(es.deterministic),
    }


def difference(given: Mapping[str, str], required: Mapping[str, str]) -> str | None:
    """The first entry in which two descriptions differ, as a sentence; None where they agree."""
    for name in sorted({*given, *required}):
        if given.get(name) != required.get(name):
            return f"{name} is {given.get(name)}, and must be {required.get(name)}"
    return None


def checksum(tree: Any) -> str:
    """SHA-256 of a tree's paths, shapes, dtypes and bytes, in hexadecimal."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
    return digest.hexdigest()


def _described(value: Any) -> str:
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, int | float | None):
        return repr(value)
    return str(jax.tree.map(float, value))
