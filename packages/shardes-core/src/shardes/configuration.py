"""What an evolution strategy is made of, in words that another process can compare, and the params it starts from."""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from shardes.es import ShardedES

__all__ = ["checksum", "configuration", "difference"]

# Parts of a function or an object that are looked at.
_MOST = 1000


def configuration(es: ShardedES) -> dict[str, str]:
    """What decides the update, by the name of the argument.

    Functions are known by their qualified names and by what they hold: settings of an optimizer, say, but not the code
    of a lambda. Left out is what changes results by rounding at most: the mesh, `how`, `member_chunk`.
    """
    return {
        "strategy": repr(es.strategy),
        "n": str(es.n),
        "sigma": _described(es.sigma),
        "lr": _described(es.lr),
        "optimizer": _described(es.optimizer and es.optimizer.update),
        "shaping": _described(es.shaping),
        "compute_dtype": "None" if es.compute_dtype is None else np.dtype(es.compute_dtype).name,
        "freeze": _described(es.freeze),
        "deterministic": str(es.deterministic),
    }


def difference(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """The first entry in which two descriptions differ, in words; None where they agree."""
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            return f"{name} is {there.get(name)} there, and {here.get(name)} here"
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
    if not callable(value):
        return repr(value) if isinstance(value, int | float | None) else str(jax.tree.map(float, value))
    held = json.dumps(_held(value, set()), sort_keys=True)
    name = _name(value)
    return name if held == json.dumps([name]) else f"{name} of settings {hashlib.sha256(held.encode()).hexdigest()[:8]}"


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _held(value: Any, met: set[int]) -> Any:
    """What a value is made of, in JSON: numbers and arrays, and what functions and objects hold, by their names."""
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return checksum(value)
    if id(value) in met or len(met) == _MOST:
        return "..."
    met.add(id(value))
    if isinstance(value, Mapping):
        return {str(key): _held(one, met) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_held(one, met) for one in value]
    parts: list[Any] = []
    if isinstance(value, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif isinstance(value, types.MethodType):
        parts = [value.__func__, value.__self__]
    elif isinstance(value, types.FunctionType):
        parts = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        parts += [one for one in (value.__defaults__, value.__kwdefaults__) if one]
    elif not isinstance(value, type | types.BuiltinFunctionType | types.ModuleType) and getattr(
        value, "__dict__", None
    ):
        parts = [vars(value)]
    return [_name(value), *(_held(part, met) for part in parts)]
