"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864): its frequencies, stretched or not, and the turning."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Rope", "Rotation", "default", "linear", "llama3", "rotate", "rotation", "yarn"]

Rotation = tuple[jax.Array, jax.Array]


@dataclasses.dataclass(frozen=True)
class Rope:
    """How far a position turns each pair of a head, and by how much it stretches it.

    Attributes:
        frequencies: radians a position, one for each of the head_dim / 2 pairs.
        scale: factor of cosines and sines.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


def default(head_dim: int, theta: float) -> Rope:
    """Wavelengths from 2 pi to 2 pi theta, in geometric progression."""
    return _rope(_frequencies(head_dim, theta))


def linear(head_dim: int, theta: float, factor: float) -> Rope:
    """Positions divided by a factor (Chen et al. 2023, arXiv 2306.15595)."""
    return _rope(_frequencies(head_dim, theta) / factor)


def llama3(head_dim: int, theta: float, factor: float, low: float, high: float, original: int) -> Rope:
    """Long wavelengths stretched by a factor, short ones left, those between blended, as Llama 3.1 does.

    Long means fewer than `low` turns in `original` positions, short means more than `high`.
    """
    frequencies = _frequencies(head_dim, theta)
    turns = original * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return _rope(frequencies * (kept + (1 - kept) / factor))


def yarn(
    head_dim: int,
    theta: float,
    factor: float,
    original: int,
    *,
    scale: float | None = None,
    fast: float = 32.0,
    slow: float = 1.0,
    truncate: bool = True,
) -> Rope:
    """YaRN (Peng et al. 2023, arXiv 2309.00071): as `llama3`, but the blend is linear in the number of the pair.

    Pairs of fewer than `slow` turns in `original` positions are stretched, those of more than `fast` are left; with
    `truncate` both bounds are rounded outward to whole pairs. `scale` defaults to 0.1 ln(factor) + 1.
    """

    def pair(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair(fast), pair(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    # Where the bounds meet, the blend is a step.
    stretched = np.clip((np.arange(head_dim // 2) - first) / ((last - first) or 1e-3), 0, 1)
    if scale is None:
        scale = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    return _rope(_frequencies(head_dim, theta) * (1 - stretched + stretched / factor), scale)


def rotation(positions: jax.Array, rope: Rope) -> Rotation:
    """Cosines and sines of shape (*positions.shape, head_dim / 2), float32, for integer positions."""
    angles = positions.astype(jnp.float32)[..., None] * jnp.broadcast_to(
        jnp.asarray(rope.frequencies, jnp.float32), (*positions.shape, len(rope.frequencies))
    )
    return jnp.cos(angles) * rope.scale, jnp.sin(angles) * rope.scale


def rotate(x: jax.Array, turn: Rotation) -> jax.Array:
    """Turn heads of shape (..., head_dim), a pair being the same entry of the two halves.

    The tables of `turn` broadcast to (..., head_dim / 2), and are cast to the heads' dtype.
    """
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = (jnp.broadcast_to(table.astype(x.dtype), first.shape) for table in turn)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _frequencies(head_dim: int, theta: float) -> np.ndarray:
    return theta ** -(np.arange(0, head_dim, 2) / head_dim)


def _rope(frequencies: np.ndarray, scale: float = 1.0) -> Rope:
    return Rope(tuple(float(f) for f in frequencies), scale)
