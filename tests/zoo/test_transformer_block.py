"""The transformer block against its equations, written once more in numpy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes.nn import check_model
from shardes.zoo import transformer_block

PARAMS = transformer_block.init(jax.random.key(0), d_model=8)
BATCH = transformer_block.make_batch(jax.random.key(1), d_model=8, batch=2, seq=5)


def reference(params, x):
    """One sequence in float64, position by position."""
    w = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def norm(v):
        return v / np.sqrt((v**2).mean() + 1e-6)

    def gelu(v):
        return v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))

    x = np.asarray(x, np.float64)
    q, k, v = ([w[name] @ norm(row) for row in x] for name in "qkv")
    out = []
    for t, row in enumerate(x):
        weights = np.exp([q[t] @ other / math.sqrt(len(row)) for other in k])
        row = row + w["o"] @ sum(a * b for a, b in zip(weights / weights.sum(), v, strict=True))
        out.append(row + w["down"] @ gelu(w["up"] @ norm(row)))
    return np.stack(out)


def test_forward():
    got = jax.jit(transformer_block.forward)(PARAMS, BATCH["x"])
    np.testing.assert_allclose(got, [reference(PARAMS, x) for x in BATCH["x"]], rtol=1e-5, atol=1e-5)


def test_loss():
    target = np.asarray(BATCH["target"], np.float64)
    error = np.stack([reference(PARAMS, x) for x in BATCH["x"]]) - target
    np.testing.assert_allclose(transformer_block.loss(PARAMS, BATCH), (error**2).mean(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_loss_is_float32(dtype):
    params = jax.tree.map(lambda x: x.astype(dtype), PARAMS)
    assert transformer_block.forward(params, BATCH["x"]).dtype == dtype
    loss = transformer_block.loss(params, BATCH)
    assert loss.dtype == jnp.float32
    np.testing.assert_allclose(loss, transformer_block.loss(PARAMS, BATCH), rtol=0.05)


def test_six_square_matrices():
    assert {name: w.shape for name, w in transformer_block.init(jax.random.key(0)).items()} == dict.fromkeys(
        ("q", "k", "v", "o", "up", "down"), (64, 64)
    )
    assert len({float(w[0, 0]) for w in PARAMS.values()}) == 6


def test_batch():
    batch = transformer_block.make_batch(jax.random.key(1))
    assert {name: x.shape for name, x in batch.items()} == {"x": (8, 32, 64), "target": (8, 32, 64)}


def test_a_gradient_step_improves():
    gradient = jax.grad(transformer_block.loss)(PARAMS, BATCH)
    params = jax.tree.map(lambda w, g: w - 0.1 * g, PARAMS, gradient)
    assert transformer_block.loss(params, BATCH) < transformer_block.loss(PARAMS, BATCH)


def test_check_model_finds_nothing():
    assert check_model(transformer_block.loss, PARAMS, BATCH) == []


def test_no_width():
    with pytest.raises(ValueError, match="d_model is 0, and must be positive"):
        transformer_block.init(jax.random.key(0), d_model=0)
