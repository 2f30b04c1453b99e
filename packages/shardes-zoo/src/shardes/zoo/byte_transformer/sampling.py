"""Sampling bytes from a byte transformer by scoring a window of the last bytes again at every step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from shardes.zoo.byte_transformer.config import Config
from shardes.zoo.byte_transformer.modeling import logits
from shardes.zoo.decoder.forward import Params

__all__ = ["sample"]


def sample(
    params: Params, prompt: jax.Array, key: jax.Array, config: Config, length: int, temperature: float = 1.0
) -> jax.Array:
    """Continue a prompt, seeing the last `config.context` bytes at every step.

    Args:
        params: from `init`, in float32 or bfloat16.
        prompt: bytes of shape (..., n), n at least 1.
        key: a `jax.random` key.
        config: the model's sizes, static under `jax.jit`.
        length: how many bytes to add, static under `jax.jit`.
        temperature: scale of the randomness; at 0 the likeliest byte is taken.

    Returns:
        Prompt and continuation, of shape (..., n + length), in the prompt's dtype.

    Raises:
        ValueError: an empty prompt, a negative `length` or a negative `temperature`.
    """
    n = prompt.shape[-1]
    if n < 1:
        raise ValueError(
            f"sample got a prompt of shape {prompt.shape}, and needs at least one byte. Start with a newline."
        )
    if length < 0:
        raise ValueError(f"length is {length}, and must not be negative: it counts the bytes to add.")
    if isinstance(temperature, int | float) and temperature < 0:
        raise ValueError(f"temperature is {temperature}, and must not be negative. At 0 the likeliest byte is taken.")
    total = n + length
    window = min(config.context, total)

    def step(ids: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        position, key = at
        # Bytes at `position` and after are not yet known; causality keeps them from the score that is read.
        start = jnp.maximum(position - window, 0)
        seen = lax.dynamic_slice_in_dim(ids, start, window, axis=-1)
        scores = lax.dynamic_index_in_dim(logits(params, seen, config), position - start - 1, axis=-2, keepdims=False)
        noise = jax.random.gumbel(key, scores.shape, jnp.float32)
        chosen = jnp.argmax(scores.astype(jnp.float32) + temperature * noise, axis=-1, keepdims=True)
        return lax.dynamic_update_slice_in_dim(ids, chosen.astype(ids.dtype), position, axis=-1), None

    ids = jnp.concatenate([prompt, jnp.zeros((*prompt.shape[:-1], length), prompt.dtype)], axis=-1)
    ids, _ = lax.scan(step, ids, (jnp.arange(n, total), jax.random.split(key, length)))
    return ids
