"""Two strategies as a user would write them: dense noise of signs, and noise with a structure of its own."""

import dataclasses

import jax
import jax.numpy as jnp

import shardes


@dataclasses.dataclass(frozen=True)
class Rademacher(shardes.Strategy):
    """Every entry is +1 or -1."""

    def noise(self, key, shape):
        return 1 - 2 * (shardes.random.bits(key, shape) >> jnp.uint32(31)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class OuterSigns(Rademacher):
    """A matrix's noise is the outer product of a sign for every row and a sign for every column."""

    keeps_noise = False
    chunk = 2

    def noise(self, key, shape):
        if len(shape) != 2:
            return super().noise(key, shape)
        rows, columns = shape
        signs = super().noise(key, (rows + columns,))
        return signs[:rows], signs[rows:]

    def shift(self, weight, noise, scale):
        return super().shift(weight, jnp.outer(*noise) if isinstance(noise, tuple) else noise, scale)

    def contract(self, noise, weights):
        if not isinstance(noise, tuple):
            return super().contract(noise, weights)
        return jnp.einsum("i,im,ik->mk", weights, *noise, precision=jax.lax.Precision.HIGHEST)
