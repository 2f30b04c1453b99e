"""Presets take the step that the papers' own update equations take, written out from the papers on a small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes
from shardes import LowRank, Mirrored, SeedRegenerated, presets

from .support import lenient, mesh_of, noise_of

N, SIGMA = 6, 0.05
PARAMS = {"w": jnp.arange(12.0).reshape(3, 4) / 12, "b": jnp.ones(4)}
REWARDS = np.array([0.3, -1.0, 2.0, 0.7, 0.1, -0.4], np.float32)
SCORES = (REWARDS - REWARDS.mean()) / REWARDS.std()


def told(es, rewards=REWARDS):
    state = es.init(jax.random.key(0), PARAMS)
    pert, state = es.ask(state)
    return es.tell(state, pert, jnp.asarray(-rewards)).params


def assert_close(given, expected):
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_qiu():
    """theta + alpha / N sum_i Z_i eps_i."""
    es = presets.qiu(n=N, sigma=SIGMA, alpha=0.02, mesh=mesh_of(2))
    noise = noise_of(SeedRegenerated(), N, PARAMS)
    expected = jax.tree.map(lambda p, e: p + 0.02 / N * np.tensordot(SCORES, e, 1), PARAMS, noise)
    assert_close(told(es), expected)


def test_qiu_takes_half_of_sigma():
    es = presets.qiu()
    assert (es.n, es.sigma, es.lr) == (30, 1e-3, 0.5e-3 * 1e-3)
    assert es.strategy == SeedRegenerated()


def test_eggroll_is_of_rank_one_on_scores_as_a_whole():
    es = presets.eggroll(n=16, sigma=0.5, lr=3.0)
    assert (es.n, es.sigma, es.lr) == (16, 0.5, 3.0)
    assert (es.strategy, es.shaping) == (Mirrored(LowRank(1)), shardes.shaping.z_score)


def ascent(scores):
    """EGGROLL's gradient: sqrt(N) times the mean over members of the score times E, sigma inside E."""
    noise = noise_of(Mirrored(LowRank(2)), N, PARAMS)
    return jax.tree.map(lambda e: np.sqrt(N) * np.tensordot(scores, SIGMA * np.asarray(e), 1) / N, noise)


def test_eggroll_with_plain_sgd():
    es = presets.eggroll(n=N, sigma=SIGMA, lr=0.3, rank=2, mesh=mesh_of(2))
    assert_close(told(es), jax.tree.map(lambda p, g: p + 0.3 * g, PARAMS, ascent(SCORES)))


@pytest.mark.parametrize(
    "optimizer", [optax.sgd(0.3, momentum=0.9), lenient(optax.adamw(0.01, eps=1e-3))], ids=["sgd", "adamw"]
)
def test_eggroll_with_an_optimizer(optimizer):
    es = presets.eggroll(n=N, sigma=SIGMA, optimizer=optimizer, rank=2, mesh=mesh_of(2))
    descent = jax.tree.map(lambda g: jnp.asarray(-g, jnp.float32), ascent(SCORES))
    updates, _ = optimizer.update(descent, optimizer.init(PARAMS), PARAMS)
    assert_close(told(es), optax.apply_updates(PARAMS, updates))


def test_eggroll_by_groups():
    """Scores centred by group, divided by the standard deviation of all."""
    rewards = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    centred = rewards - rewards.mean(axis=0)
    es = presets.eggroll(n=N, sigma=SIGMA, lr=0.3, rank=2, groups=True, mesh=mesh_of(2))
    expected = jax.tree.map(lambda p, g: p + 0.3 * g, PARAMS, ascent((centred / centred.std()).mean(axis=1)))
    assert_close(told(es, rewards), expected)


def test_options_are_those_of_the_evolution_strategy():
    es = presets.qiu(shaping=shardes.shaping.centered, member_chunk=2)
    assert es.shaping is shardes.shaping.centered
    with pytest.raises(ValueError, match="Give lr, for plain SGD, or optimizer"):
        presets.eggroll(n=8, sigma=0.1)
