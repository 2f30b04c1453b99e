"""Arguments that every member has its own of reach their members, in order, whatever is padded or chunked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .support import assert_identical, make_es, mesh_of

PARAMS = {"b": jnp.zeros(3)}
SETUPS = {
    "mirrored, 1 device": (6, True, 1, None),
    "mirrored, ghosts": (6, True, 8, None),
    "mirrored, ghosts, chunks": (30, True, 8, 3),
    "unmirrored, ghosts": (7, False, 8, None),
    "unmirrored, ghosts, chunks": (7, False, 2, 3),
    "one at a time": (6, True, 1, 1),
}
every_setup = pytest.mark.parametrize(("n", "mirrored", "devices", "chunk"), SETUPS.values(), ids=SETUPS)


def asked(n, mirrored, devices, chunk):
    es = make_es("iid", n, mirrored, mesh=mesh_of(devices), member_chunk=chunk)
    return es, *es.ask(es.init(jax.random.key(0), PARAMS))


@every_setup
def test_each_member_meets_its_own(n, mirrored, devices, chunk):
    """Mapped pytrees and typed keys beside an array that is shared, in a function of params and all of them."""
    es, pert, state = asked(n, mirrored, devices, chunk)
    own = {"x": jnp.arange(2.0 * n).reshape(n, 2), "key": jax.random.split(jax.random.key(1), n)}
    shared = jnp.array([5.0, 7.0])

    def function(params, own, shared):
        word = jax.random.key_data(own["key"])
        return params["b"], own["x"] + shared, word

    members = es.apply(lambda params: params["b"], state, pert)()
    seen, sums, words = es.apply(function, state, pert, in_axes=(0, None))(own, shared)
    np.testing.assert_allclose(seen, members, rtol=0, atol=1e-7)
    assert_identical(sums, own["x"] + jnp.tile(shared, (n, 1)))
    assert_identical(words, jax.random.key_data(own["key"]))


@every_setup
def test_in_axes_of_0_maps_every_argument(n, mirrored, devices, chunk):
    es, pert, state = asked(n, mirrored, devices, chunk)
    first, second = np.arange(n, dtype=np.int32), np.arange(3.0 * n, dtype=np.float32).reshape(n, 3)
    given = es.apply(lambda params, *args: args, state, pert, in_axes=0)(first, second)
    assert_identical(jax.device_get(given), (first, second))


def test_they_count_in_the_fitness():
    """Losses of members that each score their own input, against numpy."""
    n = 30
    es, pert, state = asked(n, True, 8, None)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    members = np.asarray(es.apply(lambda params: params["b"], state, pert)())
    fitness = es.apply(lambda params, x: jnp.sum((params["b"] - x) ** 2), state, pert, in_axes=0)(x)
    np.testing.assert_allclose(fitness, np.sum((members - x) ** 2, axis=1), rtol=1e-5)


def test_under_one_jit_with_the_rest():
    n = 7
    es, pert, state = asked(n, False, 8, None)
    x = jnp.arange(3.0 * n).reshape(n, 3)

    @jax.jit
    def fitness(state, pert, x):
        return es.apply(lambda params, x, scale: scale * jnp.sum(params["b"] - x), state, pert, (0, None))(
            x, jnp.float32(2)
        )

    np.testing.assert_allclose(fitness(state, pert, x)[3:], fitness(state, pert, x.at[:3].set(0))[3:])
