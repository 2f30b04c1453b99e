"""The update does not depend on how many devices share the population, nor on which key implementation seeds it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import shardes
import shardes.nn

from .support import KEYS, STRATEGIES, assert_identical, assert_same_run, every_strategy, make_es, mesh_of, run, slow

SIZES = {"n=64": (64, True), "n=30": (30, True), "n=7 unmirrored": (7, False)}


def is_fast(name, devices, size):
    return devices == 8 and (name, size) in {
        ("seed", "n=7 unmirrored"),
        ("low_rank_1", "n=30"),
        ("user_structured", "n=30"),
    }


CASES = [
    pytest.param(name, devices, how, *SIZES[size], id=f"{name}-{devices} devices-{how}-{size}",
                 marks=() if is_fast(name, devices, size) else slow)
    for name in STRATEGIES
    for size in SIZES
    for devices in (1, 2, 4, 8)
    for how in ("A", "B")
    if (devices, how) != (1, "B")
]  # fmt: skip


@pytest.mark.parametrize(("name", "devices", "how", "n", "mirrored"), CASES)
def test_runs_agree_with_one_device(name, devices, how, n, mirrored):
    assert_same_run(run(name, how, devices, n, mirrored), run(name, "B", 1, n, mirrored))


@pytest.mark.parametrize("key", KEYS)
@every_strategy
def test_runs_agree_for_every_key_implementation(name, key):
    assert_same_run(run(name, devices=8, key=key), run(name, devices=1, key=key))


def test_a_raw_key_is_the_key():
    for kind in ("threefry2x32", "rbg", "unsafe_rbg"):
        assert_identical(run("low_rank_1", key=kind).after, run("low_rank_1", key=f"raw {kind}").after)


@pytest.mark.parametrize(
    ("name", "how", "n", "mirrored"),
    [
        ("seed", "B", 7, False),
        ("low_rank_1", "B", 14, True),
        pytest.param("iid", "B", 14, True, marks=slow),
        pytest.param("iid", "A", 7, False, marks=slow),
        pytest.param("user_structured", "B", 7, False, marks=slow),
    ],
)
def test_ghosts_contribute_nothing(name, how, n, mirrored):
    """Seven directions have no ghost on 7 devices and one on 8 and on 2; sums of one member agree to the bit."""
    params = {"w": jnp.zeros((3, 4)), "b": jnp.zeros(4)}
    noise = {}
    for devices in (7, 8, 2):
        es = make_es(name, n, mirrored, devices, how=how, shaping=shardes.shaping.none)
        pert, state = es.ask(es.init(jax.random.key(0), params))
        noise[devices] = [jax.device_get(es.tell(state, pert, one).params) for one in np.eye(n, dtype=np.float32)]
    assert all(np.abs(leaf).min() > 0 for leaf in jax.tree.leaves(noise[7]))
    assert_identical(noise[8], noise[7])
    assert_identical(noise[2], noise[7])


@pytest.mark.parametrize("how", [pytest.param("A", marks=slow), "B"])
def test_ranks_give_the_update_that_one_device_gives(how):
    fitness = np.random.default_rng(0).normal(size=30).astype(np.float32)
    updates = []
    for devices in (1, 8):
        es = make_es("low_rank_1", 30, devices=devices, how=how)
        pert, state = es.ask(es.init(jax.random.key(0), {"w": jnp.zeros((3, 4))}))
        updates.append(es.tell(state, pert, fitness).params["w"])
    np.testing.assert_allclose(*updates, rtol=0, atol=1e-5 * jnp.abs(updates[0]).max())


def test_other_axes_of_a_mesh_are_left_alone():
    mesh = jax.make_mesh((2, 4), ("model", "pop"), axis_types=(AxisType.Auto, AxisType.Auto))
    fitness, params = [], []
    for one in (mesh, mesh_of(1)):
        es = make_es("low_rank_1", 30, mesh=one)
        state, losses = es.step(lambda p: jnp.sum(shardes.nn.dense(jnp.ones((1, 4)), p["w"])))(
            es.init(jax.random.key(0), {"w": jnp.ones((3, 4))})
        )
        fitness.append(losses)
        params.append(state.params["w"])
    np.testing.assert_allclose(*fitness, rtol=1e-6)
    np.testing.assert_allclose(*params, rtol=1e-6)
