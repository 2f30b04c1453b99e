"""Params and forward pass of the byte transformer, as pure functions on the seams."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from shardes import Stacked
from shardes.zoo.byte_transformer.config import BYTES, Config
from shardes.zoo.decoder import forward as decoder
from shardes.zoo.decoder.arguments import check_mask
from shardes.zoo.decoder.blocks import pre_norm_block
from shardes.zoo.decoder.forward import Decoder, Params
from shardes.zoo.decoder.generation import generate as generate_tokens
from shardes.zoo.decoder.layers import rms_norm

__all__ = ["generate", "init", "logits", "loss", "nll"]

DECODER = Decoder(pre_norm_block, rms_norm)


def init(key: jax.Array, config: Config) -> dict[str, Any]:
    """Params of a byte transformer, float32: the embedding, the stacked blocks, and the last norm.

    Every branch starts small beside the residual stream, and the embedding small enough that the first predictions are
    nearly uniform: with rows of unit length, a tied embedding would predict every byte to come again.
    """
    n, d, f = config.n_layers, config.d_model, config.d_ff
    kv = config.n_kv_heads * config.head_dim
    shapes = {"q": (d, d), "k": (kv, d), "v": (kv, d), "o": (d, d), "gate": (f, d), "up": (f, d), "down": (d, f)}
    small = {"o": 0.1, "down": 0.1}
    keys = dict(zip(("embed", *shapes), jax.random.split(key, 1 + len(shapes)), strict=True))

    def matrix(name: str) -> jax.Array:
        scale = small.get(name, 1.0) / math.sqrt(shapes[name][1])
        return scale * jax.random.normal(keys[name], (n, *shapes[name]), jnp.float32)

    def gain(*shape: int) -> jax.Array:
        return jnp.ones(shape, jnp.float32)

    attention = {"norm": gain(n, d), **{name: matrix(name) for name in ("q", "k", "v", "o")}}
    mlp = {"norm": gain(n, d), **{name: matrix(name) for name in ("gate", "up", "down")}}
    return {
        "embed": 0.3 / math.sqrt(d) * jax.random.normal(keys["embed"], (BYTES, d), jnp.float32),
        "blocks": Stacked({"attention": attention, "mlp": mlp}),
        "norm": gain(d),
    }


def logits(params: Params, ids: jax.Array, config: Config, mask: Any = None) -> jax.Array:
    """Scores of the next byte after each.

    Args:
        params: from `init`, in float32 or bfloat16.
        ids: bytes of shape (..., seq), uint8 or a wider integer dtype.
        config: the model's sizes.
        mask: of the shape of `ids`, 1 at real bytes, 0 at padding; all are real if None.

    Returns:
        Logits of shape (..., seq, 256), in the params' dtype.
    """
    ids, rows, mask = _rows(ids, mask)
    scores: jax.Array = decoder.logits(params, rows, config.decoder, DECODER, mask)
    return scores.reshape(*ids.shape, BYTES)


def nll(params: Params, ids: jax.Array, config: Config, mask: Any = None) -> jax.Array:
    """Negative log-likelihood of every sequence given its first byte, in nats a byte.

    Args:
        params: from `init`, in float32 or bfloat16.
        ids: bytes of shape (..., seq), seq at least 2.
        config: the model's sizes.
        mask: as for `logits`. A byte counts if it is real and so is the one before it.

    Returns:
        Means over the predicted bytes, of shape (...), float32.

    Raises:
        ValueError: a sequence is shorter than two bytes.
    """
    if ids.shape[-1] < 2:
        raise ValueError(f"nll got ids of shape {ids.shape}, and needs sequences of at least two bytes to predict one.")
    ids, rows, mask = _rows(ids, mask)
    lost: jax.Array = decoder.nll(params, rows, config.decoder, DECODER, mask)
    return lost.reshape(ids.shape[:-1])


def loss(params: Params, batch: jax.Array, config: Config) -> jax.Array:
    """Mean of `nll` over a batch of bytes of shape (..., seq): a float32 scalar in nats a byte, lower is better."""
    return jnp.mean(nll(params, batch, config))


def generate(params: Params, ids: Any, config: Config, **arguments: Any) -> jax.Array:
    """Continue prompts of shape (batch, seq), padded on the left, seeing all bytes so far.

    Prompt and continuation are best no longer than `config.context`. The keyword arguments are those of
    `shardes.zoo.decoder.generation.generate`.
    """
    return generate_tokens(params, ids, config.decoder, DECODER, **arguments)


def _rows(ids: jax.Array, mask: Any) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The ids, and ids and mask with all leading axes as one."""
    ids = jnp.asarray(ids)
    mask = check_mask(mask, ids)
    seq = ids.shape[-1]
    return ids, ids.reshape(-1, seq), None if mask is None else mask.reshape(-1, seq)
