"""Placement A moves fitness alone, placement B the params once more, and both give the same update."""

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from .programs import collectives_in
from .support import IDS, assert_same_run, compiled_step, every_strategy, make_params, mesh_of, run

# 30 members are 15 directions, dealt out as 2 to each of 8 devices: with ghosts, 32 members.
FITNESS = 32
TRAINED = 16 * 4 + 3 * 4 * 4 + 3 * 4 + 4


def collectives_of(name, how):
    es, step = compiled_step(name, how, 8, 30, True, None)
    return collectives_in(step.lower(es.init(jax.random.key(0), make_params()), IDS).compile())


@every_strategy
def test_both_give_the_same_update(name):
    assert_same_run(run(name, "A", devices=8), run(name, "B", devices=8))


@every_strategy
def test_a_gathers_the_fitness_and_no_more(name):
    assert collectives_of(name, "A") == {"all-gather": FITNESS}


@every_strategy
def test_b_also_reduces_the_params_once(name):
    assert collectives_of(name, "B") == {"all-gather": FITNESS, "all-reduce": TRAINED}


def test_every_kind_of_collective_is_seen():
    def body(x):
        around = [(i, (i + 1) % 8) for i in range(8)]
        eight = jnp.tile(x, 8)
        return (
            jax.lax.all_gather(x, "pop").sum(0)
            + jax.lax.psum(x, "pop")
            + jax.lax.ppermute(x, "pop", around)
            + jax.lax.psum_scatter(eight, "pop", tiled=True)
            + jax.lax.all_to_all(eight, "pop", 0, 0, tiled=True)[:3]
        )

    program = jax.jit(jax.shard_map(body, mesh=mesh_of(8), in_specs=P("pop"), out_specs=P("pop")))
    assert collectives_in(program.lower(jnp.zeros(24)).compile()) == {
        "all-gather": 24, "all-reduce": 3, "collective-permute": 3, "reduce-scatter": 3, "all-to-all": 24,
    }  # fmt: skip
