"""A frozen leaf is not perturbed, not drawn for and not updated, and leaves the noise of the others as it was."""

import jax
import jax.numpy as jnp
import numpy as np

from shardes import Frozen, Stacked
from shardes.nn import check_model

from .programs import arrays_in
from .support import IDS, STRATEGIES, assert_identical, loss, make_es, make_params, noise_of, some_strategies

FROZEN = ("embed", "blocks/layers/b")


def freeze(path):
    return path in FROZEN


@some_strategies
def test_frozen_leaves_keep_every_bit(name):
    params = make_params()
    es = make_es(name, 30, freeze=freeze)
    state, _ = es.step(loss)(es.init(jax.random.key(0), params), IDS)
    assert_identical(state.params["embed"], params["embed"])
    assert_identical(state.params["blocks"].layers["b"], params["blocks"].layers["b"])
    assert (state.params["gain"] != params["gain"]).all()
    assert (state.params["blocks"].layers["w"] != params["blocks"].layers["w"]).all()


@some_strategies
def test_members_see_frozen_leaves_unperturbed_and_the_noise_of_the_others_as_it_was(name):
    without = noise_of(STRATEGIES[name], 6, make_params())
    with_frozen = noise_of(STRATEGIES[name], 6, make_params(), freeze=freeze)
    assert (with_frozen["embed"] == 0).all()
    assert (with_frozen["blocks"].layers["b"] == 0).all()
    for one in (without, with_frozen):
        one.pop("embed")
        one["blocks"].layers.pop("b")
    for a, b in zip(jax.tree.leaves(with_frozen), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


@some_strategies
def test_nothing_is_drawn_for_frozen_leaves(name):
    """No array of words has the size of what a strategy draws for a frozen matrix of 240 x 200."""
    params = {"big": jnp.zeros((240, 200)), "small": jnp.zeros((3, 5))}

    def words(freeze):
        es = make_es(name, 4, how="A", freeze=freeze)
        step = es.step(lambda params: jnp.sum(params["small"] if name[:3] != "low" else params["small"].right))
        traced = step.trace(es.init(jax.random.key(0), params)).jaxpr
        return max(aval.size for aval in arrays_in(traced) if aval.dtype == jnp.uint32)

    assert words(None) >= 440
    assert words(lambda path: path == "big") < 440


def test_what_the_params_say_is_frozen_is_so():
    """As by the argument: the same noise for the others, and the frozen leaves as they were, in every dtype."""
    marked = {**make_params(), "embed": Frozen(make_params()["embed"])}
    es, reference = make_es("low_rank_1", 8), make_es("low_rank_1", 8, freeze=lambda path: path == "embed")

    def read(params, ids):
        return loss({**params, "embed": params["embed"].tree}, ids)

    state, fitness = es.step(read)(es.init(jax.random.key(0), marked), IDS)
    expected, losses = reference.step(loss)(reference.init(jax.random.key(0), make_params()), IDS)
    np.testing.assert_allclose(fitness, losses, rtol=1e-6)
    assert_identical(state.params["embed"].tree, make_params()["embed"])
    np.testing.assert_allclose(state.params["gain"], expected.params["gain"], rtol=1e-6)
    assert jax.tree.structure(state.params) == jax.tree.structure(marked)
    assert check_model(read, marked, IDS) == []
    assert {
        finding.leaf for finding in check_model(lambda params: params["embed"].tree @ params["embed"].tree.T, marked)
    } == {
        "blocks/layers/b",
        "blocks/layers/w",
        "gain",
    }


def test_paths_name_every_leaf_once():
    seen = []
    params = {"a": [jnp.zeros(2), jnp.zeros(3)], "b": Stacked({"c": jnp.zeros((2, 2)), "d": (jnp.zeros(2),)})}
    make_es(freeze=lambda path: seen.append(path) or path == "a/0").init(jax.random.key(0), params)
    assert set(seen) == {"a/0", "a/1", "b/layers/c", "b/layers/d/0"}


def test_a_frozen_leaf_of_any_dtype_stays_as_it_is():
    params = {"w": jnp.zeros(3), "c": jnp.ones(2, jnp.complex64), "h": jnp.ones(2, jnp.float16), "i": jnp.arange(3)}
    es = make_es(freeze=lambda path: path in ("c", "h"))
    pert, state = es.ask(es.init(jax.random.key(0), params))
    state = es.tell(state, pert, jnp.arange(8.0))
    for name in ("c", "h", "i"):
        assert_identical(state.params[name], params[name])
