"""The dtype in which small changes to a weight are not lost."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

__all__ = ["at_least_float32"]


def at_least_float32(dtype: Any) -> Any:
    """float32 for a narrower float dtype, else the dtype itself."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)
