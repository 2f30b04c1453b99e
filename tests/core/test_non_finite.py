"""A fitness that is not finite counts as the worst of its generation; a generation of nothing else changes nothing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from shardes import shaping

from .support import SHAPINGS, assert_identical, lenient, make_es, make_params, mesh_of, slow

N = 8
PARAMS = {"w": jnp.full((3, 4), 0.5), "b": jnp.zeros(3)}
EPISODES = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
FITNESS = EPISODES[:, 0]
BAD = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
FAST = ("centered_ranks", "group_relative", "custom")
EVERY = [name if name in FAST else pytest.param(name, marks=slow) for name in (*SHAPINGS, "custom")]

with_one_score = pytest.mark.parametrize("name", [name for name in EVERY if name != "group_relative"])
with_episodes = pytest.mark.parametrize("name", EVERY)


def custom(fitness):
    return jnp.square(shaping.none(fitness)) - 1


@functools.cache
def trained(name, optimizer="adamw"):
    """An ES with momentum and weight decay, and its state after a sound generation."""
    one = custom if name == "custom" else getattr(shaping, name)
    options = {"optimizer": lenient(optax.adamw(0.1, weight_decay=0.1))} if optimizer == "adamw" else {"lr": 0.1}
    es = make_es("iid", N, mesh=mesh_of(2), shaping=one, **options)
    pert, state = es.ask(es.init(jax.random.key(0), PARAMS))
    pert, state = es.ask(es.tell(state, pert, EPISODES))
    return es, pert, state


def moved(state):
    return state.params, state.opt_state


@pytest.mark.parametrize("bad", BAD)
@with_one_score
def test_counts_as_the_worst(name, bad):
    es, pert, state = trained(name)
    broken, worst = FITNESS.copy(), FITNESS.copy()
    broken[[1, 4]] = BAD[bad]
    worst[[1, 4]] = np.delete(FITNESS, [1, 4]).max()
    told = es.tell(state, pert, broken)
    assert_identical(moved(told), moved(es.tell(state, pert, worst)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(moved(told)))
    assert told.non_finite == state.non_finite + 2
    assert told.skipped == state.skipped == 0


@with_episodes
def test_one_episode_counts_as_the_worst_of_that_episode(name):
    es, pert, state = trained(name)
    broken, worst = EPISODES.copy(), EPISODES.copy()
    broken[2, 1] = broken[2, 2] = np.nan
    broken[5, 1] = -np.inf
    worst[[2, 5], 1] = np.delete(EPISODES[:, 1], [2, 5]).max()
    worst[2, 2] = np.delete(EPISODES[:, 2], 2).max()
    told = es.tell(state, pert, broken)
    assert_identical(moved(told), moved(es.tell(state, pert, worst)))
    assert told.non_finite == state.non_finite + 2


@with_episodes
def test_an_episode_that_no_member_finishes_says_nothing(name):
    es, pert, state = trained(name)
    broken, level = EPISODES.copy(), EPISODES.copy()
    broken[:, 1], level[:, 1] = np.nan, 0
    told = es.tell(state, pert, broken)
    assert_identical(moved(told), moved(es.tell(state, pert, level)))
    assert told.non_finite == state.non_finite + N


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd", marks=slow)])
@with_episodes
def test_a_generation_of_nothing_else_changes_nothing(name, optimizer, bad):
    es, pert, state = trained(name, optimizer)
    told = es.tell(state, pert, np.full((N, 3), BAD[bad], np.float32))
    assert_identical(moved(told), moved(state))
    assert told.generation == state.generation
    assert told.non_finite == state.non_finite + N
    assert told.skipped == state.skipped + 1


@pytest.mark.parametrize(("name", "optimizer"), [("custom", "adamw"), pytest.param("none", "sgd", marks=slow)])
def test_an_update_that_is_not_finite_changes_nothing(name, optimizer):
    """Scores whose squares, or whose sum, are beyond float32."""
    es, pert, state = trained(name, optimizer)
    told = es.tell(state, pert, np.linspace(-3e38, 3e38, N, dtype=np.float32))
    assert_identical(moved(told), moved(state))
    assert told.non_finite == state.non_finite
    assert told.skipped == state.skipped + 1


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_weights_that_are_not_finite_change_nothing(weight):
    """Even where they meet no noise: zero times such a weight is not finite."""
    es = make_es("iid", N, shaping=lambda fitness: jnp.zeros(N).at[0].set(weight))
    state = es.init(jax.random.key(0), make_params())
    pert, state = es.ask(state)
    silent = dataclasses.replace(pert, noise=jax.tree.map(jnp.zeros_like, pert.noise))
    told = es.tell(state, silent, jnp.zeros(N))
    assert_identical(told.params, state.params)
    assert told.skipped == 1


def test_params_that_an_optimizer_breaks_change_nothing():
    broken = optax.stateless(lambda updates, params: jax.tree.map(lambda u: u * jnp.float32(jnp.inf), updates))
    es = make_es("iid", N, optimizer=broken)
    state = es.init(jax.random.key(0), make_params())
    pert, state = es.ask(state)
    told = es.tell(state, pert, jnp.arange(N, dtype=jnp.float32))
    assert_identical(told.params, state.params)
    assert told.skipped == 1


def test_a_run_survives_members_that_break():
    """A loss that is NaN for some members of most generations, and then for all."""
    es = make_es("low_rank_1", 16, devices=8, sigma=0.5, lr=0.1)
    step = es.step(
        lambda params, limit: jnp.where(params["b"].sum() > limit, jnp.nan, jnp.mean((params["b"] - 1) ** 2))
    )
    state, broken = es.init(jax.random.key(0), {"b": jnp.zeros(3)}), 0
    for _ in range(10):
        state, fitness = step(state, jnp.float32(0.5))
        broken += np.isnan(fitness).sum()
        assert np.isfinite(state.params["b"]).all()
    assert 0 < broken < 160
    before = jax.device_get(state.params)
    state, fitness = step(state, jnp.float32(-100))
    assert np.isnan(fitness).all()
    assert_identical(jax.device_get(state.params), before)
    assert state.non_finite == broken + 16
    assert state.skipped == 1
    assert state.generation == 11
