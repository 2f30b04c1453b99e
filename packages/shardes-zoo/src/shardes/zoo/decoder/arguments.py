"""Checks of the arguments that say which tokens there are: ids, mask, and single ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["check_ids", "check_mask", "check_token", "check_tokens"]


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


def check_tokens(name: str, value: Any, vocab_size: int) -> tuple[int, ...]:
    """One token id, any iterable or array of them, or None for none.

    Raises:
        ValueError: something else, or an id outside the vocabulary.
    """
    values = value.tolist() if isinstance(value, np.ndarray | jax.Array) and _known(value) is not None else value
    if values is None:
        return ()
    tokens = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else (values,)
    if not all(_is_token(token, vocab_size) for token in tokens):
        raise ValueError(f"{name} is {value!r}, and must be a token id from 0 to {vocab_size - 1}, several, or None.")
    return tuple(int(token) for token in tokens)


def check_token(name: str, value: Any, vocab_size: int) -> int | None:
    """One token id, or None for none.

    Raises:
        ValueError: something else, or an id outside the vocabulary.
    """
    if value is None or _is_token(value, vocab_size):
        return None if value is None else int(value)
    raise ValueError(f"{name} is {value!r}, and must be one token id from 0 to {vocab_size - 1}, or None.")


def _is_token(value: Any, vocab_size: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < vocab_size


def _known(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of an array, None where it is traced or lies on other hosts."""
    if isinstance(x, jax.core.Tracer) or (isinstance(x, jax.Array) and not x.is_fully_addressable):
        return None
    return np.asarray(x)
