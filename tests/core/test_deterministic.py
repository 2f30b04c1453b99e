"""`deterministic=True`: the same bits on any number of devices, however the generation is cut into programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes

from .support import IDS, lenient, loss, make_es, make_params, slow

CASES = {
    "low_rank_1": ("low_rank_1", {}),
    "low_rank_4 in chunks": ("low_rank_4", {"member_chunk": 4}),
    "seed": ("seed", {}),
    "iid, one member at once": ("iid", {"member_chunk": 1}),
    "not mirrored": ("low_rank_1", {"mirrored": False, "n": 7}),
    "z scores and adam": ("user_structured", {"shaping": shardes.shaping.z_score, "adam": True}),
}
FAST = {"low_rank_1", "z scores and adam"}
cases = pytest.mark.parametrize("case", [x if x in FAST else pytest.param(x, marks=slow) for x in CASES])


@functools.cache
def run(case, devices, deterministic=True, programs="step"):
    """Bytes of the state and of all fitness after three generations, as one program a generation or as three."""
    name, options = CASES[case]
    options = {"n": 30, **options}
    if options.pop("adam", False):
        options["optimizer"] = lenient(optax.adamw(0.05))
    es = make_es(name, devices=devices, deterministic=deterministic, **options)
    state, step, told = es.init(jax.random.key(3), make_params()), es.step(loss), []
    for _ in range(3):
        if programs == "step":
            state, fitness = step(state, IDS)
        else:
            pert, state = es.ask(state)
            fitness = es.apply(loss, state, pert)(IDS)
            state = es.tell(state, pert, jnp.asarray(np.asarray(fitness)))
        told.append(fitness)
    return [np.asarray(x).tobytes() for x in jax.tree.leaves((state, told))]


@cases
@pytest.mark.parametrize("devices", [pytest.param(2, marks=slow), pytest.param(3, marks=slow), 8])
def test_devices(case, devices):
    assert run(case, devices) == run(case, 1)


@cases
def test_programs(case):
    """Ask, apply and tell one by one on eight devices are the one program of `step` on a single device."""
    assert run(case, 8, programs="three") == run(case, 1)


def test_without_it_bits_differ():
    """What the tests above would catch: sums that are put together by devices."""
    assert run("low_rank_1", 8, deterministic=False) != run("low_rank_1", 1, deterministic=False)
