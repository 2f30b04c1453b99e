"""A function sees one batch axis however deep it is under vmap, and gives what it gives without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.tasks import functional
from shardes.tasks.batching import flat
from shardes.tasks.heads import Box


def function(tree, y):
    return {"sum": jnp.sum(tree["x"]) * y, "sorted": jnp.sort(tree["x"])}


TREE = {"x": jnp.arange(2 * 3 * 4 * 5, dtype=jnp.float32).reshape(2, 3, 4, 5) % 7}


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_it_gives_what_nested_vmap_gives(depth, shared):
    tree = jax.tree.map(lambda x: x[(0,) * (3 - depth)], TREE)
    y = jnp.float32(2) if shared else jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)[(0,) * (3 - depth)]
    ours, plain = flat(function), function
    for _ in range(depth):
        in_axes = (0, None if shared else 0)
        ours, plain = jax.vmap(ours, in_axes), jax.vmap(plain, in_axes)
    for a, b in zip(jax.tree.leaves(jax.jit(ours)(tree, y)), jax.tree.leaves(plain(tree, y)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_only_some_levels_map_is_shared_by_the_others():
    y = jnp.arange(3.0)
    ours, plain = (jax.vmap(jax.vmap(f, (0, None)), (None, 0)) for f in (flat(function), function))
    tree = jax.tree.map(lambda x: x[0, 0], TREE)
    np.testing.assert_array_equal(ours(tree, y)["sum"], plain(tree, y)["sum"])


def test_the_program_has_one_batch_axis():
    mapped = jax.vmap(jax.vmap(jax.vmap(flat(function), (0, None)), (0, None)), (0, None))
    text = str(
        jax.make_jaxpr(lambda tree: jax.lax.scan(lambda c, _: (c, mapped(c, jnp.float32(1))), tree, None, 2))(TREE)
    )
    sorts = [line for line in text.splitlines() if " sort[" in line]
    assert sorts
    assert all("f32[24,5]" in line for line in sorts)


def test_a_task_steps_all_members_signs_and_episodes_as_one_batch():
    def step(x, action):
        x = jnp.sort(x + action[0])
        return x, x, jnp.sum(x), False

    def reset(key):
        x = jax.random.normal(key, (5,))
        return x, x

    task = functional(reset, step, action=Box([-1.0], [1.0]), episode_length=2, episodes=3)
    mesh = shardes.make_mesh(jax.devices()[:1])
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 8, sigma=0.1, lr=0.1, mesh=mesh)
    pert, state = es.ask(es.init(jax.random.key(0), task.init(jax.random.key(1))))
    text = str(jax.make_jaxpr(lambda key: task.evaluate(es, state, pert, key))(jax.random.key(2)))
    sorts = [line for line in text.splitlines() if " sort[" in line]
    assert sorts
    assert all("f32[24,5]" in line for line in sorts)
