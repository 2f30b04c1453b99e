"""Generation t uses schedule(t), for lr and sigma, in what ask says, in what apply does and in what tell does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from shardes import IIDGaussian, Mirrored, shaping

from .support import assert_identical, make_es, noise_of

N = 6
ZERO = {"w": jnp.zeros((3, 4)), "b": jnp.zeros(3)}
FITNESS = np.random.default_rng(0).normal(size=(3, N)).astype(np.float32)


def lr(generation):
    return jnp.float32(0.5) / (generation + 1).astype(jnp.float32)


def sigma(generation):
    return jnp.float32(0.1) * (generation + 1).astype(jnp.float32)


def sigma_tree(generation):
    return {"w": sigma(generation), "b": 2 * sigma(generation)}


def scale_of(sigma, generation):
    value = sigma(jnp.int32(generation))
    return value if isinstance(value, dict) else dict.fromkeys(ZERO, value)


def check_generation(generation, sigma, pert, seen, before, after):
    scale = scale_of(sigma, generation)
    assert pert.lr == lr(jnp.int32(generation))
    noise = noise_of(Mirrored(IIDGaussian()), N, ZERO, generation=generation)
    for name in ZERO:
        np.testing.assert_allclose(seen[name], before[name][None] + scale[name] * noise[name], rtol=0, atol=1e-6)
        step = -pert.lr / (N * scale[name]) * np.tensordot(FITNESS[generation], noise[name], axes=1)
        np.testing.assert_allclose(after[name], before[name] + step, rtol=0, atol=1e-5)


@pytest.mark.parametrize("sigma", [sigma, sigma_tree], ids=["one", "a leaf"])
def test_ask_apply_and_tell_read_the_schedule_of_the_generation(sigma):
    es = make_es("iid", N, sigma=sigma, lr=lr, shaping=shaping.none)
    state = es.init(jax.random.key(0), ZERO)
    for generation in range(3):
        before = jax.device_get(state.params)
        pert, state = es.ask(state)
        seen = es.apply(lambda params: params, state, pert)()
        state = es.tell(state, pert, FITNESS[generation])
        check_generation(generation, sigma, pert, jax.device_get(seen), before, jax.device_get(state.params))


def test_tell_keeps_to_the_generation_of_the_perturbation():
    es = make_es("iid", N, sigma=sigma, lr=lr, shaping=shaping.none)
    perts, state = [], es.init(jax.random.key(0), ZERO)
    for _ in range(3):
        pert, state = es.ask(state)
        perts.append(pert)
    assert state.generation == 3
    for generation in (2, 0, 1):
        seen = es.apply(lambda params: params, state, perts[generation])()
        after = es.tell(state, perts[generation], FITNESS[generation]).params
        check_generation(generation, sigma, perts[generation], *map(jax.device_get, (seen, ZERO, after)))


def test_step_reads_the_schedule_as_ask_apply_and_tell_do():
    es = make_es("low_rank_1", N, sigma=sigma, lr=lr)
    loss = lambda params: jnp.mean((params["b"] - 1) ** 2)  # noqa: E731
    step = es.step(loss)
    whole = apart = es.init(jax.random.key(0), ZERO)
    whole = jax.tree.map(jnp.copy, whole)
    for _ in range(3):
        whole, _ = step(whole)
        pert, apart = es.ask(apart)
        apart = es.tell(apart, pert, es.apply(loss, apart, pert)())
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_a_schedule_of_optax_is_one():
    es = make_es("iid", N, sigma=optax.constant_schedule(0.1), lr=optax.linear_schedule(1.0, 0.0, 4))
    state = es.init(jax.random.key(0), ZERO)
    rates = []
    for _ in range(5):
        pert, state = es.ask(state)
        rates.append(pert.lr)
        assert_identical(pert.sigma, jnp.float32(0.1))
    np.testing.assert_allclose(rates, [1, 0.75, 0.5, 0.25, 0])
