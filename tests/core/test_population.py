"""A population in parts, as each process of a run has one, is the whole."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from shardes import Mirrored
from shardes.leaves import Leaves
from shardes.population import Population

from .support import STRATEGIES, assert_identical, mesh_of, seen_params

DEVICES = 4
PARAMS = {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.ones(3)}
LEAVES = Leaves(PARAMS)
KEY = jax.random.key_data(jax.random.key(0))
SIGMA = [jnp.float32(0.1)] * 2


def population(name="iid", n=8):
    return Population(Mirrored(STRATEGIES[name]), n, mesh_of(DEVICES), None)


def part_of(whole, places):
    mesh = Mesh(whole.mesh.devices[list(places)], ("pop",), axis_types=(AxisType.Auto,))
    return dataclasses.replace(whole, mesh=mesh, places=places, split=DEVICES)


def evaluate(population, noise, own):
    def function(params, own, shared):
        return seen_params(params), own + shared

    found = population.evaluate(function, LEAVES, PARAMS, SIGMA, KEY, noise, (own, jnp.float32(1)), (0, None))
    return jax.device_get(found)


# Of 6 members the last device has none, of 2 the last part none; of 14 one direction of the last device is a ghost.
@pytest.mark.parametrize(
    ("name", "n", "parts"),
    [("iid", 6, [(0,), (1, 2), (3,)]), ("iid", 2, [(0, 1), (2, 3)]), ("seed", 14, [(0, 2), (1, 3)])],
    ids=str,
)
def test_parts_evaluate_their_members_as_the_whole_does(name, n, parts):
    whole = population(name, n)
    noise = whole.draw(LEAVES, KEY) if name == "iid" else None
    own = np.arange(n, dtype=np.float32)
    expected = evaluate(whole, noise, own)
    found = []
    for places in parts:
        part = part_of(whole, places)
        rows = np.concatenate([place * whole.local + np.arange(whole.local) for place in places])
        of_part = jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], noise)
        results = evaluate(part, of_part, own[part.members])
        assert_identical(results, jax.tree.map(lambda x, part=part: x[part.members], expected))
        found.append(part.members)
    assert sorted(np.concatenate(found)) == list(range(n))


@pytest.mark.parametrize("axes", [("pop", "model"), ("model", "pop")])
def test_the_part_of_a_process_has_one_device_of_each_place(axes):
    devices = np.array(jax.devices()).reshape((4, 2) if axes[0] == "pop" else (2, 4))
    mesh = Mesh(devices, axes, axis_types=(AxisType.Auto,) * 2)
    part = Population(Mirrored(STRATEGIES["iid"]), 14, mesh, None).of_process(0)
    assert list(part.mesh.devices) == list(devices[:, 0] if axes[0] == "pop" else devices[0])
    assert (part.places, part.split) == ((0, 1, 2, 3), 4)
    assert list(part.members) == list(range(14))
