"""What a model is handed in place of a matrix that is never formed: the protocol, and the guard around it."""

from __future__ import annotations

import abc
from typing import Any, NoReturn

import jax

__all__ = ["StructuredWeight", "StructuredWeightError"]


class StructuredWeightError(TypeError):
    """A structured weight was used as if it were an array."""


class StructuredWeight(abc.ABC):
    """A matrix of shape (out, in) known only by what it does to activations.

    A subclass is a pytree whose leaves carry any stacking axes in front, so that `lax.scan` and `vmap` can slice it,
    and it says two things: `apply` and `rows`. `shardes.nn.dense` and `shardes.nn.embed` call them. Everything else
    that an array can do raises `StructuredWeightError`, so that a weight is never densified in silence.
    """

    # numpy arrays defer to the reflected operators below instead of looping over their elements.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix that this stands for, stacking axes in front."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Dtype of the matrix that this stands for."""

    @abc.abstractmethod
    def apply(self, x: jax.Array) -> jax.Array:
        """`x @ w.T`: activations of shape (..., in) to (..., out)."""

    @abc.abstractmethod
    def rows(self, ids: jax.Array) -> jax.Array:
        """`w[ids]`: integer ids of shape (...) to rows of shape (..., in)."""

    @property
    def ndim(self) -> int:
        """Number of axes, stacking axes included."""
        return len(self.shape)

    def refuse(self, operation: str) -> Any:
        """Raise the error of an operation that would need the whole matrix."""
        raise StructuredWeightError(
            f"{operation} needs an array, and this weight of shape {self.shape} is a {type(self).__name__}, which is "
            "never formed. Use shardes.nn.dense(x, w) for x @ w.T and shardes.nn.embed(w, ids) for w[ids]."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and hasattr(jax.Array, name):
            self.refuse(f".{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __jax_array__(self) -> jax.Array:
        return self.refuse("a jax.numpy function")  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.refuse("numpy.asarray(w)")

    def __getitem__(self, index: Any) -> Any:
        return self.refuse("w[...]")

    def __iter__(self) -> Any:
        return self.refuse("iteration over w")

    def __len__(self) -> int:
        return self.refuse("len(w)")  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return self.refuse("bool(w)")  # type: ignore[no-any-return]


def _refusing(name: str, operation: str) -> Any:
    def method(self: StructuredWeight, *_: Any) -> Any:
        return self.refuse(operation)

    method.__name__ = method.__qualname__ = name
    return method


_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "divmod": "divmod", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNARY = {"neg": "-w", "pos": "+w", "abs": "abs(w)", "invert": "~w", "float": "float(w)", "int": "int(w)",
          "complex": "complex(w)", "index": "index(w)", "round": "round(w)", "contains": "in w"}  # fmt: skip

for _name, _symbol in _BINARY.items():
    setattr(StructuredWeight, f"__{_name}__", _refusing(f"__{_name}__", f"w {_symbol} x"))
    setattr(StructuredWeight, f"__r{_name}__", _refusing(f"__r{_name}__", f"x {_symbol} w"))
for _name, _symbol in _COMPARE.items():
    setattr(StructuredWeight, f"__{_name}__", _refusing(f"__{_name}__", f"w {_symbol} x"))
for _name, _operation in _UNARY.items():
    setattr(StructuredWeight, f"__{_name}__", _refusing(f"__{_name}__", _operation))
