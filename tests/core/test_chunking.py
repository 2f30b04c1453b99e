"""How many members a device evaluates at once, and how many directions it draws at once, never changes the update."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import SeedRegenerated

from .programs import arrays_in, programs_in
from .support import IDS, STRATEGIES, assert_same_run, loss, make_es, make_params, run, slow

CASES = [(name, chunk, 1) for name in STRATEGIES for chunk in (1, 3, 8)] + [(name, 3, 8) for name in STRATEGIES]
FAST = {("seed", 3, 1), ("low_rank_1", 3, 8), ("user_structured", 3, 8)}
CASES = [case if case in FAST else pytest.param(*case, marks=slow) for case in CASES]


@pytest.mark.parametrize(("name", "chunk", "devices"), CASES)
def test_member_chunk(name, chunk, devices):
    assert_same_run(run(name, devices=devices, chunk=chunk), run(name, devices=1))


@slow
@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_member_chunk_of_unmirrored_members(chunk):
    assert_same_run(run("low_rank_1", n=7, mirrored=False, chunk=chunk), run("low_rank_1", n=7, mirrored=False))


@pytest.mark.parametrize("chunk", [4, pytest.param(100, marks=slow)])
def test_directions_regenerated_at_once(chunk):
    assert_same_run(run(SeedRegenerated(chunk=chunk)), run("seed"))


@pytest.mark.parametrize("chunk", [1, 3, 8, None])
@pytest.mark.parametrize("mirrored", [True, False])
def test_no_more_members_than_the_chunk_are_evaluated_at_once(mirrored, chunk):
    n = 24
    es = make_es("low_rank_1", n, mirrored, devices=1, member_chunk=chunk)
    state = es.init(jax.random.key(0), make_params())
    pert, state = es.ask(state)

    def members_of(aval):
        # Scores of the tiny model are the only arrays of five tokens by 16 rows.
        return aval.size // (5 * 16) if aval.shape[-2:] == (5, 16) else 0

    traced = jax.make_jaxpr(lambda state, pert: es.apply(loss, state, pert)(IDS))(state, pert)
    at_once = max(map(members_of, arrays_in(traced)))
    assert at_once <= (n if chunk is None else chunk)


@pytest.mark.parametrize(("size", "at_once"), [(2**4, 24), (2**18, 2)])
def test_as_many_members_as_the_caches_of_a_cpu_hold(size, at_once):
    """All of them where they are small; the two of one direction where each is larger than the caches."""
    es = make_es("low_rank_1", 24, devices=1)
    pert, state = es.ask(es.init(jax.random.key(0), make_params()))

    def function(params):
        return jnp.sum(params["gain"][0] * jnp.arange(size, dtype=jnp.float32))

    fitness = es.apply(function, state, pert)
    assert max(aval.size for aval in arrays_in(jax.make_jaxpr(fitness)())) == at_once * size
    gains = np.asarray(es.apply(lambda params: params["gain"][0], state, pert)())
    np.testing.assert_allclose(fitness(), gains * (size * (size - 1) / 2), rtol=1e-5)


@pytest.mark.parametrize(("chunk", "branches"), [(1, 1), (2, 0)])
def test_one_at_a_time_a_member_takes_one_branch(chunk, branches):
    """Several at once take both, and select."""
    es = make_es("low_rank_1", 24, devices=1, member_chunk=chunk)
    pert, state = es.ask(es.init(jax.random.key(0), make_params()))

    def function(params):
        return jax.lax.cond(params["gain"][0] > 1, jnp.sin, jnp.cos, params["gain"][1])

    traced = jax.make_jaxpr(es.apply(function, state, pert))()
    names = [equation.primitive.name for program in programs_in(traced) for equation in program.eqns]
    assert names.count("cond") == branches
