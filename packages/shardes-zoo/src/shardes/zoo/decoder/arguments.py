"""Checks of the arguments that say which tokens there are: ids and mask."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["check_ids", "check_mask"]


def check_ids(ids: Any, vocab_size: int, least: int = 1) -> jax.Array:
    """Ids as an array, of shape (batch, seq).

    Raises:
        ValueError: another shape, fewer than `least` tokens, or an id outside the vocabulary, which is not seen under
            `jax.jit`.
        TypeError: not integers.
    """
    given, ids = ids, jnp.asarray(ids)
    if ids.ndim != 2 or ids.shape[0] < 1 or ids.shape[1] < least:
        raise ValueError(
            f"ids have shape {ids.shape}, and must have shape (batch, seq) with batch at least 1 and seq at least "
            f"{least}. Give one sequence as ids[None]."
        )
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"ids have dtype {ids.dtype}, and must be integers. Cast them: ids.astype(jax.numpy.int32).")
    if (known := _known(given)) is not None and known.size and not 0 <= known.min() <= known.max() < vocab_size:
        raise ValueError(
            f"ids go from {known.min()} to {known.max()}, and must be from 0 to {vocab_size - 1}, the vocabulary of "
            "this model. Use the tokenizer that belongs to it."
        )
    checked: jax.Array = ids
    return checked


def check_mask(mask: Any, ids: jax.Array, left: bool = False) -> jax.Array | None:
    """A mask as booleans, of the shape of the ids; None stays None.

    Raises:
        ValueError: another shape; with `left`, a row that has real tokens and does not end with one, which is not seen
            under `jax.jit`.
        TypeError: neither integers nor booleans.
    """
    if mask is None:
        return None
    given, mask = mask, jnp.asarray(mask)
    if mask.shape != ids.shape:
        raise ValueError(
            f"mask has shape {mask.shape}, and must have that of the ids, {ids.shape}: 1 at real tokens, 0 at padding."
        )
    if not (jnp.issubdtype(mask.dtype, jnp.integer) or mask.dtype == jnp.bool_):
        raise TypeError(f"mask has dtype {mask.dtype}, and must be integers or booleans: 1 at real tokens.")
    if left and (known := _known(given)) is not None and (known.any(axis=1) & (known[:, -1] == 0)).any():
        raise ValueError(
            "mask has a row that ends with padding, and generation continues the last token. Pad on the left."
        )
    real: jax.Array = mask.astype(bool)
    return real


def _known(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of an array, None where it is traced or lies on other hosts."""
    if isinstance(x, jax.core.Tracer) or (isinstance(x, jax.Array) and not x.is_fully_addressable):
        return None
    return np.asarray(x)
