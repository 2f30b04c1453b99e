"""Choosing the next token from its scores: repetition penalty, temperature, nucleus."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["Rules", "choose"]


class Rules(NamedTuple):
    """How a token is chosen; what is None is off, and without a key the likeliest token is taken.

    Attributes:
        key: a `jax.random` key.
        temperature: what scores are divided by, float32.
        top_p: the probability that the likeliest tokens must reach together (Holtzman et al. 2019, arXiv 1904.09751).
        penalty: what the scores of tokens that occurred are divided by, or multiplied where they are negative (Keskar
            et al. 2019, arXiv 1909.05858).
    """

    key: jax.Array | None = None
    temperature: jax.Array | None = None
    top_p: jax.Array | None = None
    penalty: jax.Array | None = None


def choose(scores: jax.Array, occurred: jax.Array | None, step: jax.Array, rules: Rules) -> jax.Array:
    """Tokens (batch,), int32.

    Args:
        scores: (batch, vocab_size).
        occurred: (batch, vocab_size), true at the tokens of the prompt and the continuation; used with a penalty.
        step: number of the token, which with the key decides the draw.
        rules: how to choose.
    """
    scores = scores.astype(jnp.float32)
    if rules.penalty is not None and occurred is not None:
        penalised = jnp.where(scores < 0, scores * rules.penalty, scores / rules.penalty)
        scores = jnp.where(occurred, penalised, scores)
    if rules.key is None:
        return jnp.argmax(scores, axis=-1).astype(jnp.int32)
    if rules.temperature is not None:
        # The likeliest stays at zero, however small the temperature.
        scores = scores - jnp.max(scores, axis=-1, keepdims=True)
        scores = scores / jnp.maximum(rules.temperature, jnp.finfo(jnp.float32).tiny)
    key = jax.random.fold_in(rules.key, step)
    if rules.top_p is None:
        return jax.random.categorical(key, scores).astype(jnp.int32)
    order = jnp.argsort(scores, axis=-1, descending=True)
    sorted_scores = jnp.take_along_axis(scores, order, axis=-1)
    p = jax.nn.softmax(sorted_scores, axis=-1)
    # A token is kept if those before it have not reached top_p; the first always is.
    kept = (jnp.cumsum(p, axis=-1) - p < rules.top_p) | (jnp.arange(p.shape[-1]) == 0)[None]
    rank = jax.random.categorical(key, jnp.where(kept, sorted_scores, -jnp.inf))
    return jnp.take_along_axis(order, rank[:, None], axis=-1)[:, 0].astype(jnp.int32)
