"""Counter-based noise: threefry words and normals that depend on a key and a position, and on nothing else.

`jax.random` is exact as well, but its threefry is a rolled loop over whole arrays, and its normal goes through a scalar
`log1p`. Here both are plain elementwise arithmetic, which fuses with whatever consumes the noise.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["bits", "fold_in", "normal", "root_key", "threefry2x32"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_DOMAIN = (0x73686172, 0x64657300)  # "shardes"


@jax.jit  # traced once a shape
def threefry2x32(key: jax.Array, high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011) of the 64-bit counters (high, low).

    `key` is uint32 of shape (2,); the counters are uint32 and broadcast. Returns the two words of each block.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(_PARITY))
    x0, x1 = jnp.broadcast_arrays(high + schedule[0], low + schedule[1])
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def fold_in(key: jax.Array, high: Any, low: Any = 0) -> jax.Array:
    """Keys of the counters (high, low): uint32 of shape (..., 2), independent for different counters."""
    words = threefry2x32(key, jnp.asarray(high).astype(jnp.uint32), jnp.asarray(low).astype(jnp.uint32))
    # Fused into the draws, the keys would be computed for each of them.
    keys: jax.Array = lax.optimization_barrier(jnp.stack(words, axis=-1))
    return keys


def root_key(key: jax.Array) -> jax.Array:
    """The threefry key of a run, uint32 of shape (2,), from one JAX key of any implementation, typed or raw.

    Raises TypeError when `key` is not one key.
    """
    given = f"{type(key).__name__} of shape {getattr(key, 'shape', None)} and dtype {getattr(key, 'dtype', None)}"
    need = f"A key must be one JAX key, got {given}. Pass jax.random.key(0)."
    if not isinstance(key, jax.Array | np.ndarray):
        raise TypeError(need)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    words = jax.random.key_data(key) if typed else jnp.asarray(key)
    if words.dtype != jnp.uint32 or words.ndim != 1 or words.size % 2:
        raise TypeError(need)
    root = words[:2]
    for i in range(2, words.size, 2):
        root = fold_in(root, words[i], words[i + 1])
    # A stream of its own: jax.random folds and splits with counters below 2**32, and callers use their key again.
    return fold_in(root, *_DOMAIN)


def bits(key: jax.Array, shape: tuple[int, ...], start: int = 0) -> jax.Array:
    """Uniform uint32 words of the given shape, from one threefry key (`jax.random.key` of the default kind).

    The entry at (row, column), the leading axes counted as rows from `start`, is a function of the key, row and column
    alone: draws of rows that do not overlap are independent.
    """
    rows = lax.iota(jnp.uint32, int(np.prod(shape[:-1])))[:, None] + np.uint32(start)
    columns = lax.iota(jnp.uint32, shape[-1] if shape else 1)[None, :]
    first, second = threefry2x32(jax.random.key_data(key), rows, columns)
    words: jax.Array = (first ^ second).reshape(shape)
    return words


# Giles (2010), "Approximating the erfinv function", single precision: a polynomial in the centre, one in the tails.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
           -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
         0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


@partial(jax.jit, static_argnums=(1, 2))
def normal(key: jax.Array, shape: tuple[int, ...], start: int = 0) -> jax.Array:
    """Standard normals, float32 of the given shape, from one threefry key, by inversion of 24 uniform bits each.

    None exceeds 5.5 in size; rows are numbered from `start`, as in `bits`. The same function of the
    key under `vmap`, `scan` and any sharding.
    """
    words = lax.bitcast_convert_type(bits(key, shape, start), jnp.int32)
    # A symmetric grid of midpoints in (-1, 1): the mean is exactly zero and neither end is reached.
    u = ((words >> 8).astype(jnp.float32) + jnp.float32(0.5)) * jnp.float32(2.0**-23)
    w = -jnp.log((jnp.float32(1) - u) * (jnp.float32(1) + u))
    centre = w < jnp.float32(5)
    w = jnp.where(centre, w - jnp.float32(2.5), jnp.sqrt(w) - jnp.float32(3))
    series = jnp.zeros_like(w)
    for near, far in zip(_CENTRE, _TAIL, strict=True):
        series = series * w + jnp.where(centre, jnp.float32(near), jnp.float32(far))
    # Drawn once: fused into what consumes it, the noise is computed for each use, and matrix products slow down.
    noise: jax.Array = lax.optimization_barrier(jnp.float32(np.sqrt(2)) * series * u)
    return noise
