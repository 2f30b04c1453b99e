"""Playground's lightest environment: the fitness is that of a plain loop over its own reset and step."""

import ctypes.util
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.tasks import TaskError, playground

LENGTH = 40
EPISODES = 2
# Of episodes that begin where there are rewards.
KEY = 1867

pytestmark = [pytest.mark.usefixtures("not_strict"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
draws = pytest.mark.skipif(
    not any(map(ctypes.util.find_library, ("EGL", "OSMesa"))), reason="needs libEGL or libOSMesa, as it has no screen"
)


@pytest.fixture(scope="module")
def pendulum():
    return playground.make("PendulumSwingup", episode_length=LENGTH, episodes=EPISODES)


def evaluated(task, devices=8, sigma=0.3):
    mesh = shardes.make_mesh(jax.devices()[:devices])
    es = shardes.ShardedES(shardes.IIDGaussian(), 4, sigma=sigma, lr=0.1, mesh=mesh, deterministic=True)
    pert, state = es.ask(es.init(jax.random.key(0), task.init(jax.random.key(1))))
    return es, state, pert, np.asarray(task.evaluate(es, state, pert, jax.random.key(KEY)))


def test_the_fitness_is_that_of_a_plain_loop(pendulum):
    """Of every member and episode; the same to the bit on one device and on eight."""
    from mujoco_playground import registry

    es, state, pert, losses = evaluated(pendulum)
    assert losses.shape == (4, EPISODES)
    assert len(set(losses.flatten().tolist())) > EPISODES
    np.testing.assert_array_equal(evaluated(pendulum, devices=1)[3], losses)
    env = registry.load("PendulumSwingup", config_overrides={"impl": "jax"})
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    act = es.apply(pendulum.policy, state, pert, in_axes=(0,))
    for episode, key in enumerate(jax.random.split(jax.random.key(KEY), EPISODES)):
        states, total = [reset(key)] * 4, np.zeros(4)
        for _ in range(LENGTH):
            actions = np.asarray(act(np.stack([state.obs for state in states])))
            states = [step(state, action) for state, action in zip(states, actions, strict=True)]
            total += [float(state.reward) for state in states]
        np.testing.assert_allclose(-losses[:, episode], total, rtol=1e-3)


def test_members_without_noise_are_all_alike(pendulum):
    losses = evaluated(pendulum, sigma=1e-30)[3]
    np.testing.assert_array_equal(losses, np.broadcast_to(losses[0], losses.shape))
    assert losses[0, 0] != losses[0, 1]


def test_physics_that_break_end_their_episode_and_no_other(pendulum):
    from mujoco_playground import dm_control_suite
    from mujoco_playground._src.dm_control_suite import pendulum as source

    broken = jax.random.key_data(jax.random.split(jax.random.key(KEY), EPISODES)[0])

    class Broken(source.SwingUp):
        def reset(self, rng):
            state = super().reset(rng)
            qvel = jnp.where((jax.random.key_data(rng) == broken).all(), jnp.float32(1e30), state.data.qvel)
            return state.replace(data=state.data.replace(qvel=qvel))

    dm_control_suite.register_environment("Broken", Broken, source.default_config)
    assert "Broken" in playground.names()
    task = playground.make("Broken", episode_length=LENGTH, episodes=EPISODES)
    losses, sound = evaluated(task)[3], evaluated(pendulum)[3]
    assert (losses[:, 0] == 0).all()
    assert (sound[:, 0] != 0).all()
    np.testing.assert_allclose(losses[:, 1], sound[:, 1], rtol=1e-5)


def test_fit_trains_it():
    task = playground.make("PendulumSwingup", episode_length=LENGTH, normalize=True)
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 8, sigma=0.3, lr=0.1)
    state = es.init(jax.random.key(0), task.init(jax.random.key(1)))
    state, history = shardes.fit(es, state, task, generations=2)
    assert history.mean.shape == (2,)
    assert np.isfinite(history.mean).all()
    assert float(task.policy.statistics(state.params).count) == 2 * 8 * LENGTH


@draws
def test_an_episode_is_drawn(pendulum, tmp_path, monkeypatch):
    import imageio.v3 as imageio

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    params = pendulum.init(jax.random.key(0))
    frames = imageio.imread(pendulum.render(params, jax.random.key(1), tmp_path / "episode.gif"))
    assert frames.shape == (LENGTH, 240, 320, 3)
    assert len(np.unique(frames.reshape(LENGTH, -1), axis=0)) > 1
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.setenv("MUJOCO_GL", "nothing")
    with pytest.raises(TaskError, match=r"PendulumSwingup cannot be drawn here: .*nothing\n.*libEGL"):
        pendulum.render(params, jax.random.key(1), tmp_path / "episode.gif")


def test_all_that_need_no_files_are_made_and_the_config_is_theirs(capfd):
    assert {"CheetahRun", "Go1JoystickFlatTerrain", "PandaPickCube"} <= set(playground.names())
    task = playground.make("CartpoleBalance", config_overrides={"action_repeat": 3, "episode_length": 100})
    assert (task.spec.name, task.spec.observation_size, task.spec.action_size) == ("CartpoleBalance", 5, 1)
    assert task.spec.episode_length == 34
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "overrides", "text"),
    [
        ("cartpolebalance", {}, "no environment 'cartpolebalance'. Did you mean 'CartpoleBalance'"),
        ("CartpoleBalance", {"no_such": 1}, "takes no such config_overrides.*no_such"),
        ("CartpoleBalance", {"impl": 3}, "takes no such config_overrides.*impl"),
        ("PendulumSwingup", {"vision": True}, "PendulumSwingup cannot be made: NotImplementedError: Vision"),
    ],
)
def test_what_is_refused(name, overrides, text):
    with pytest.raises(TaskError, match=text):
        playground.make(name, config_overrides=overrides)


@pytest.mark.parametrize("git", ["#!/bin/sh\nexit 128\n", "#!/bin/sh\nexec sleep 30\n", None])
def test_files_that_cannot_be_had(git, tmp_path, monkeypatch):
    """Of a git that fails, that waits for ever, and that is not there."""
    from mujoco_playground._src import mjx_env

    if git is not None:
        (tmp_path / "git").write_text(git)
        (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if git is None else f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mjx_env, "MENAGERIE_PATH", mjx_env.EXTERNAL_DEPS_PATH / "none")
    monkeypatch.setattr(playground, "_SECONDS_TO_ANSWER", 0.5)
    with pytest.raises(
        TaskError, match=f"(?s)git clone .*{mjx_env.MENAGERIE_COMMIT_SHA}\nand move the folder to .*none"
    ):
        playground.make("Go1JoystickFlatTerrain")
