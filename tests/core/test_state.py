"""The state: donation spares what the user holds, it is all that a run carries, and step is ask, apply and tell."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from shardes import ESState, random

from .support import IDS, assert_identical, loss, make_es, make_params, seen_params, some_strategies

devices = pytest.mark.parametrize("devices", [1, 8])


def trained(params):
    return [leaf for leaf in jax.tree.leaves(params) if leaf.dtype == jnp.float32]


def nearly_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@devices
def test_step_donates_its_own_copies_and_not_what_the_user_holds(devices):
    params, key = make_params(), jax.random.key_data(jax.random.key(0))
    copies = jax.device_get((params, key))
    es = make_es("low_rank_1", devices=devices, optimizer=optax.sgd(0.1, momentum=0.9))
    first = es.init(key, params)
    second, _ = es.step(loss)(first, IDS)
    assert first.params["embed"].is_deleted()
    assert not second.params["embed"].is_deleted()
    assert_identical(jax.device_get((params, key)), copies)


def test_an_optimizer_that_keeps_the_params_keeps_a_copy():
    """As schedule-free and lookahead do: the state must own all that is donated."""
    keeping = optax.GradientTransformation(lambda params: params, lambda updates, state, params: (updates, state))
    params = make_params()
    es = make_es("low_rank_1", devices=1, optimizer=keeping)
    state, _ = es.step(loss)(es.init(jax.random.key(0), params), IDS)
    state, _ = es.step(loss)(state, IDS)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((params, state)))


@devices
def test_params_of_numpy_are_copied(devices):
    params = {"w": np.zeros((3, 4), np.float32), "count": np.int32(3)}
    state = make_es(devices=devices).init(jax.random.key(0), params)
    params["w"][:] = 1
    assert_identical(jax.device_get(state.params), {"w": np.zeros((3, 4), np.float32), "count": np.int32(3)})


@devices
def test_every_array_of_a_state_is_on_every_device(devices):
    es = make_es(devices=devices, optimizer=optax.sgd(0.1, momentum=0.9))
    state = es.init(jax.random.key(0), make_params())
    told, _ = es.step(loss)(jax.tree.map(jnp.copy, state), IDS)
    for leaf in jax.tree.leaves((state, told)):
        assert leaf.is_fully_replicated
        assert leaf.sharding.device_set == set(es.mesh.devices.flat)


def test_the_first_state():
    key = jax.random.key(3)
    state = make_es().init(key, make_params())
    assert isinstance(state, ESState)
    assert_identical(state, ESState(make_params(), (), random.root_key(key), *[jnp.int32(0)] * 3))


@some_strategies
def test_step_is_ask_apply_and_tell(name):
    es = make_es(name, 30)
    state = es.init(jax.random.key(0), make_params())

    def generation(state):
        pert, state = es.ask(state)
        fitness = es.apply(loss, state, pert)(IDS)
        return es.tell(state, pert, fitness), fitness

    eager, traced = generation(state), jax.jit(generation)(state)
    stepped = es.step(loss)(state, IDS)
    nearly_equal(eager, stepped)
    nearly_equal(traced, stepped)


def test_a_state_survives_flattening_and_the_host():
    """Rebuilt from leaves that went through the host, and continued by another ES, a run goes on to the same bits."""
    options = {"name": "low_rank_1", "n": 30, "optimizer": optax.sgd(0.1, momentum=0.9)}
    es, again = make_es(**options), make_es(**options)
    state, _ = es.step(loss)(es.init(jax.random.key(0), make_params()), IDS)
    leaves, structure = jax.tree.flatten(state)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    rebuilt = jax.tree.unflatten(structure, jax.device_get(leaves))
    assert_identical(again.step(loss)(rebuilt, IDS), es.step(loss)(state, IDS))


@some_strategies
def test_every_ask_draws_anew_and_asking_changes_nothing(name):
    es = make_es(name)
    first = es.init(jax.random.key(0), make_params())
    pert, second = es.ask(first)
    later, third = es.ask(second)
    assert_identical(es.ask(first)[0], pert)
    assert_identical(second._replace(generation=first.generation), first)
    assert (first.generation, second.generation, third.generation) == (0, 1, 2)
    now, then = (trained(es.apply(seen_params, second, one)()) for one in (pert, later))
    assert all((a != b).any() for a, b in zip(now, then, strict=True))


@devices
def test_outputs_of_any_structure_get_a_leading_axis_of_n(devices):
    def outputs(params, x):
        return {"sum": params["gain"].sum() + x, "many": (jnp.arange(3), params["target"] > 2), "text": None}

    es = make_es(n=10, devices=devices)
    pert, state = es.ask(es.init(jax.random.key(0), make_params()))
    given = es.apply(outputs, state, pert)(jnp.float32(1))
    assert jax.tree.map(lambda x: (x.shape, x.dtype.name), given) == {
        "sum": ((10,), "float32"), "many": (((10, 3), "int32"), ((10, 5), "bool")), "text": None,
    }  # fmt: skip
    assert_identical(given["many"][0], jnp.tile(jnp.arange(3), (10, 1)))


def test_a_state_from_before_ask_moves_on_as_well():
    """Or every generation would have the noise of the first."""
    es = make_es("low_rank_1", devices=1)
    state = other = es.init(jax.random.key(0), make_params())
    for generation in range(2):
        pert, asked = es.ask(state)
        fitness = es.apply(loss, asked, pert)(IDS)
        state = es.tell(asked, pert, fitness)
        pert, _ = es.ask(other)
        other = es.tell(other, pert, es.apply(loss, other, pert)(IDS))
        assert int(other.generation) == generation + 1
        assert_identical(jax.device_get(other), jax.device_get(state))


def test_a_perturbation_of_before_takes_no_state_back():
    es = make_es("low_rank_1", devices=1)
    pert, state = es.ask(es.init(jax.random.key(0), make_params()))
    _, state = es.ask(state)
    assert int(es.tell(state, pert, jnp.arange(es.n, dtype=jnp.float32)).generation) == 2
