"""A strategy of a user: what it is told, and that about 30 lines are enough. The whole suite runs on two of them."""

import ast
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import Stacked

from . import user_strategies
from .support import IDS, STRATEGIES, loss, make_es, make_params, noise_of, slow


def test_they_take_no_more_than_30_lines():
    tree = ast.parse(inspect.getsource(user_strategies))
    lines = [node.end_lineno - node.lineno + 1 for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(lines) == 2
    assert max(lines) <= 30


@pytest.mark.parametrize("name", ["user_dense", "user_structured"])
def test_their_noise_is_of_signs(name):
    noise = noise_of(STRATEGIES[name], 30, make_params())
    assert {float(x) for leaf in ("embed", "gain") for x in np.unique(noise[leaf])} == {-1.0, 1.0}


@slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_descends(name):
    es = make_es(name, 64, sigma=0.05, lr=0.05)
    state, step, means = es.init(jax.random.key(0), make_params()), es.step(loss), []
    for _ in range(40):
        state, fitness = step(state, IDS)
        means.append(float(fitness.mean()))
    assert means[-1] < 0.5 * means[0]


def test_noise_is_asked_for_one_layer_of_one_leaf_at_a_time():
    asked = set()

    class Spy(user_strategies.Rademacher):
        def noise(self, key, shape):
            asked.add((key.shape, jax.random.key_impl(key), shape))
            return super().noise(key, shape)

        def shift(self, weight, noise, scale):
            asked.add((weight.shape, noise.shape, scale.shape, scale.dtype.name))
            return super().shift(weight, noise, scale)

        def contract(self, noise, weights):
            asked.add((noise.shape[1:], weights.ndim, weights.dtype.name))
            return super().contract(noise, weights)

    es = make_es(Spy(), 6)
    pert, state = es.ask(es.init(jax.random.key(0), {"s": Stacked({"w": jnp.zeros((2, 3, 4))}), "b": jnp.zeros(5)}))
    es.apply(lambda params: 0.0, state, pert)()
    es.tell(state, pert, jnp.arange(6.0))
    assert asked == {
        *(((), "threefry2x32", shape) for shape in ((3, 4), (5,))),
        *((shape, shape, (), "float32") for shape in ((3, 4), (5,))),
        *((shape, 1, "float32") for shape in ((3, 4), (5,))),
    }


def test_noise_is_the_one_thing_that_must_be_said():
    class Silent(shardes.Strategy):
        pass

    with pytest.raises(TypeError, match="abstract method 'noise'"):
        Silent()
