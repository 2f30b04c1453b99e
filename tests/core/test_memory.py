"""Memory: a regenerated population costs the same at any size, and a low-rank one no more than its factors."""

import jax
import jax.numpy as jnp
import pytest

from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated, ShardedES
from shardes.nn import dense

from .programs import temporary_bytes
from .support import PLACEMENTS, mesh_of

WIDTH, LAYERS = 160, 2


def make_params():
    return {f"w{i}": jnp.zeros((WIDTH, WIDTH)) for i in range(LAYERS)}


def loss(params, x):
    for i in range(LAYERS):
        x = jnp.tanh(dense(x, params[f"w{i}"]))
    return jnp.mean(x**2)


def temporaries(strategy, n, devices, how="B", **options):
    """Peak temporary bytes of one generation on one device."""
    es = ShardedES(Mirrored(strategy), n, sigma=0.1, lr=0.1, mesh=mesh_of(devices), how=how, **options)
    return temporary_bytes(es.step(loss), es.init(jax.random.key(0), make_params()), jnp.ones((4, WIDTH)))


@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize("devices", [1, 8])
def test_seed_regenerated_does_not_grow_with_n(devices, how):
    few, many = (temporaries(SeedRegenerated(), n, devices, how) for n in (16, 1024))
    assert many < 1.05 * few
    # A handful of directions beside the params, whose like is in every one of them.
    assert many < 12 * LAYERS * WIDTH**2 * 4


@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize("rank", [1, 4])
def test_low_rank_grows_by_its_factors_alone(rank, how):
    """Beside them, scalars of the population, as SeedRegenerated has."""
    few, many = 16, 1024
    factors = (many - few) // 2 * rank * LAYERS * 2 * WIDTH * 4
    low_rank = [temporaries(LowRank(rank), n, 1, how, member_chunk=8) for n in (few, many)]
    scalars = [temporaries(SeedRegenerated(), n, 1, how) for n in (few, many)]
    growth = low_rank[1] - low_rank[0] - factors - (scalars[1] - scalars[0])
    assert growth < 0.05 * low_rank[0]


def test_noise_that_is_kept_does_grow():
    few, many = (temporaries(IIDGaussian(), n, 1, member_chunk=8) for n in (16, 1024))
    assert many > 8 * few
