"""Generation with a cache of keys and values: the prompt at once, then a token a step until every row has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardes.zoo.decoder.arguments import check_ids, check_mask, check_token, check_tokens
from shardes.zoo.decoder.attention import Cache
from shardes.zoo.decoder.choosing import Rules, choose
from shardes.zoo.decoder.forward import Decoder, DecoderConfig, Params, head, run
from shardes.zoo.decoder.stepping import is_worthwhile, step, take_apart

__all__ = ["generate"]

_MOST_TOKENS = 2**24


def generate(
    params: Params,
    ids: Any,
    config: DecoderConfig,
    decoder: Decoder,
    *,
    mask: Any = None,
    max_new_tokens: int,
    eos_token_id: Any = None,
    pad_token_id: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """Continue prompts, one token at a time.

    Args:
        params: the model's, in float32 or bfloat16; matrices may be structured weights.
        ids: prompts of shape (batch, seq), padded on the left.
        config: the model's config.
        decoder: what is the architecture's own.
        mask: (batch, seq), 1 at real tokens; all are real if None.
        max_new_tokens: how many tokens to add at most, at least 1; each number compiles anew.
        eos_token_id: the id or ids that end a row, in any iterable; None for none.
        pad_token_id: what fills a row after its end; by default the first end token.
        temperature: scale of the randomness; at 0 the likeliest token is taken.
        top_p: samples among the likeliest tokens that together reach this probability.
        repetition_penalty: above 1 disfavours every real token of the prompt, and those of the continuation.
        key: a `jax.random` key, required where `temperature` is not 0. Equal keys give equal tokens.

    Returns:
        Prompt and continuation, of shape (batch, seq + max_new_tokens), int32. Where the scores are not finite the
        tokens mean nothing; `logits` shows it.

    Raises:
        ValueError, TypeError: an argument is not as said.
    """
    ids = check_ids(ids, config.vocab_size)
    mask = check_mask(mask, ids, left=True)
    whole = isinstance(max_new_tokens, int | np.integer) and not isinstance(max_new_tokens, bool)
    if not whole or not 1 <= max_new_tokens <= _MOST_TOKENS:
        raise ValueError(f"max_new_tokens is {max_new_tokens!r}, and must be an integer from 1 to {_MOST_TOKENS}.")
    ends = check_tokens("eos_token_id", eos_token_id, config.vocab_size)
    filler = check_token("pad_token_id", pad_token_id, config.vocab_size)
    rules = _rules(temperature, top_p, repetition_penalty, key)
    real = jnp.ones(ids.shape, bool) if mask is None else mask
    # No token is -1: any few end tokens make the same program.
    end = jnp.asarray(ends + (-1,) * (-len(ends) % 4), jnp.int32)
    pad = jnp.int32((*ends, 0)[0] if filler is None else filler)
    prompt = ids.astype(jnp.int32)
    generated: jax.Array = _generate(params, prompt, config, decoder, real, int(max_new_tokens), end, pad, rules)
    return generated


class _State(NamedTuple):
    """After some steps: the tokens, the cache, or one a layer, which rows have ended, which tokens occurred in each."""

    step: jax.Array
    ids: jax.Array
    cache: Any
    ended: jax.Array
    occurred: jax.Array | None
    running: jax.Array


@partial(jax.jit, static_argnames=("config", "decoder", "max_new_tokens"))
def _generate(
    params: Params,
    prompt: jax.Array,
    config: DecoderConfig,
    decoder: Decoder,
    real: jax.Array,
    max_new_tokens: int,
    end: jax.Array,
    pad: jax.Array,
    rules: Rules,
) -> jax.Array:
    batch, length = prompt.shape
    count = jnp.cumsum(real, axis=-1, dtype=jnp.int32)
    slots = length + max_new_tokens
    dtype = jnp.result_type(params["norm"])
    cache: Any = Cache.empty(config.n_layers, batch, config.n_kv_heads, slots, config.head_dim, dtype)
    ids = jnp.concatenate([prompt, jnp.full((batch, max_new_tokens), pad)], axis=1)
    rows = jnp.arange(batch)[:, None]
    occurred = None
    if rules.penalty is not None:
        tokens = jnp.where(real, prompt, config.vocab_size)  # padding is out of bounds, and dropped
        occurred = jnp.zeros((batch, config.vocab_size), bool).at[rows, tokens].set(True, mode="drop")
    every = jnp.concatenate([real, jnp.ones((batch, max_new_tokens), bool)], axis=1)

    def add(state: _State, x: jax.Array, cache: Any) -> _State:
        """The state with the token that the last activations, (batch, 1, d), choose."""
        scores = head(params, x[:, 0], config)
        token = jnp.where(state.ended, pad, choose(scores, state.occurred, state.step, rules))[:, None]
        ended = state.ended | jnp.any(token == end[None], axis=1)
        occurred = None if state.occurred is None else state.occurred.at[rows, token].set(True)
        ids = lax.dynamic_update_slice_in_dim(state.ids, token, length + state.step, axis=1)
        return _State(state.step + 1, ids, cache, ended, occurred, _any_runs(ended))

    def next_token(state: _State) -> _State:
        slot = length + state.step - 1
        token = lax.dynamic_slice_in_dim(state.ids, slot, 1, axis=1)
        positions = count[:, -1:] + state.step - 1
        if apart:
            return add(state, *step(params, blocks, token, config, decoder, positions, every, state.cache, slot))
        return add(state, *run(params, token, config, decoder, positions, every, state.cache, slot)[:2])

    def goes_on(state: _State) -> jax.Array:
        return (state.step < max_new_tokens) & state.running

    x, cache, _ = run(params, prompt, config, decoder, jnp.maximum(count - 1, 0), real, cache)
    blocks = params["blocks"].layers
    apart = is_worthwhile(params, config, steps=max_new_tokens - 1)
    if apart:
        blocks, cache = (take_apart(stacked, config.n_layers) for stacked in (blocks, cache))
    state = _State(jnp.int32(0), ids, cache, jnp.zeros(batch, bool), occurred, jnp.bool_(True))
    ended: _State = lax.while_loop(goes_on, next_token, add(state, x[:, -1:], cache))
    return ended.ids


@jax.custom_batching.custom_vmap
def _any_runs(ended: jax.Array) -> jax.Array:
    """Whether a row goes on, in any member: one loop serves all, and need not hold back those that have ended."""
    return ~jnp.all(ended)


@_any_runs.def_vmap
def _any_runs_of_members(size: int, batched: list[bool], ended: jax.Array) -> tuple[jax.Array, bool]:
    return _any_runs(ended), False


def _rules(temperature: Any, top_p: Any, penalty: Any, key: jax.Array | None) -> Rules:
    _check_number("temperature", temperature, "of at least 0", lambda x: 0 <= x < np.inf)
    _check_number("top_p", top_p, "above 0 and at most 1", lambda x: 0 < x <= 1)
    _check_number("repetition_penalty", penalty, "from 0.001 to 1000; at 1 there is none", lambda x: 1e-3 <= x <= 1e3)
    penalised = None if penalty == 1 else jnp.float32(penalty)
    if temperature == 0:
        return Rules(penalty=penalised)
    if key is None:
        raise ValueError(
            f"temperature is {temperature} and key is None, and sampling needs a key. Give key=jax.random.key(0), or "
            "temperature=0 for the likeliest tokens."
        )
    return Rules(key, jnp.float32(temperature), None if top_p == 1 else jnp.float32(top_p), penalised)


def _check_number(name: str, value: Any, required: str, fits: Callable[[Any], bool]) -> None:
    # Beyond float32, an integer beyond a float included, nothing fits.
    number: Any = value
    small = isinstance(value, Real) and not isinstance(value, bool) and -1e38 < number < 1e38
    if not small or not fits(value):
        raise ValueError(f"{name} is {value!r}, and must be a number {required}.")
