"""A model of square matrices, at any width, depth and size of batch, and the strategies that are compared on it."""

from typing import Any

import jax
import jax.numpy as jnp

import shardes
from shardes.nn import dense

STRATEGIES = {
    "LowRank(1)": shardes.LowRank(r=1),
    "LowRank(4)": shardes.LowRank(r=4),
    "SeedRegenerated": shardes.SeedRegenerated(),
}


def params(d: int, layers: int) -> Any:
    """Layers of a d x d matrix and a gain each, stacked."""
    weights = jax.random.normal(jax.random.key(1), (layers, d, d)) / d**0.5
    return shardes.Stacked({"weight": weights, "gain": jnp.ones((layers, d))})


def batch(d: int, tokens: int) -> jax.Array:
    """Vectors, and in the second half what they are to become."""
    return jax.random.normal(jax.random.key(2), (2, tokens, d))


def loss(params: Any, batch: jax.Array) -> jax.Array:
    """Mean squared error of a residual network."""

    def layer(x: jax.Array, of: Any) -> tuple[jax.Array, None]:
        return x + of["gain"] * jnp.tanh(dense(x, of["weight"])), None

    out, _ = jax.lax.scan(layer, batch[0], params.layers)
    return jnp.mean((out - batch[1]) ** 2)


def strategy(name: str, n: int, **options: Any) -> shardes.ShardedES:
    """A mirrored one, by name."""
    return shardes.ShardedES(shardes.Mirrored(STRATEGIES[name]), n, sigma=0.01, lr=0.01, **options)
