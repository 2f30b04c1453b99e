"""Heads make actions of their space, every choice reachable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes.tasks.heads import Box, Discrete, Each, MultiBinary, MultiDiscrete

INF = np.inf


def test_a_box_is_reached_from_end_to_end():
    head = Box(np.array([-2.0, 0.0]), np.array([2.0, 5.0]))
    assert head.size == 2
    np.testing.assert_allclose(head(jnp.zeros(2)), [0, 2.5])
    np.testing.assert_allclose(head(jnp.full(2, 50.0)), [2, 5])
    np.testing.assert_allclose(head(jnp.full(2, -50.0)), [-2, 0])
    np.testing.assert_allclose(head(jnp.array([0.5, 0.5])), [2 * np.tanh(0.5), 2.5 + 2.5 * np.tanh(0.5)], rtol=1e-6)
    gradient = jax.grad(lambda x: head(x).sum())(jnp.zeros(2))
    np.testing.assert_allclose(gradient, [2, 2.5])


def test_a_box_may_be_without_bounds_of_any_shape_and_dtype():
    head = Box(np.array([[-INF, 0.0], [-1.0, -3e38]]), np.array([[INF, INF], [1.0, 3e38]]))
    action = head(jnp.array([7.0, -7.0, 50.0, 50.0]))
    assert action.shape == (2, 2)
    np.testing.assert_allclose(action, [[7, 0], [1, 3e38]])
    whole = Box(np.array([0]), np.array([255]), np.uint8)
    assert whole(jnp.array([50.0])).dtype == jnp.uint8
    assert whole(jnp.array([50.0])) == 255
    with pytest.raises(ValueError, match="low be at most high"):
        Box(np.array([1.0]), np.array([0.0]))


def test_choices():
    np.testing.assert_array_equal(Discrete(3)(jnp.array([0.0, 2.0, 1.0])), 1)
    np.testing.assert_array_equal(Discrete(3, start=-1)(jnp.array([0.0, 2.0, 1.0])), 0)
    head = MultiDiscrete([2, 3])
    assert head.size == 5
    np.testing.assert_array_equal(head(jnp.array([0.0, 1.0, 0.0, 0.0, 1.0])), [1, 2])
    head = MultiDiscrete([[2, 2], [2, 2]], start=[[0, 0], [5, 5]])
    np.testing.assert_array_equal(head(jnp.arange(8.0)), [[1, 1], [6, 6]])
    np.testing.assert_array_equal(MultiBinary((2,))(jnp.array([-1.0, 1.0])), [0, 1])
    for make, text in ((lambda: Discrete(0), "n is 0"), (lambda: MultiDiscrete([2, 0]), "each at least 1")):
        with pytest.raises(ValueError, match=text):
            make()


def test_several_at_once():
    head = Each({"turn": Discrete(2), "push": Box(-np.ones(2), np.ones(2))})
    assert head.size == 4
    action = head(jnp.array([0.0, 1.0, 50.0, -50.0]))
    assert action["turn"] == 1
    np.testing.assert_allclose(action["push"], [1, -1])
    first, second = Each([Discrete(2), Discrete(2)])(jnp.array([1.0, 0.0, 0.0, 1.0]))
    assert (first, second) == (0, 1)
