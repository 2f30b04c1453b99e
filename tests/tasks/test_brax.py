"""A light environment of Brax: the fitness is that of a plain loop over its own reset and step, until it is done."""

import jax
import numpy as np
import pytest

import shardes
from shardes.tasks import TaskError, brax

LENGTH = 60
EPISODES = 2

pytestmark = [
    pytest.mark.usefixtures("not_strict"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System:UserWarning"),
]


@pytest.fixture(scope="module")
def pendulum():
    return brax.make("inverted_pendulum", backend="spring", episode_length=LENGTH, episodes=EPISODES)


def test_the_fitness_is_that_of_a_plain_loop_that_ends(pendulum):
    from brax import envs

    es = shardes.ShardedES(shardes.IIDGaussian(), 4, sigma=1.0, lr=0.1)
    pert, state = es.ask(es.init(jax.random.key(0), pendulum.init(jax.random.key(1))))
    losses = np.asarray(pendulum.evaluate(es, state, pert, jax.random.key(2)))
    env = envs.get_environment("inverted_pendulum", backend="spring")
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    act = es.apply(pendulum.policy, state, pert, in_axes=(0,))
    for episode, key in enumerate(jax.random.split(jax.random.key(2), EPISODES)):
        states, total, alive = [reset(key)] * 4, np.zeros(4), np.ones(4, bool)
        for _ in range(LENGTH):
            actions = np.asarray(act(np.stack([state.obs for state in states])))
            states = [step(state, action) for state, action in zip(states, actions, strict=True)]
            total += alive * [float(state.reward) for state in states]
            alive &= [not state.done for state in states]
        assert not alive.all()
        np.testing.assert_allclose(-losses[:, episode], total, atol=1)
    assert (-losses).min() < LENGTH


@pytest.mark.slow
def test_fit_trains_it(pendulum):
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 8, sigma=0.3, lr=0.1)
    state = es.init(jax.random.key(0), pendulum.init(jax.random.key(1)))
    _, history = shardes.fit(es, state, pendulum, generations=2)
    assert np.isfinite(history.mean).all()


def test_names_and_what_is_refused(pendulum):
    assert {"ant", "halfcheetah", "humanoid"} <= set(brax.names())
    assert (pendulum.spec.episode_length, pendulum.spec.observation_size, pendulum.spec.action_size) == (LENGTH, 4, 1)
    with pytest.raises(TaskError, match=r"no environment 'Ants'. Did you mean 'ant'"):
        brax.make("Ants")
    with pytest.raises(TaskError, match="ant cannot be made: ValueError: backend should be in"):
        brax.make("ant", backend="no_such")
    with pytest.raises(TaskError, match="ant cannot be made: TypeError"):
        brax.make("ant", no_such=1)
