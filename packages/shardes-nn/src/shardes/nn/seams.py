"""The two places where a model may touch a matrix: the product with activations, and the lookup of rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from shardes import StructuredWeight

__all__ = ["dense", "embed"]


def dense(x: ArrayLike, w: ArrayLike | StructuredWeight) -> jax.Array:
    """The product `x @ w.T` of activations with a matrix.

    Args:
        x: activations of shape (..., in).
        w: a matrix of shape (out, in), an array or a structured weight.

    Returns:
        Activations of shape (..., out), in the dtype to which those of `x` and `w` promote.

    Raises:
        ValueError: `w` does not have two axes, or its last axis is not as long as that of `x`.
    """
    x = jnp.asarray(x)
    shape = _matrix_shape(w, "dense(x, w)", "(out, in)")
    if x.ndim == 0 or x.shape[-1] != shape[1]:
        raise ValueError(
            f"dense(x, w) got x of shape {x.shape} and w of shape {shape}, and needs x of shape (..., in) for w of "
            f"shape (out, in). Give activations whose last axis is {shape[1]}, or store w as its transpose."
        )
    if isinstance(w, StructuredWeight):
        return w.apply(x)
    dtype = jnp.result_type(x, w)
    contract_last = (((x.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(x.astype(dtype), jnp.asarray(w, dtype), contract_last)


def embed(table: ArrayLike | StructuredWeight, ids: ArrayLike) -> jax.Array:
    """The rows `table[ids]` of a matrix.

    Args:
        table: a matrix of shape (entries, d), an array or a structured weight.
        ids: integers of any shape, each below `entries`.

    Returns:
        Rows of shape (*ids.shape, d), in the dtype of `table`.

    Raises:
        ValueError: `table` does not have two axes.
        TypeError: `ids` are not integers.
    """
    ids = jnp.asarray(ids)
    _matrix_shape(table, "embed(table, ids)", "(entries, d)")
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(
            f"embed(table, ids) got ids of dtype {ids.dtype}, and needs integers. Cast them: "
            "ids.astype(jax.numpy.int32)."
        )
    if isinstance(table, StructuredWeight):
        return table.rows(ids)
    return jnp.asarray(table)[ids]


def _matrix_shape(w: ArrayLike | StructuredWeight, call: str, required: str) -> tuple[int, ...]:
    shape = w.shape if isinstance(w, StructuredWeight) else jnp.shape(w)
    if len(shape) != 2:
        raise ValueError(
            f"{call} got a weight of shape {shape}, and needs a matrix of shape {required}. Slice stacked layers with "
            "jax.lax.scan or jax.vmap, and reshape any other weight in the params rather than in the model."
        )
    return shape
