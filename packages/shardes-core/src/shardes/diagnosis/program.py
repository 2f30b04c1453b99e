"""What a traced loss says of itself: the arrays that it captured, and what it costs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

__all__ = ["Constant", "computes_in", "cost", "large_constants"]

_LARGE = 2**20


@dataclasses.dataclass(frozen=True)
class Constant:
    """An array that a loss captured instead of taking it as an argument."""

    name: str
    """The variable that holds it, of the loss or of its module; empty where it is none of them."""
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


def large_constants(loss: Callable[..., Any], program: Any) -> tuple[Constant, ...]:
    """The arrays of 1 MiB and more in a traced loss, those of its inner programs included, the largest first."""
    found: dict[int, Any] = {}
    for inner in _within(program):
        for value in [*getattr(inner, "consts", ()), *_literals(inner)]:
            if getattr(value, "nbytes", 0) >= _LARGE:
                found[_identity(value)] = value
    names = _variables(loss)
    constants = [
        Constant(names.get(key, ""), tuple(value.shape), str(value.dtype), int(value.nbytes))
        for key, value in found.items()
    ]
    return tuple(sorted(constants, key=lambda constant: -constant.nbytes))


def computes_in(program: Any) -> set[Any]:
    """The float dtypes of what a program computes."""
    dtypes = {
        variable.aval.dtype
        for inner in _within(program)
        for equation in inner.eqns
        for variable in equation.outvars
        if hasattr(variable.aval, "dtype")
    }
    return {jnp.dtype(dtype) for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)}


def cost(program: Any) -> tuple[float | None, bool]:
    """FLOPs of a program by XLA's count, None where the backend has none, and whether they are only a lower bound.

    XLA counts the body of a loop once. Those of `scan`, whose length is known, are counted here as often as they run;
    those of `while` are not.
    """
    total = _xla_flops(program)
    unbounded = any(equation.primitive.name == "while" for inner in _within(program) for equation in inner.eqns)
    return (None if total is None else total + _repeated(program)), unbounded


def _repeated(program: Any) -> float:
    """FLOPs of all rounds of scans but their first."""
    total: float = 0
    for equation in program.eqns:
        rounds = equation.params["length"] if equation.primitive.name == "scan" else 1
        for inner in _inner(equation):
            total += rounds * _repeated(inner)
            if rounds > 1:
                total += (rounds - 1) * (_xla_flops(inner) or 0)
    return total


def _xla_flops(program: Any) -> float | None:
    analysis = jax.jit(core.jaxpr_as_fun(program)).lower(*program.in_avals).cost_analysis()
    flops = analysis.get("flops") if isinstance(analysis, dict) else None
    return None if flops is None or flops < 0 else float(flops)


def _within(program: Any) -> Iterator[Any]:
    """A program and all that it holds."""
    yield program
    for equation in program.eqns:
        for inner in _inner(equation):
            yield from _within(inner)


def _inner(equation: Any) -> list[Any]:
    return [
        value
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns"))
        if hasattr(value, "eqns")
    ]


def _literals(program: Any) -> list[Any]:
    return [atom.val for equation in program.eqns for atom in equation.invars if isinstance(atom, core.Literal)]


def _variables(loss: Callable[..., Any]) -> dict[int, str]:
    """Names of the arrays in the scopes that a function sees, by their identity."""
    function = inspect.unwrap(loss)
    if not inspect.isfunction(function):
        return {}
    scopes = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return {_identity(value): name for name, value in scopes.items() if isinstance(value, jax.Array | np.ndarray)}


def _identity(value: Any) -> int:
    """What an array and the view of it that a traced program holds have in common."""
    return int(value.ctypes.data) if isinstance(value, np.ndarray) else id(value)
