"""Stacked layers: every layer is a leaf of its own, and what is stacked does not count as an axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import IIDGaussian, LowRank, Stacked

from .programs import equations_in
from .support import IDS, STRATEGIES, assert_identical, loss, make_es, make_params, noise_of, some_strategies


def noise(strategy, params):
    return noise_of(strategy, 6, params)


def test_it_is_a_pytree_that_names_its_leaves():
    stacked = Stacked({"w": jnp.zeros((2, 3))})
    assert isinstance(jax.tree.map(lambda x: x + 1, stacked), Stacked)
    assert repr(Stacked([1])) == "Stacked([1])"
    ((path, _),) = jax.tree.leaves_with_path({"blocks": stacked})
    assert jax.tree_util.keystr(path, simple=True, separator="/") == "blocks/layers/w"
    assert isinstance(jax.jit(lambda s: s)(stacked), Stacked)


@some_strategies
def test_layers_draw_what_the_leaves_of_a_list_draw(name):
    """Layer l of the only stacked leaf has the noise that leaf l of as many has."""
    stacked = noise(STRATEGIES[name], {"blocks": Stacked({"w": jnp.zeros((3, 4, 5))})})["blocks"].layers["w"]
    listed = noise(STRATEGIES[name], {"blocks": [jnp.zeros((4, 5))] * 3})["blocks"]
    for layer in range(3):
        np.testing.assert_allclose(stacked[:, layer], listed[layer], rtol=0, atol=1e-6)


@some_strategies
def test_nested_stacks_count_one_axis_each(name):
    nested = Stacked(Stacked(jnp.zeros((2, 3, 4, 5))))
    flat = Stacked(jnp.zeros((6, 4, 5)))
    given = noise(STRATEGIES[name], nested).layers.layers
    np.testing.assert_allclose(given.reshape(6, 6, 4, 5), noise(STRATEGIES[name], flat).layers, rtol=0, atol=1e-6)


def test_low_rank_noise_of_a_stack_is_factored_layer_by_layer():
    """A stacked matrix has rank 1 in every layer alone; a stacked vector is dense, a matrix of its shape is not."""
    given = noise(
        LowRank(1), {"s": Stacked({"w": jnp.zeros((3, 4, 4)), "v": jnp.zeros((3, 5))}), "plain": jnp.zeros((3, 5))}
    )
    matrices = given["s"].layers["w"]
    assert (np.linalg.matrix_rank(matrices, rtol=1e-5) == 1).all()
    assert (np.linalg.matrix_rank(matrices.reshape(6, 3, 16), rtol=1e-5) == 3).all()
    assert (np.linalg.matrix_rank(given["s"].layers["v"], rtol=1e-5) == 3).all()
    assert (np.linalg.matrix_rank(given["plain"], rtol=1e-5) == 1).all()


def test_a_structured_weight_shows_its_stacking_axes_and_a_layer_of_it_does_not():
    shapes = []

    def see(params):
        weight = params["blocks"].layers["w"]
        jax.lax.scan(lambda x, w: (x, shapes.append((w.shape, w.ndim))), 0, weight)
        shapes.append((weight.shape, weight.ndim))
        assert isinstance(weight, shardes.StructuredWeight)
        assert not isinstance(params["blocks"].layers["b"], shardes.StructuredWeight)
        return 0.0

    es = make_es("low_rank_1")
    pert, state = es.ask(es.init(jax.random.key(0), make_params()))
    es.apply(see, state, pert)()
    assert set(shapes) == {((4, 4), 2), ((3, 4, 4), 3)}


@some_strategies
def test_a_program_does_not_grow_with_the_number_of_layers(name):
    def equations(layers):
        params = make_params()
        blocks = jax.tree.map(lambda x: jnp.repeat(x[:1], layers, axis=0), params["blocks"])
        es = make_es(name)
        state = es.init(jax.random.key(0), {**params, "blocks": blocks})
        return equations_in(es.step(loss).trace(state, IDS).jaxpr)

    assert equations(24) == equations(2)


def test_unstacked_layers_would_share_nothing_but_the_shape():
    """Two leaves of one shape, and two stacks of one shape, draw differently."""
    given = noise(
        IIDGaussian(), {"a": jnp.zeros((3, 4)), "b": jnp.zeros((3, 4)), "s": Stacked([jnp.zeros((2, 3, 4))] * 2)}
    )
    layers = [given["a"], given["b"], *(x[:, i] for x in given["s"].layers for i in range(2))]
    for i, a in enumerate(layers):
        for b in layers[:i]:
            assert (a != b).all()


def test_too_few_axes_are_refused():
    with pytest.raises(ValueError, match=r"The leaf 'blocks/layers/s' of shape \(\) lies under 1 shardes.Stacked"):
        make_es().init(jax.random.key(0), {"blocks": Stacked({"s": jnp.float32(1)})})
    with pytest.raises(ValueError, match=r"of shape \(3,\) lies under 2 shardes.Stacked and so needs at least 2 axes"):
        make_es().init(jax.random.key(0), Stacked(Stacked(jnp.zeros(3))))


def test_the_structure_returns_unchanged():
    es = make_es()
    state, _ = es.step(loss)(es.init(jax.random.key(0), make_params()), IDS)
    assert jax.tree.structure(state.params) == jax.tree.structure(make_params())
    assert_identical(jax.tree.map(jnp.shape, state.params), jax.tree.map(jnp.shape, make_params()))
