"""Running statistics of observations, by which a policy normalises what it sees."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

__all__ = ["SQUARABLE", "Statistics"]

_EPSILON = 1e-8
_LARGEST = 10.0
SQUARABLE = 1e15
"""Size from which an observation is left out of statistics: float32 does not hold the sum of such squares."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Statistics:
    """Of some observations, a number a feature, float32 (Welford 1962; Chan et al. 1983)."""

    count: jax.Array
    """How many there were, ()."""
    mean: jax.Array
    """Their mean, (size,)."""
    squares: jax.Array
    """Sum of the squares of their differences to it, (size,)."""

    @classmethod
    def of_nothing(cls, size: int) -> Statistics:
        """Of no observation."""
        return cls(jnp.float32(0), jnp.zeros(size, jnp.float32), jnp.zeros(size, jnp.float32))

    @property
    def variance(self) -> jax.Array:
        """Of the observations, (size,); 1 of none."""
        return jnp.where(self.count > 0, self.squares / jnp.maximum(self.count, 1), 1)

    def normalize(self, observation: jax.Array) -> jax.Array:
        """An observation with mean 0 and variance 1, cut at 10."""
        scaled = (observation - self.mean) * jax.lax.rsqrt(self.variance + jnp.float32(_EPSILON))
        return jnp.clip(scaled, -_LARGEST, _LARGEST)

    def with_one(self, observation: jax.Array, counts: jax.Array) -> Statistics:
        """With one more observation, or as they are where `counts` is false or it is of 1e15 or more."""
        counts = counts & (jnp.abs(observation) < SQUARABLE).all()
        count = self.count + counts.astype(jnp.float32)
        difference = jnp.where(counts, observation - self.mean, 0)
        mean = self.mean + difference / jnp.maximum(count, 1)
        return Statistics(count, mean, self.squares + difference * jnp.where(counts, observation - mean, 0))

    def together(self) -> Statistics:
        """Of all observations of statistics with one more leading axis, in a fixed order."""
        count = jnp.sum(self.count, axis=0)
        share = (self.count / jnp.maximum(count, 1))[:, None]
        # About a mean that is near, so that what never changes has exactly its value.
        near = self.mean[jnp.argmax(self.count)][None]
        mean = near[0] + jnp.sum(share * (self.mean - near), axis=0)
        between = self.count[:, None] * (self.mean - mean[None]) ** 2
        return Statistics(count, mean, jnp.sum(self.squares + between, axis=0))

    def with_others(self, other: Statistics) -> Statistics:
        """Of the observations of both."""
        both: Statistics = jax.tree.map(lambda *xs: jnp.stack(xs), self, other)
        return both.together()
