"""Every shaping against numpy, at ties, at extremes and at a generation that says nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import rankdata

from shardes import shaping

from .support import SHAPINGS, assert_identical, make_es, mesh_of, slow

DRAW = np.random.default_rng(0)
FITNESS = {
    "one": np.array([3.5]),
    "two": np.array([2.0, -1.0]),
    "many": DRAW.normal(size=64),
    "ties": DRAW.integers(0, 5, 33).astype(float),
    "zeros of both signs": np.array([0.0, -0.0, 1.0, -0.0, -1.0]),
    "episodes": DRAW.normal(size=(16, 3)),
    "one episode": DRAW.normal(size=(16, 1)),
}


def scores(fitness):
    return fitness if fitness.ndim == 1 else fitness.mean(axis=1)


def centered_ranks(fitness):
    values = scores(fitness)
    return (rankdata(values) - 1) / max(len(values) - 1, 1) - (0.5 if len(values) > 1 else 0)


def centered(fitness):
    return scores(fitness) - scores(fitness).mean()


def z_score(fitness):
    return centered(fitness) / (scores(fitness).std() or 1)


def group_relative(fitness):
    deviations = fitness - fitness.mean(axis=0)
    return (deviations / (np.sqrt(np.mean(deviations**2)) or 1)).mean(axis=1)


ORACLES = {"centered_ranks": centered_ranks, "centered": centered, "z_score": z_score, "none": scores}


@pytest.mark.parametrize("case", FITNESS)
@pytest.mark.parametrize("name", ORACLES)
def test_against_numpy(name, case):
    fitness = FITNESS[case].astype(np.float32)
    given = jax.jit(getattr(shaping, name))(fitness)
    assert given.dtype == jnp.float32
    np.testing.assert_allclose(given, ORACLES[name](fitness.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", ["episodes", "one episode"])
def test_group_relative_against_numpy(case):
    fitness = FITNESS[case].astype(np.float32)
    given = jax.jit(shaping.group_relative)(fitness)
    np.testing.assert_allclose(given, group_relative(fitness.astype(np.float64)), rtol=1e-5, atol=1e-6)


def test_groups_that_are_hard_for_all_do_not_count():
    fitness = FITNESS["episodes"].astype(np.float32)
    harder = fitness + np.array([0, 1000, 0], np.float32)
    np.testing.assert_allclose(shaping.group_relative(harder), shaping.group_relative(fitness), atol=1e-3)


def test_group_relative_needs_groups():
    with pytest.raises(ValueError, match=r"group_relative needs fitness of shape \(n, groups\), got \(8,\)"):
        shaping.group_relative(jnp.zeros(8))


def test_ranks_are_evenly_spread_and_read_the_order_alone():
    fitness = np.array([10.0, -3e38, 0.1, 0.2, 3e38], np.float32)
    expected = np.array([0.25, -0.5, -0.25, 0, 0.5], np.float32)
    assert_identical(shaping.centered_ranks(jnp.asarray(fitness)), jnp.asarray(expected))


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e30, 1e-30])
@pytest.mark.parametrize("n", [2, 7, 30])
@pytest.mark.parametrize("name", ["centered", "z_score", "group_relative"])
def test_equal_fitness_gives_exactly_zero_weights(name, n, value):
    fitness = np.full((n, 3) if name == "group_relative" else n, value, np.float32)
    assert (jax.jit(getattr(shaping, name))(fitness) == 0).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30, 1.5e38])
@pytest.mark.parametrize("name", ["z_score", "group_relative"])
def test_standardized_weights_do_not_depend_on_scale(name, scale):
    fitness = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
    given = getattr(shaping, name)(jnp.asarray(fitness * np.float32(scale)))
    np.testing.assert_allclose(given, getattr(shaping, name)(jnp.asarray(fitness)), rtol=1e-5)


@pytest.mark.parametrize("how", [pytest.param("A", marks=slow), "B"])
@pytest.mark.parametrize("name", SHAPINGS)
def test_a_mirrored_population_that_agrees_moves_nothing(name, how):
    n, params = 30, {"w": jnp.full((3, 4), 0.3), "b": jnp.ones(3)}
    es = make_es("low_rank_1", n, devices=8, how=how, shaping=getattr(shaping, name))
    pert, state = es.ask(es.init(jax.random.key(0), params))
    for value in (0.0, 0.1, -7.3, 1e30):
        fitness = np.full((n, 2) if name == "group_relative" else n, value, np.float32)
        assert_identical(es.tell(state, pert, fitness).params, params)


def test_a_shaping_of_the_user_weighs_members_as_it_says():
    params, fitness = {"w": jnp.zeros((3, 4))}, np.arange(8, dtype=np.float32)
    updates = []
    for one, scores in ((lambda f: jnp.where(f < 2, -1.0, 0.0), fitness), (shaping.none, -1.0 * (fitness < 2))):
        es = make_es("iid", 8, False, mesh=mesh_of(2), shaping=one)
        pert, state = es.ask(es.init(jax.random.key(0), params))
        updates.append(es.tell(state, pert, scores.astype(np.float32)).params)
    assert_identical(*updates)
    assert jnp.abs(updates[0]["w"]).min() > 0
