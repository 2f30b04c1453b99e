"""Gymnasium's environments as tasks: exact returns of episodes that end, break and go on, however they are stepped."""

import gc
import os
import sys
import warnings

import gymnasium
import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.nn import check_model
from shardes.tasks import TaskError
from shardes.tasks.gymnasium import make
from shardes.tasks.gymnasium.native import Vector
from shardes.tasks.gymnasium.stepping import Group

from . import stubs

MODES = ["sync", "async"]


@pytest.fixture
def task():
    """`make`, of which everything is closed in the end."""
    made = []

    def make_one(*args, **options):
        made.append(make(*args, **options))
        return made[-1]

    yield make_one
    for one in made:
        one.close()


def begun(task, n=6, devices=8, **options):
    mesh = shardes.make_mesh(jax.devices()[:devices])
    strategy = shardes.Mirrored(shardes.LowRank(r=1))
    es = shardes.ShardedES(strategy, n, **{"sigma": 0.3, "lr": 0.05, "mesh": mesh, **options})
    return es, es.init(jax.random.key(1), task.init(jax.random.key(2)))


def played(task, n=6, devices=8, key=0, **options):
    es, state = begun(task, n, devices, **options)
    pert, state = es.ask(state)
    losses, after = task.play(es, state, pert, jax.random.key(key))
    return losses, after


APART = ["Ends", "Truncates", "NaNReward", "NaNSeen", "Never"]


@pytest.mark.parametrize(
    ("name", "mode"), [(name, "sync") for name in stubs.STUBS] + [(name, "async") for name in APART]
)
def test_returns_are_exact(task, name, mode):
    _, expected, length = stubs.STUBS[name]
    one = task(f"Stub{name}-v0", episodes=2, vectorization=mode)
    losses, _ = played(one)
    assert losses.dtype == np.float32
    np.testing.assert_array_equal(losses, np.full((6, 2), -expected))
    np.testing.assert_array_equal(one.evaluate(*asked(one), jax.random.key(1)), losses)
    trajectory = one.rollout(one.init(jax.random.key(0)), jax.random.key(3))
    assert trajectory.total == expected
    assert len(trajectory.rewards) == len(trajectory.observations) == len(trajectory.actions) == length
    np.testing.assert_array_equal(trajectory.observations[:, 1], 1)


def test_a_return_that_float32_cannot_hold_is_the_largest(task):
    losses, _ = played(task("StubRich-v0"))
    np.testing.assert_array_equal(losses, np.full((6, 1), np.finfo(np.float32).min))


def test_an_observation_of_no_measure_leaves_the_statistics_as_they_are(task):
    one = task("StubGiant-v0", normalize=True)
    losses, state = played(one)
    np.testing.assert_array_equal(losses, -sum(range(1, 10)))
    seen = one.policy.statistics(state.params)
    assert float(seen.count) == 6 * 8
    np.testing.assert_allclose(seen.mean[0], np.mean([0, 1, 2, 3, 5, 6, 7, 8]))


@pytest.mark.parametrize("name", ["Scalar", "Short", "None"])
def test_an_observation_that_the_space_does_not_contain_is_refused(task, name):
    with pytest.raises(TaskError, match=r"The observation .* is not one of Box"):
        played(task(f"Stub{name}-v0"))


def asked(task, n=6, **options):
    es, state = begun(task, n, **options)
    pert, state = es.ask(state)
    return es, state, pert


def test_episodes_of_different_lengths_count_their_own_rewards(task):
    """Of CartPole, the native vector environment and every environment on its own, stepped by hand."""
    one = task("StubRamp-v0", episodes=3)
    es, state, pert = asked(one, 10, sigma=1.0)
    native = one.evaluate(es, state, pert, jax.random.key(4))
    assert isinstance(one._kept[1], Vector)
    np.testing.assert_array_equal(native, one.evaluate(es, state, pert, jax.random.key(4)))
    alone = task("StubRamp-v0", episodes=3, vectorization="sync")
    np.testing.assert_array_equal(native, alone.evaluate(es, state, pert, jax.random.key(4)))
    lengths = (np.sqrt(1 - 8 * native) - 1) / 2  # of which the rewards 1, 2, ... are the sum
    np.testing.assert_array_equal(lengths, np.round(lengths))
    assert len(np.unique(lengths)) > 4
    assert lengths.min() < 10 < 15 == lengths.max()


