"""Tasks of pure functions: exact returns of episodes that end, break and go on, and statistics that are numpy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.nn import check_model
from shardes.tasks import functional
from shardes.tasks.heads import Box, Discrete

LENGTH = 9


def mesh_of(devices):
    return shardes.make_mesh(jax.devices()[:devices])


def make_es(n=6, devices=8, strategy=None, **options):
    strategy = shardes.Mirrored(shardes.LowRank(r=1)) if strategy is None else strategy
    return shardes.ShardedES(strategy, n, **{"sigma": 0.1, "lr": 0.05, "mesh": mesh_of(devices), **options})


def real(t):
    return t.astype(jnp.float32)


def observe(t):
    return {"time": real(t), "pair": jnp.stack([jnp.sin(real(t)), jnp.float32(2)])}


def counter(done=lambda t: t < 0, reward=real, observation=observe):
    """An environment whose state is the number of the step: reward, end and observation are functions of it."""

    def reset(key):
        return jnp.int32(0), observation(jnp.int32(0))

    def step(t, action):
        t = t + 1
        return t, observation(t), reward(t), done(t)

    return reset, step


def played(task, n=6, devices=8, key=0, **options):
    es = make_es(n, devices, **options)
    state = es.init(jax.random.key(1), task.init(jax.random.key(2)))
    pert, state = es.ask(state)
    losses, after = task.play(es, state, pert, jax.random.key(key))
    return np.asarray(losses), state, after


def make(*functions, **options):
    return functional(*functions, **{"action": Discrete(2), "episode_length": LENGTH, **options})


NAN = jnp.float32(np.nan)


@pytest.mark.parametrize(
    ("env", "expected", "length"),
    [
        (counter(), sum(range(1, LENGTH + 1)), LENGTH),
        (counter(done=lambda t: t == 4), 1 + 2 + 3 + 4, 4),
        (counter(done=lambda t: t >= 1), 1, 1),
        (counter(done=lambda t: jnp.where(t == 3, 1.0, 0.0)), 1 + 2 + 3, 3),
        (counter(reward=lambda t: t * 2), 2 * sum(range(1, LENGTH + 1)), LENGTH),
        (counter(reward=lambda t: t > 2), LENGTH - 2, LENGTH),
        (counter(reward=lambda t: jnp.where(t == 5, NAN, real(t))), 1 + 2 + 3 + 4, 4),
        (counter(reward=lambda t: jnp.where(t == 5, jnp.inf, real(t))), 1 + 2 + 3 + 4, 4),
        (counter(observation=lambda t: jnp.where(t >= 3, NAN, 1.0) * jnp.ones(2)), 1 + 2, 2),
        (counter(observation=lambda t: NAN * jnp.ones(2)), 0, 0),
    ],
    ids=["never ends", "ends", "ends at once", "done is a float", "int", "bool", "NaN", "inf", "NaN seen", "all NaN"],
)
def test_returns_are_exact(env, expected, length):
    task = make(*env, episodes=2)
    losses, _, _ = played(task)
    assert losses.dtype == np.float32
    np.testing.assert_array_equal(losses, np.full((6, 2), -expected))
    trajectory = task.rollout(task.init(jax.random.key(0)), jax.random.key(3))
    assert trajectory.total == expected
    assert len(trajectory.rewards) == len(trajectory.observations) == len(trajectory.actions) == length
    assert task.spec.episode_length == LENGTH


def noisy():
    """An environment whose first state is the key's, and whose reward depends on state and action."""

    def reset(key):
        x = jax.random.normal(key, (3,))
        return x, x

    def step(x, action):
        x = 0.9 * x + 0.1 * action
        return x, x, -jnp.sum(x**2), jnp.abs(x).max() > 3

    return reset, step


BOUNDED = Box(-np.ones(3), np.ones(3))


def test_all_members_have_the_same_episodes_and_the_key_chooses_them():
    def reset(key):
        return key, jax.random.uniform(key, (2,))

    def step(key, action):
        return key, jnp.zeros(2), jnp.sum(jax.random.key_data(key) % 1000).astype(jnp.float32), False

    task = make(reset, step, episodes=3)
    losses, _, _ = played(task, key=0)
    assert (losses == losses[0]).all()
    assert len(set(losses[0].tolist())) == 3
    other, _, _ = played(task, key=1)
    assert not set(other[0].tolist()) & set(losses[0].tolist())


