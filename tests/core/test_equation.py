"""A whole generation is its equation, computed again in float64: theta - lr / (n sigma) sum_i w_i s_i eps_i."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import rankdata

from shardes import Stacked

from .support import IDS, STRATEGIES, loss, make_es, make_params, noise_of, seen_params, slow, some_strategies, update

SIGMA, LR = 0.25, 0.5
SIZES = {"n=30": (30, True, 8), "n=7 unmirrored": (7, False, 2), "n=150 unmirrored": (150, False, 1)}
CASES = [
    pytest.param(name, how, *SIZES[size], id=f"{name}-{how}-{size}",
                 marks=() if (name, size) == ("low_rank_1", "n=30") else slow)
    for name in STRATEGIES
    for how, size in (("A", "n=30"), ("B", "n=7 unmirrored"), ("B", "n=150 unmirrored"))
]  # fmt: skip


def params_of_many_shapes():
    shapes = {
        "kernel": (2, 3, 2),
        "matrix": (3, 4),
        "nested": Stacked({"of": Stacked({"matrix": (2, 3, 3, 4), "vector": (2, 3, 4)})}),
        "scalar": (),
        "stacked": Stacked({"kernel": (2, 2, 3, 2), "matrix": (2, 3, 4), "scalar": (3,), "vector": (2, 4)}),
        "vector": (4,),
    }
    shapes, structure = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    draw = np.random.default_rng(0)
    params = structure.unflatten([jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes])
    return {**params, "count": jnp.int32(3)}


@functools.cache
def directions_of(name):
    """Noise of 150 directions of every float leaf, in float64."""
    noise = noise_of(STRATEGIES[name], 150, params_of_many_shapes())
    return [eps.astype(np.float64) for eps in jax.tree.leaves(noise) if eps.dtype == np.float32]


def noise_of_members(name, n, mirrored):
    """Members 2k and 2k+1 of a mirrored population share direction k, with signs +1 and -1."""
    for eps in directions_of(name):
        yield np.stack([eps[i // 2] * (-1) ** i for i in range(n)]) if mirrored else eps[:n]


@pytest.mark.parametrize(("name", "how", "n", "mirrored", "devices"), CASES)
def test_update(name, how, n, mirrored, devices):
    params = params_of_many_shapes()
    es = make_es(name, n, mirrored, devices, how=how, sigma=SIGMA, lr=LR)
    pert, state = es.ask(es.init(jax.random.key(0), params))
    fitness = np.random.default_rng(n).normal(size=n).astype(np.float32)
    after = es.tell(state, pert, fitness).params
    weights = (rankdata(fitness) - 1) / (n - 1) - 0.5
    scale = LR / (n * SIGMA)
    for given, eps in zip(update(params, after), noise_of_members(name, n, mirrored), strict=True):
        expected = -scale * np.tensordot(weights, eps, axes=1)
        np.testing.assert_allclose(given, expected, rtol=0, atol=2e-6 * scale * np.abs(weights).sum())
    assert after["count"] == params["count"]


@some_strategies
def test_members_see_params_shifted_by_sigma_times_noise(name):
    n, params = 6, params_of_many_shapes()
    es = make_es(name, n, sigma=SIGMA)
    pert, state = es.ask(es.init(jax.random.key(0), params))
    seen = es.apply(seen_params, state, pert)()
    assert (seen.pop("count") == params.pop("count")).all()
    members = map(np.asarray, jax.tree.leaves(seen))
    for weight, given, eps in zip(jax.tree.leaves(params), members, noise_of_members(name, n, True), strict=True):
        np.testing.assert_allclose(given, np.asarray(weight)[None] + SIGMA * eps, rtol=0, atol=1e-6)


@some_strategies
def test_fitness_is_the_loss_at_the_perturbed_params(name):
    n, params = 6, make_params()
    es = make_es(name, n)
    pert, state = es.ask(es.init(jax.random.key(0), params))
    members = es.apply(seen_params, state, pert)()
    fitness = es.apply(loss, state, pert)(IDS)
    for i in range(n):
        member = jax.tree.map(lambda x, i=i: x[i], members)
        np.testing.assert_allclose(fitness[i], loss(member, IDS), rtol=1e-5)
