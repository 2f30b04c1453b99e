"""Sampling from the byte transformer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes.zoo import byte_transformer
from shardes.zoo.byte_transformer import Config

CONFIG = Config(d_model=8, n_layers=1, n_heads=2, n_kv_heads=1, d_ff=8, context=6)
# Far from init, so that one byte stands out.
PARAMS = jax.tree.map(lambda x: 3 * x, byte_transformer.init(jax.random.key(0), CONFIG))
KEY = jax.random.key(1)
PROMPT = jnp.asarray([[7, 200, 31], [0, 255, 9]], jnp.uint8)
sample = jax.jit(byte_transformer.sample, static_argnums=(3, 4))


def greedy(ids, length):
    """Score the last bytes afresh for each byte, in plain Python."""
    ids = list(ids)
    for _ in range(length):
        seen = jnp.asarray(ids[-CONFIG.context :], jnp.uint8)
        ids.append(int(jnp.argmax(byte_transformer.logits(PARAMS, seen, CONFIG)[-1])))
    return ids


@pytest.mark.parametrize("length", [1, 3, 8], ids=["one", "within the context", "beyond the context"])
def test_greedy_takes_the_likeliest_byte(length):
    got = sample(PARAMS, PROMPT, KEY, CONFIG, length, 0.0)
    assert got.dtype == jnp.uint8
    np.testing.assert_array_equal(got, [greedy(prompt, length) for prompt in np.asarray(PROMPT).tolist()])


def test_prompt_beyond_the_context():
    prompt = jnp.arange(50, 60, dtype=jnp.uint8)
    np.testing.assert_array_equal(sample(PARAMS, prompt, KEY, CONFIG, 4, 0.0), greedy(range(50, 60), 4))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_distribution(temperature):
    n = 4000
    prompts = jnp.broadcast_to(PROMPT[:1], (n, 3))
    chosen = np.asarray(sample(PARAMS, prompts, KEY, CONFIG, 1, temperature))[:, -1]
    scores = np.asarray(byte_transformer.logits(PARAMS, PROMPT[0], CONFIG)[-1], np.float64) / temperature
    p = np.exp(scores - scores.max())
    p /= p.sum()
    observed = np.bincount(chosen, minlength=256)
    statistic = ((observed - n * p) ** 2 / (n * p)).sum()
    assert statistic < 255 + 5 * np.sqrt(2 * 255)


def test_key_decides():
    first, again = (sample(PARAMS, PROMPT, KEY, CONFIG, 8, 1.0) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != sample(PARAMS, PROMPT, jax.random.key(2), CONFIG, 8, 1.0)).any()
    np.testing.assert_array_equal(first[:, :3], PROMPT)


def test_nothing_to_add():
    np.testing.assert_array_equal(sample(PARAMS, PROMPT, KEY, CONFIG, 0, 1.0), PROMPT)


def test_bfloat16():
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    assert sample(params, PROMPT, KEY, CONFIG, 2, 1.0).shape == (2, 5)


def test_errors():
    with pytest.raises(ValueError, match=r"prompt of shape \(2, 0\), and needs at least one byte"):
        byte_transformer.sample(PARAMS, PROMPT[:, :0], KEY, CONFIG, 1)
    with pytest.raises(ValueError, match="length is -1, and must not be negative"):
        byte_transformer.sample(PARAMS, PROMPT, KEY, CONFIG, -1)
    with pytest.raises(ValueError, match=r"temperature is -0\.5, and must not be negative"):
        byte_transformer.sample(PARAMS, PROMPT, KEY, CONFIG, 1, -0.5)