@pytest.mark.parametrize("normalize", [False, True])
def test_devices_and_chunks_change_nothing(normalize):
    task = make(*noisy(), action=BOUNDED, episodes=2, normalize=normalize)
    reference, _, expected = played(task, 10, 1, deterministic=True)
    for devices in (3, 8):
        losses, _, after = played(task, 10, devices, deterministic=True)
        np.testing.assert_array_equal(losses, reference)
        for a, b in zip(jax.tree.leaves(after.params), jax.tree.leaves(expected.params), strict=True):
            np.testing.assert_array_equal(a, b)
    losses, _, after = played(task, 10, 8, member_chunk=2)
    np.testing.assert_allclose(losses, reference, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(after.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_statistics_are_those_of_all_that_was_seen():
    """Of two generations, against numpy, from observations of which some end early and some break."""
    values = np.random.default_rng(0).normal(100, [1, 10, 0.1], (LENGTH + 1, 3)).astype(np.float32)
    values[6] = np.nan

    def reset(key):
        return jnp.int32(0), jnp.asarray(values)[0]

    def step(t, action):
        return t + 1, jnp.asarray(values)[t + 1], jnp.float32(1), False

    task = make(reset, step, episodes=2, normalize=True)
    es = make_es(6)
    state = es.init(jax.random.key(1), task.init(jax.random.key(2)))
    for generation in range(1, 3):
        pert, state = es.ask(state)
        losses, state = task.play(es, state, pert, jax.random.key(generation))
        np.testing.assert_array_equal(losses, -5)
        seen = task.policy.statistics(state.params)
        assert float(seen.count) == generation * 6 * 2 * 6
        np.testing.assert_allclose(seen.mean, values[:6].mean(axis=0, dtype=np.float64), rtol=1e-5)
        np.testing.assert_allclose(seen.variance, values[:6].var(axis=0, dtype=np.float64), rtol=1e-3)
        state = es.tell(state, pert, losses)
        np.testing.assert_array_equal(task.policy.statistics(state.params).mean, seen.mean)


def test_a_return_that_float32_cannot_hold_is_the_largest():
    losses, _, _ = played(make(*counter(reward=lambda t: jnp.float32(3e38))))
    np.testing.assert_array_equal(losses, np.finfo(np.float32).min)


def test_an_observation_of_no_measure_leaves_the_statistics_as_they_are():
    task = make(*counter(observation=lambda t: jnp.where(t == 4, 1e30, real(t)) * jnp.ones(2)), normalize=True)
    losses, _, after = played(task)
    np.testing.assert_array_equal(losses, -sum(range(1, LENGTH + 1)))
    seen = task.policy.statistics(after.params)
    assert float(seen.count) == 6 * (LENGTH - 1)
    np.testing.assert_allclose(seen.mean, np.mean([t for t in range(LENGTH) if t != 4]), rtol=1e-6)


def test_a_policy_sees_what_its_statistics_make_of_an_observation():
    task = make(*counter(observation=lambda t: jnp.ones(2) * 7), normalize=True, action=BOUNDED)
    _, before, after = played(task)
    observation = jnp.array([7.0, 7.0])
    plain = shardes.tasks.MLP(2, BOUNDED)
    np.testing.assert_allclose(task.policy(before.params, observation), plain(before.params, observation), rtol=1e-6)
    np.testing.assert_allclose(
        task.policy(after.params, observation), plain(after.params, jnp.zeros(2)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_the_model_is_all_on_the_seams(normalize):
    task = make(*noisy(), action=BOUNDED, normalize=normalize)
    assert check_model(task.policy, task.init(jax.random.key(0)), jnp.zeros(3)) == []


def test_fit_trains_it_and_evaluate_and_fit_agree():
    task = make(*noisy(), action=BOUNDED, episodes=4, normalize=True, episode_length=20)
    es = make_es(64, sigma=0.3, lr=0.3, shaping=shardes.shaping.z_score)
    state = es.init(jax.random.key(0), task.init(jax.random.key(0)))
    first, history = shardes.fit(es, state, task, generations=1)
    state, history = shardes.fit(es, state, task, generations=40)
    assert float(task.policy.statistics(state.params).count) > float(task.policy.statistics(first.params).count) > 0
    assert history.mean[-5:].mean() < 0.6 * history.mean[:5].mean()
    pert, state = es.ask(state)
    losses = task.evaluate(es, state, pert, jax.random.key(0))
    assert losses.shape == (64, 4)


def test_a_rollout_is_what_the_policy_does():
    task = make(*noisy(), action=BOUNDED, episode_length=20)
    params = task.init(jax.random.key(0))
    trajectory = task.rollout(params, jax.random.key(5))
    x = jax.random.normal(jax.random.key(5), (3,))
    total = 0.0
    for observation, action, reward in zip(*trajectory, strict=True):
        np.testing.assert_allclose(observation, x, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(action, task.policy(params, x), rtol=1e-4, atol=1e-6)
        x = 0.9 * x + 0.1 * action
        np.testing.assert_allclose(reward, -np.sum(np.square(x)), rtol=1e-4)
        total += float(reward)
    assert trajectory.total == pytest.approx(total)


def test_a_rollout_leaves_the_states_of_the_simulator_where_they_are(monkeypatch):
    def reset(key):
        return jnp.zeros(1000), jnp.zeros(2)

    def step(state, action):
        return state, jnp.zeros(2), jnp.float32(1), False

    brought = []
    get = jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda tree: brought.extend(jax.tree.leaves(tree)) or get(tree))
    task = make(reset, step)
    assert task.rollout(task.init(jax.random.key(0)), jax.random.key(1)).total == LENGTH
    assert 0 < max(x.size for x in brought) < 1000


@pytest.mark.parametrize(
    ("options", "text"),
    [({"episodes": 0}, "episodes is 0"), ({"episode_length": 0}, "episode_length is 0"), ({"hidden": (0,)}, "sizes")],
)
def test_what_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        make(*counter(), **options)
