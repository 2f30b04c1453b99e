"""Gymnasium's environments of pure JAX functions, against the same stepped one by one."""

import gymnasium
import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.tasks import TaskError
from shardes.tasks.functional import Functional
from shardes.tasks.gymnasium import GymnasiumTask, make

pytest.importorskip("flax")


@pytest.mark.parametrize("id", ["phys2d/CartPole-v1", "phys2d/Pendulum-v0"])
def test_a_rollout_is_that_of_the_functions(id):
    task = make(id, episode_length=30)
    assert isinstance(task, Functional)
    assert not task.on_host
    params = task.init(jax.random.key(0))
    trajectory = task.rollout(params, jax.random.key(1))
    with jax.numpy_dtype_promotion("standard"):
        functions = gymnasium.make(id).unwrapped.func_env
        state = functions.initial(rng=jax.random.split(jax.random.key(1))[0])
        for seen, action, reward in zip(*trajectory, strict=True):
            np.testing.assert_allclose(seen, functions.observation(state, None), rtol=1e-4, atol=1e-5)
            after = functions.transition(state, jnp.asarray(action), None)
            given = functions.reward(state, jnp.asarray(action), after, None)
            np.testing.assert_allclose(reward, given, rtol=1e-4, atol=1e-5)
            state = after
        assert len(trajectory.rewards) == 30 or functions.terminal(state, None)


def test_the_limit_is_the_registered_one():
    assert make("phys2d/CartPole-v1").spec.episode_length == 500
    assert make("phys2d/CartPole-v0").spec.episode_length == 200
    with pytest.raises(TaskError, match="tabular/CliffWalking-v0 has no limit"):
        make("tabular/CliffWalking-v0")


def test_fit_trains_it():
    task = make("phys2d/CartPole-v1", episodes=2, episode_length=100)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 32, sigma=0.3, lr=0.3)
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))
    _, history = shardes.fit(es, state, task, generations=10)
    assert history.mean[-3:].mean() < 1.5 * history.mean[0]


@pytest.mark.parametrize("id", ["tabular/Blackjack-v0", "tabular/CliffWalking-v0"])
def test_tabular_ones_run(id):
    task = make(id, episode_length=6, episodes=2)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 4, sigma=0.3, lr=0.3)
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))
    pert, state = es.ask(state)
    losses = task.evaluate(es, state, pert, jax.random.key(0))
    assert losses.shape == (4, 2)
    assert np.isfinite(losses).all()


def test_one_that_is_wrapped_is_stepped_on_the_host():
    with jax.numpy_dtype_promotion("standard"):
        task = make("phys2d/Pendulum-v0", wrappers=[lambda e: e], episode_length=3, vectorization="sync")
        assert isinstance(task, GymnasiumTask)
        assert len(task.rollout(task.init(jax.random.key(0)), jax.random.key(0)).rewards) == 3


def test_a_rendering_moves(tmp_path):
    task = make("phys2d/CartPole-v1", episode_length=8)
    path = task.render(task.init(jax.random.key(0)), jax.random.key(1), tmp_path / "film.gif")
    frames = imageio.imread(path)
    assert len(np.unique(frames.reshape(len(frames), -1), axis=0)) > 1
