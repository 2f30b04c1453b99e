"""Noise has the distribution that it claims, and whatever should be independent is uncorrelated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from shardes import IIDGaussian, LowRank, Stacked

from .support import STRATEGIES, noise_of, slow

pytestmark = slow

MEMBERS = 2048
GAUSSIAN = {"iid": IIDGaussian(), "low_rank_1": LowRank(r=1), "low_rank_4": LowRank(r=4)}


@pytest.fixture(scope="module", params=list(STRATEGIES))
def noise(request):
    """Noise of two generations: leaves of one shape, layers, and a vector as long as a row, each (members, entries)."""
    params = {
        "a": jnp.zeros((8, 8)),
        "b": jnp.zeros((8, 8)),
        "stacked": Stacked({"w": jnp.zeros((3, 8, 8)), "v": jnp.zeros((3, 8))}),
        "vector": jnp.zeros(8),
    }
    found = []
    for generation in (0, 1):
        tree = noise_of(STRATEGIES[request.param], MEMBERS, params, generation=generation, devices=8)
        layers = tree["stacked"].layers
        flat = {name: tree[name].reshape(MEMBERS, -1) for name in ("a", "b", "vector")}
        flat |= {f"w{i}": layers["w"][:, i].reshape(MEMBERS, -1) for i in range(3)}
        flat |= {f"v{i}": layers["v"][:, i] for i in range(3)}
        found.append({name: value.astype(np.float64) for name, value in flat.items()})
    return found


def assert_uncorrelated(x, y):
    """Products of independent entries of variance one have mean zero, known to 1 / sqrt(N)."""
    assert abs(np.mean(x * y)) < 5 / np.sqrt(x.size)


def test_members_are_uncorrelated(noise):
    for values in noise[0].values():
        for apart in (1, 2, 7, MEMBERS // 8):
            assert_uncorrelated(values[:-apart], values[apart:])


def test_leaves_and_layers_are_uncorrelated(noise):
    names = list(noise[0])
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            x, y = noise[0][first], noise[0][second]
            shorter = min(x.shape[1], y.shape[1])
            assert_uncorrelated(x[:, :shorter], y[:, :shorter])


def test_generations_are_uncorrelated(noise):
    for name, values in noise[0].items():
        assert_uncorrelated(values, noise[1][name])


def test_entries_of_a_leaf_are_uncorrelated_and_of_variance_one(noise):
    for values in noise[0].values():
        covariance = values.T @ values / MEMBERS
        # The square of an entry varies most for rank one: E[eps^4] = 9.
        assert np.abs(covariance - np.eye(len(covariance))).max() < 6 * np.sqrt(8 / MEMBERS)


@pytest.mark.parametrize("draw", ["dense", "left", "right"])
@pytest.mark.parametrize("name", GAUSSIAN)
def test_draws_are_standard_normal(name, draw):
    strategy = GAUSSIAN[name]
    if (draw == "dense") == isinstance(strategy, LowRank):
        shape, part = (16,), lambda noise: noise
    else:
        shape, part = (16, 16), lambda noise: getattr(noise, draw, noise)
    keys = jax.random.split(jax.random.key(5), 2**15)
    values = (
        np.asarray(jax.jit(jax.vmap(lambda key: part(strategy.noise(key, shape))))(keys)).astype(np.float64).ravel()
    )
    assert abs(values.mean()) < 5 / np.sqrt(values.size)
    assert abs((values**2).mean() - 1) < 5 * np.sqrt(2 / values.size)
    assert abs((values**4).mean() - 3) < 5 * np.sqrt(96 / values.size)
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-4


@pytest.mark.parametrize("r", [1, 2, 4, 8])
def test_low_rank_entries_have_variance_one_and_independent_factors(r):
    keys = jax.random.split(jax.random.key(6), 2**15)
    left, right = jax.jit(jax.vmap(lambda key: LowRank(r).noise(key, (6, 6))))(keys)
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    assert_uncorrelated(left, right)
    matrices = np.einsum("irm,irk->imk", left, right) / np.sqrt(r)
    # E[eps^4] = 3 + 6 / r for a sum of r products of normals.
    assert np.abs((matrices**2).mean(axis=0) - 1).max() < 5 * np.sqrt((2 + 6 / r) / len(keys))
    assert abs((matrices**4).mean() - (3 + 6 / r)) < 0.15 * (3 + 6 / r)
