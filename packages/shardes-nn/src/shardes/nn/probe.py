"""A weight that takes note of what a model does to it, and carries on as the array that it wraps."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import shardes.structured
from shardes import StructuredWeight
from shardes.nn.seams import dense, embed

__all__ = ["Misuse", "Probe", "Recorder"]

_LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (jax, np))
_SEAMS = (os.path.dirname(__file__) + os.sep, str(shardes.structured.__file__))
_NAMESPACES = (("jax.numpy", jnp), ("jax.lax", lax), ("jax.nn", jax.nn), ("jax.numpy.linalg", jnp.linalg))


class Misuse(NamedTuple):
    """A matrix reached without a seam: the index of its leaf, what was done to it, and where."""

    leaf: int
    operation: str
    file: str
    line: int


class Recorder:
    """Collects misuses. Its identity is part of a probe's tree, so that no jit cache hides a use from it."""

    def __init__(self) -> None:
        self._misuses: dict[Misuse, None] = {}
        self._asked: Misuse | None = None

    @property
    def misuses(self) -> list[Misuse]:
        return list(self._misuses)

    def add(self, misuse: Misuse) -> None:
        self._misuses[misuse] = None

    def asked_for_array(self, misuse: Misuse | None) -> None:
        """JAX looked whether the weight converts to an array (a misuse), or has then converted it (None)."""
        self._asked = misuse

    def refused_by_lax(self) -> Misuse | None:
        """The misuse whose conversion JAX looked for and then refused."""
        asked, self._asked = self._asked, None
        return asked


@jax.tree_util.register_pytree_node_class
class Probe(StructuredWeight):
    """Stands in for the array of leaf number `leaf`."""

    def __init__(self, array: Any, leaf: int, recorder: Recorder) -> None:
        self._array = array
        self._leaf = leaf
        self._recorder = recorder

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._array.shape)

    @property
    def dtype(self) -> Any:
        return self._array.dtype

    def apply(self, x: jax.Array) -> jax.Array:
        return dense(x, self._array)

    def rows(self, ids: jax.Array) -> jax.Array:
        return embed(self._array, ids)

    def refuse(self, operation: str) -> None:
        self._recorder.add(self._misuse(operation))

    def _misuse(self, operation: str) -> Misuse:
        called, file, line = _caller()
        return Misuse(self._leaf, called or operation, file, line)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(jax.Array, name):
            raise AttributeError(f"an array has no attribute {name!r}")
        self.refuse(f".{name}")
        return getattr(self._array, name)

    @property
    def __jax_array__(self) -> Callable[[], Any]:
        # jax.numpy asks for this method and calls it; a primitive of jax.lax asks for it and then refuses the weight.
        misuse = self._misuse("a JAX function")
        self._recorder.asked_for_array(misuse)

        def convert() -> Any:
            self._recorder.asked_for_array(None)
            self._recorder.add(misuse)
            return self._array

        return convert

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        super().__array__(dtype, copy)
        return np.zeros(self.shape, dtype or self.dtype)

    def tree_flatten(self) -> tuple[tuple[Any], tuple[int, Recorder]]:
        return (self._array,), (self._leaf, self._recorder)

    @classmethod
    def tree_unflatten(cls, aux: tuple[int, Recorder], children: tuple[Any]) -> Probe:
        return cls(children[0], *aux)


def _carrying_on(name: str) -> Callable[..., Any]:
    refuse = getattr(StructuredWeight, name)

    def method(self: Probe, *arguments: Any) -> Any:
        refuse(self, *arguments)
        return getattr(self._array, name)(*arguments)

    return method


for _name, _method in vars(StructuredWeight).items():
    if _name.startswith("__") and isinstance(_method, FunctionType) and _name not in vars(Probe):
        setattr(Probe, _name, _carrying_on(_name))


def _caller() -> tuple[str, str, int]:
    """The function of JAX that the user called, if any, and the file and line of the call."""
    called = ""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_LIBRARIES):
            called = _public_names().get(frame.f_code, called)
            if frame.f_code.co_name.startswith("_operator_"):
                called = f"the operator {frame.f_code.co_name.removeprefix('_operator_')}"
        elif not file.startswith(_SEAMS):
            return called, file, frame.f_lineno
        frame = frame.f_back
    return called, "<unknown>", 0


@functools.cache
def _public_names() -> dict[CodeType, str]:
    names = {}
    for prefix, namespace in _NAMESPACES:
        for name, function in vars(namespace).items():
            code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
            if code is not None and not name.startswith("_"):
                names[code] = f"{prefix}.{name}"
    return names
