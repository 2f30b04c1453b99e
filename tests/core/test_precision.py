"""Narrow params have a float32 master: the model computes in the dtype it is given, and small steps are not lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import StructuredWeight, shaping

from .support import IDS, every_strategy, loss, make_es, make_params, noise_of, seen_params, slow, strategies

NARROW = [jnp.bfloat16, jnp.float16]


def cast(params, dtype):
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, params)


def dtypes_of(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]


@pytest.mark.parametrize("dtype", NARROW)
def test_the_master_is_float32_and_has_the_values_of_the_params(dtype):
    params = cast(make_params(), dtype)
    state = make_es().init(jax.random.key(0), params)
    assert set(dtypes_of(state.params)) == {jnp.dtype(jnp.float32)}
    for master, given in zip(jax.tree.leaves(state.params), jax.tree.leaves(params), strict=True):
        assert (master == given.astype(master.dtype)).all()


@pytest.mark.parametrize(("compute", "expected"), [(None, jnp.float32), (jnp.bfloat16, jnp.bfloat16)])
@every_strategy
def test_a_model_sees_the_compute_dtype_in_every_leaf(name, compute, expected):
    seen = []

    def see(params):
        leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, StructuredWeight))
        seen.extend((type(leaf), leaf.dtype) for leaf in leaves if leaf.dtype != jnp.int32)
        seen.extend((None, dtype) for dtype in dtypes_of(params))
        return 0.0

    es = make_es(name, compute_dtype=compute)
    pert, state = es.ask(es.init(jax.random.key(0), cast(make_params(), jnp.bfloat16)))
    es.apply(see, state, pert)()
    assert {dtype for _, dtype in seen} == {jnp.dtype(expected)}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, pytest.param(jnp.float16, marks=slow)])
@every_strategy
def test_members_are_the_float32_members_rounded(name, dtype):
    members = []
    for compute in (None, dtype):
        es = make_es(name, compute_dtype=compute)
        pert, state = es.ask(es.init(jax.random.key(0), cast(make_params(), dtype)))
        members.append(es.apply(lambda params: seen_params(params), state, pert)())
    wide, narrow = map(jax.tree.leaves, members)
    for a, b in zip(wide, narrow, strict=True):
        np.testing.assert_allclose(b.astype(a.dtype), a, rtol=0.02, atol=0.02)


@strategies("low_rank_1", "user_dense")
def test_a_bfloat16_model_trains(name):
    es = make_es(name, 64, sigma=0.1, lr=0.05, compute_dtype=jnp.bfloat16)
    state, step, means = es.init(jax.random.key(0), cast(make_params(), jnp.bfloat16)), es.step(loss), []
    for _ in range(40):
        state, fitness = step(state, IDS)
        assert fitness.dtype == jnp.float32
        means.append(float(fitness.mean()))
    assert means[-1] < 0.5 * means[0]
    assert set(dtypes_of(state.params)) == {jnp.dtype(jnp.float32)}


def test_a_hundred_steps_below_the_resolution_of_bfloat16_add_up():
    """Steps of a thousandth of the distance between neighbours of 1.0 in bfloat16, against their sum in float64."""
    es = make_es("iid", 8, sigma=1.0, lr=1.0, compute_dtype=jnp.bfloat16, shaping=shaping.none)
    pert, state = es.ask(es.init(jax.random.key(0), {"w": jnp.ones((3, 4), jnp.bfloat16)}))
    fitness = 1e-4 * np.random.default_rng(0).normal(size=8).astype(np.float32)
    noise = noise_of(es.strategy, 8, {"w": jnp.zeros((3, 4))})["w"].astype(np.float64)
    for _ in range(100):
        state = es.tell(state, pert, fitness)
    expected = 1 - 100 / 8 * np.tensordot(fitness, noise, axes=1)
    assert 1e-5 < np.abs(expected - 1).max() / 100 < 2.0**-8 / 10
    np.testing.assert_allclose(state.params["w"], expected, rtol=0, atol=2e-5)
