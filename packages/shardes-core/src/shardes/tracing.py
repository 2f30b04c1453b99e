"""Reading a traced program."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["largest_value"]


def largest_value(program: Any) -> int:
    """Bytes of the largest array that a jaxpr computes, those of its inner jaxprs included."""
    largest = 0
    for equation in program.eqns:
        for variable in equation.outvars:
            largest = max(largest, variable.aval.size * variable.aval.dtype.itemsize)
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                largest = max(largest, largest_value(inner))
    return largest
