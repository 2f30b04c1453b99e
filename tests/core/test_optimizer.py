"""An optimizer of optax makes the trajectory that it makes by hand from the same gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from shardes import Stacked

from .support import lenient, make_es, make_params, slow

OPTIMIZERS = {
    "sgd with momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: lenient(optax.adam(0.1)),
    "adamw": lambda: lenient(optax.adamw(0.1, weight_decay=0.1)),
    "clipped, scheduled": lambda: optax.chain(
        optax.clip_by_global_norm(0.5), optax.sgd(optax.linear_schedule(0.2, 0.0, 5), momentum=0.5)
    ),
}
N = 8
FITNESS = np.random.default_rng(0).normal(size=(5, N)).astype(np.float32)


def trainable(params):
    return {name: value for name, value in params.items() if name != "target"}


def gradients():
    """What five generations hand their optimizer: minus the update of plain SGD at zero with a rate of one."""
    es = make_es("low_rank_1", N, lr=1.0)
    state = es.init(jax.random.key(0), jax.tree.map(jnp.zeros_like, make_params()))
    for fitness in FITNESS:
        pert, state = es.ask(state)
        yield jax.tree.map(jnp.negative, trainable(es.tell(state, pert, fitness).params))


@pytest.mark.parametrize("name", [x if x == "adamw" else pytest.param(x, marks=slow) for x in OPTIMIZERS])
def test_trajectory_by_hand(name):
    optimizer = OPTIMIZERS[name]()
    es = make_es("low_rank_1", N, optimizer=optimizer)
    state = es.init(jax.random.key(0), make_params())
    by_hand = trainable(make_params())
    opt_state = optimizer.init(by_hand)
    for fitness, gradient in zip(FITNESS, gradients(), strict=True):
        pert, state = es.ask(state)
        assert pert.lr is None
        state = es.tell(state, pert, fitness)
        updates, opt_state = optimizer.update(gradient, opt_state, by_hand)
        by_hand = optax.apply_updates(by_hand, updates)
        for a, b in zip(jax.tree.leaves(trainable(state.params)), jax.tree.leaves(by_hand), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_its_state_holds_the_trained_leaves_alone():
    es = make_es("iid", N, optimizer=optax.sgd(0.1, momentum=0.9), freeze=lambda path: path == "embed")
    state = es.init(jax.random.key(0), make_params())
    trace = state.opt_state[0].trace
    assert trace["embed"] is None
    assert trace["target"] is None
    assert isinstance(trace["blocks"], Stacked)
    assert sorted(x.shape for x in jax.tree.leaves(trace)) == [(3, 4), (3, 4, 4), (4,)]


def test_what_only_looks_like_one_of_optax_serves():
    class Descent:
        def init(self, params):
            return jnp.int32(0)

        def update(self, gradient, state, params=None):
            return jax.tree.map(lambda g: -0.5 * g, gradient), state + 1

    states = []
    for options in ({"optimizer": Descent()}, {"lr": 0.5}):
        es = make_es("iid", N, **options)
        pert, state = es.ask(es.init(jax.random.key(0), make_params()))
        states.append(es.tell(state, pert, FITNESS[0]))
    assert states[0].opt_state == 1
    for a, b in zip(jax.tree.leaves(states[0].params), jax.tree.leaves(states[1].params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
