"""Params, forward pass and loss of the transformer block."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from shardes.nn import dense

__all__ = ["MATRICES", "forward", "init", "loss", "make_batch"]

MATRICES = ("q", "k", "v", "o", "up", "down")


def init(key: jax.Array, d_model: int = 64) -> dict[str, jax.Array]:
    """Params of one block: matrices q, k, v, o, up and down of shape (d_model, d_model), float32.

    Raises:
        ValueError: `d_model` is not positive.
    """
    if d_model < 1:
        raise ValueError(f"d_model is {d_model}, and must be positive. The quickstart uses 64.")
    keys = jax.random.split(key, len(MATRICES))
    return {
        name: jax.random.normal(k, (d_model, d_model), jnp.float32) / d_model**0.5
        for name, k in zip(MATRICES, keys, strict=True)
    }


def make_batch(key: jax.Array, d_model: int = 64, batch: int = 8, seq: int = 32) -> dict[str, jax.Array]:
    """Inputs of shape (batch, seq, d_model), and as target what a block with other params makes of them, float32."""
    teacher, inputs = jax.random.split(key)
    x = jax.random.normal(inputs, (batch, seq, d_model), jnp.float32)
    return {"x": x, "target": forward(init(teacher, d_model), x)}


def loss(params: dict[str, jax.Array], batch: dict[str, jax.Array]) -> jax.Array:
    """Mean squared error to the batch's target: a float32 scalar, lower is better."""
    error = forward(params, batch["x"]).astype(jnp.float32) - batch["target"].astype(jnp.float32)
    return jnp.mean(jnp.square(error))


def forward(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Activations of shape (..., seq, d_model), cast to the params' dtype, through attention of one head and an MLP."""
    x = x.astype(params["q"].dtype)
    h = _normalise(x)
    q, k, v = (dense(h, params[name]) for name in ("q", "k", "v"))
    scores = jnp.einsum("...qd,...kd->...qk", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores * x.shape[-1] ** -0.5, axis=-1).astype(x.dtype)
    x = x + dense(jnp.einsum("...qk,...kd->...qd", weights, v), params["o"])
    return x + dense(jax.nn.gelu(dense(_normalise(x), params["up"])), params["down"])


def _normalise(x: jax.Array) -> jax.Array:
    mean_square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + 1e-6).astype(x.dtype)