@pytest.mark.parametrize("episode_length", [1, 7, 1000])
@pytest.mark.parametrize("mode", ["native", "sync"])
def test_an_episode_length_cuts_shorter_and_never_longer(task, mode, episode_length):
    one = task("StubRamp-v0", vectorization=mode, episode_length=episode_length)
    length = min(episode_length, 15)
    assert one.spec.episode_length == length
    losses, _ = played(one, 4, sigma=1.0)
    assert losses.min() >= -length * (length + 1) / 2
    unlimited = task("StubRamp-v0", vectorization=mode, episode_length=episode_length, max_episode_steps=-1)
    assert played(unlimited, 4, sigma=1.0)[0].min() <= losses.min()
    endless = task("StubEndless-v0", vectorization="sync", episode_length=5)
    np.testing.assert_array_equal(played(endless)[0], -15)


def test_a_limit_of_the_options_counts(task):
    one = task("StubNever-v0", vectorization="sync", max_episode_steps=3)
    np.testing.assert_array_equal(played(one)[0], -6)
    assert one.spec.episode_length == 3


@pytest.mark.parametrize("mode", MODES)
def test_all_members_have_the_same_episodes_and_the_key_chooses_them(task, mode):
    one = task("StubSeeded-v0", episodes=4, vectorization=mode)
    losses, _ = played(one, key=0)
    assert (losses == losses[0]).all()
    assert len(set(losses[0].tolist())) > 1
    np.testing.assert_array_equal(played(one, key=0)[0], losses)
    assert (played(one, key=1)[0] != losses).any()


