"""The protocol of a strategy, with dense noise as its default."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp

from shardes.precision import at_least_float32

__all__ = ["Strategy"]


class Strategy(abc.ABC):
    """A perturbation scheme, told leaf by leaf.

    A strategy of your own says what one direction's unit-scale noise of one leaf is (`noise`). Noise that is not an
    array of the leaf's shape also needs `shift` and `contract`. The core draws keys, evaluates both signs, stacks
    layers, freezes leaves, chunks, pads and splits over devices; it calls these three under `vmap`, `scan` and
    `shard_map`, so they must be pure.
    """

    signs: tuple[float, ...] = (1.0,)
    """Signs with which each direction is evaluated, one member a sign."""

    keeps_noise: bool = True
    """Whether noise is kept between ask and tell, or drawn again."""

    chunk: int | None = None
    """Directions a device handles at once: None for all of them, where `member_chunk` does not say otherwise."""

    @abc.abstractmethod
    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """Noise of one leaf for one direction, float32, E[eps eps] = 1 an entry.

        `key` is a threefry key of its own for this leaf, layer, direction and generation. `shape` is the leaf's,
        without stacking axes. Any pytree may be returned.
        """

    def shift(self, weight: jax.Array, noise: Any, scale: jax.Array) -> Any:
        """`weight + scale * noise` in the weight's dtype: an array, or a `StructuredWeight` of the same shape.

        `weight` has the leaf's shape, `scale` is a float32 scalar (sign times sigma).
        """
        shape = getattr(noise, "shape", None)
        if shape != weight.shape:
            raise ValueError(
                f"{type(self).__name__}.noise gave {type(noise).__name__} of shape {shape} for a leaf of shape "
                f"{weight.shape}. Return an array of that shape, or write shift and contract for what it returns."
            )
        wide = at_least_float32(weight.dtype)
        shifted: jax.Array = weight.astype(wide) + (scale * noise).astype(wide)
        return shifted.astype(weight.dtype)

    def contract(self, noise: Any, weights: jax.Array) -> jax.Array:
        """`sum_i weights[i] * noise_i`, float32 of the leaf's shape; `noise` has a leading axis of directions."""
        return jnp.tensordot(weights, noise, axes=1, precision=jax.lax.Precision.HIGHEST)