def test_native_starts_are_those_of_the_environment():
    spec = gymnasium.spec("CartPole-v1")
    seeds = np.array([3, 4, 3, 2**32 - 1], np.uint32)
    native, alone = Vector(spec, {}, 4), Group(spec, {}, (), 4)
    for _ in range(2):
        np.testing.assert_array_equal(native.reset(seeds), alone.reset(seeds))
        for t in range(5):
            actions = np.array([t % 2, 0, 1, 1])
            for a, b in zip(native.step(np.arange(4), actions), alone.step(np.arange(4), actions), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("normalize", [False, True])
def test_devices_chunks_and_processes_change_nothing(task, normalize):
    one = task("StubNoisy-v0", episodes=2, normalize=normalize, vectorization="sync")
    reference, expected = played(one, 10, 1, deterministic=True)
    assert len(np.unique(reference)) == 20
    other = task("StubNoisy-v0", episodes=2, normalize=normalize, vectorization="async")
    for which, devices in ((one, 8), (other, 1), (other, 3)):
        losses, after = played(which, 10, devices, deterministic=True)
        np.testing.assert_array_equal(losses, reference)
        for a, b in zip(jax.tree.leaves(after.params), jax.tree.leaves(expected.params), strict=True):
            np.testing.assert_array_equal(a, b)
    for chunk in (2, None):
        losses, after = played(one, 10, 8, member_chunk=chunk)
        np.testing.assert_allclose(losses, reference, rtol=1e-3)


def test_statistics_are_those_of_all_that_was_seen(task):
    def observe(t):
        return np.array([NOISE[t], 1000.0])

    one = task("StubNever-v0", episodes=2, vectorization="sync", normalize=True, observe=observe)
    es, state = begun(one)
    for generation in range(1, 3):
        pert, state = es.ask(state)
        losses, state = one.play(es, state, pert, jax.random.key(generation))
        seen = one.policy.statistics(state.params)
        assert float(seen.count) == generation * 6 * 2 * 4  # of which the last led to one that is none
        np.testing.assert_allclose(seen.mean, [NOISE[:4].mean(), 1000], rtol=1e-5)
        np.testing.assert_allclose(seen.variance, [NOISE[:4].var(), 0], rtol=1e-3)
        state = es.tell(state, pert, losses)
        np.testing.assert_array_equal(one.policy.statistics(state.params).mean, seen.mean)


NOISE = np.append(np.random.default_rng(0).normal(5, 3, 4), np.nan)


def test_an_action_that_is_no_number_ends_the_episode_of_its_member_alone(task):
    one = task("StubNoisy-v0", vectorization="sync", hidden=())
    es, state = begun(one)
    params = jax.tree.map(lambda x: x.at[:].set(jnp.inf), state.params)
    pert, state = es.ask(state)
    broken, _ = one.play(es, state._replace(params=params), pert, jax.random.key(0))
    np.testing.assert_array_equal(broken, 0)
    trajectory = one.rollout(params, jax.random.key(0))
    assert len(trajectory.rewards) == len(trajectory.observations) == len(trajectory.actions) == 0


def test_the_program_of_a_step_is_compiled_once(task):
    one = task("StubRamp-v0", episodes=3)
    es, state = begun(one, 8, sigma=1.0)
    for generation in range(3):
        pert, state = es.ask(state)
        losses = one.evaluate(es, state, pert, jax.random.key(generation))
        state = es.tell(state, pert, losses)
    assert es._evaluate._cache_size() == 1


def test_environments_are_kept_while_their_number_is_the_same(task):
    one = task("StubEnds-v0", vectorization="sync")
    played(one)
    first = one._kept
    played(one)
    assert one._kept is first
    played(one, 8)
    assert one._kept[0] == 8
    one.close()
    assert one._kept is None
    np.testing.assert_array_equal(played(one)[0], -10)


def test_by_default_many_are_stepped_by_processes_and_few_are_not(task):
    one = task("StubEnds-v0", episodes=8)
    played(one, 2)
    assert isinstance(one._kept[1], Group)
    if len(os.sched_getaffinity(0)) > 1:
        played(one, 4)
        assert not isinstance(one._kept[1], Group)


def test_wrappers_are_applied_in_order(task):
    def doubled(environment):
        return gymnasium.wrappers.TransformReward(environment, lambda r: 2 * r)

    def more(environment):
        return gymnasium.wrappers.TransformReward(environment, lambda r: r + 1)

    for mode in MODES:
        one = task("StubEnds-v0", wrappers=[doubled, more], vectorization=mode)
        np.testing.assert_array_equal(played(one)[0], -(2 * 10 + 4))
    one = task("CartPole-v1", wrappers=[lambda e: gymnasium.wrappers.TimeLimit(e, 5)])
    assert one.spec.episode_length == 5


def test_the_model_is_all_on_the_seams(task):
    one = task("StubNested-v0", normalize=True)
    params = one.init(jax.random.key(0))
    assert check_model(one.policy, params, jnp.zeros(one.spec.observation_size)) == []


@pytest.mark.parametrize("mode", ["native", "sync"])
def test_fit_trains_cartpole_and_statistics_go_along(task, mode):
    one = task("CartPole-v1", episodes=2, normalize=True, episode_length=60, vectorization=mode)
    es, state = begun(one, 16, 1, sigma=0.3, lr=0.3)
    state, history = shardes.fit(es, state, one, generations=8)
    assert history.mean[-2:].mean() < 1.5 * history.mean[0]
    assert float(one.policy.statistics(state.params).count) == -history.mean.sum() * 16 * 2


def test_a_rollout_is_what_the_policy_does(task):
    one = task("Pendulum-v1", episode_length=20)
    params = one.init(jax.random.key(0))
    trajectory = one.rollout(params, jax.random.key(5))
    environment = gymnasium.make("Pendulum-v1")
    observation, _ = environment.reset(seed=int(jax.random.bits(jax.random.key(5), (1,), np.uint32)[0]))
    for seen, action, reward in zip(*trajectory, strict=True):
        np.testing.assert_allclose(seen, observation, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(action, one.policy(params, jnp.asarray(observation)), rtol=1e-4, atol=1e-6)
        observation, given, *_ = environment.step(action)
        assert reward == pytest.approx(given)
    assert len(trajectory.rewards) == 20


def film(path):
    """The frames of an MP4; imageio's reader leaves its pipes to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with imageio.imopen(path, "r", plugin="FFMPEG") as file:
            frames = np.stack(list(file.iter()))
        del file
        gc.collect()
    return frames


@pytest.mark.parametrize("ending", ["gif", "GIF", "mp4"])
@pytest.mark.parametrize("name", ["StubEnds-v0", "CartPole-v1"])
def test_a_rendering_opens_and_moves(task, tmp_path, name, ending):
    one = task(name, episode_length=8)
    path = one.render(one.init(jax.random.key(0)), jax.random.key(1), tmp_path / "new" / f"film.{ending}")
    frames = film(path) if ending == "mp4" else imageio.imread(path)
    if ending == "mp4" or name == "StubEnds-v0":  # a GIF has no two frames alike in a row
        assert len(frames) == (4 if name == "StubEnds-v0" else 8)
    assert len(np.unique(frames.reshape(len(frames), -1), axis=0)) > 1


def test_a_file_of_another_kind_is_refused_before_anything_is_played(task, tmp_path, monkeypatch):
    one = task("StubEnds-v0")
    monkeypatch.setattr(type(gymnasium.make("StubEnds-v0").unwrapped), "reset", lambda self, **_: stubs.fail())
    with pytest.raises(TaskError, match=r"film\.avi ends in \.avi, and must end in \.gif or \.mp4"):
        one.render(one.init(jax.random.key(0)), jax.random.key(1), tmp_path / "film.avi")


def test_what_cannot_be_drawn_says_so(task, tmp_path, monkeypatch):
    blind = gymnasium.make("StubEnds-v0").unwrapped
    monkeypatch.setattr(type(blind), "metadata", {"render_modes": []})
    one = task("StubEnds-v0")
    with pytest.raises(TaskError, match="StubEnds-v0 draws no pictures"):
        one.render(one.init(jax.random.key(0)), jax.random.key(1), tmp_path / "film.gif")

    monkeypatch.setattr(type(blind), "metadata", {"render_modes": ["rgb_array"]})
    monkeypatch.setattr(type(blind), "render", lambda self: stubs.fail())
    one = task("StubEnds-v0")
    with pytest.raises(TaskError, match=r"StubEnds-v0 cannot be drawn here: ValueError: the simulator has a bug"):
        one.render(one.init(jax.random.key(0)), jax.random.key(1), tmp_path / "film.gif")


@pytest.mark.parametrize(
    ("id", "options", "text"),
    [
        ("CartPol-v1", {}, "no environment 'CartPol-v1'. Did you mean 'CartPole-v1'"),
        ("cartpole", {}, "Did you mean 'CartPole-v1'"),
        ("Zzz-v0", {}, "name it 'package:Zzz-v0'"),
        ("nowhere_at_all:Zzz-v0", {}, "nowhere_at_all of 'nowhere_at_all:Zzz-v0' cannot be imported"),
        ("StubEndless-v0", {}, "StubEndless-v0 has no limit of steps of its own. Give episode_length"),
        ("StubEnds-v0", {"vectorization": "native"}, "vectorization is 'native', and must be 'sync' or 'async'"),
        ("StubEnds-v0", {"vectorization": "fork"}, "vectorization is 'fork'"),
        ("CartPole-v1", {"vectorization": "native", "wrappers": [lambda e: e]}, "without wrappers"),
        ("CartPole-v1", {"gravity": 3}, "CartPole-v1 cannot be made: TypeError"),
        ("CartPole-v1", {"wrappers": [lambda e: stubs.fail()]}, "cannot be made: ValueError: the simulator has a bug"),
    ],
)
def test_what_is_refused(id, options, text):
    with pytest.raises(TaskError, match=text):
        make(id, **options)


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("Hopper-v5", "mujoco", "mujoco"), ("phys2d/Pendulum-v0", "flax", "phys2d")],
)
def test_a_dependency_that_is_missing_is_named(monkeypatch, id, module, extra):
    package = gymnasium.spec(id).entry_point.split(":")[0]
    for name in [name for name in sys.modules if name.startswith(package.rpartition(".")[0])]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TaskError, match=rf"{id} needs more: pip install 'shardes-tasks\[{extra}\]'"):
        make(id)


def test_an_error_of_an_environment_names_it_and_where_it_happened(task):
    one = task("StubRaises-v0", vectorization="sync")
    with pytest.raises(TaskError, match=r"(?s)StubRaises-v0 has failed.*in fail.*the simulator has a bug"):
        played(one)
    assert one._kept is None


@pytest.mark.filterwarnings("ignore:builtin type .*:DeprecationWarning")
@pytest.mark.parametrize("id", ["LunarLander-v3", "Hopper-v5", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1"])
def test_environments_of_every_family_run(task, id):
    if id == "LunarLander-v3":
        pytest.importorskip("Box2D", exc_type=ImportError)
    one = task(id, episodes=2, episode_length=10, vectorization="sync")
    losses, _ = played(one)
    assert np.isfinite(losses).all()
    environment = gymnasium.make(id)
    rewards = one.rollout(one.init(jax.random.key(0)), jax.random.key(1)).rewards
    assert one.spec.observation_size == gymnasium.spaces.flatdim(environment.observation_space)
    assert 1 <= len(rewards) <= 10
