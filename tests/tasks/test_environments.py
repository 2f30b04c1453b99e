"""Environments of Brax's interface: what a stub of one gives, exactly."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.tasks import TaskError, environments

LENGTH = 6


class State(NamedTuple):
    physics: jax.Array
    obs: Any
    reward: jax.Array
    done: jax.Array
    info: dict[str, jax.Array]


class Counter:
    """Its physics are the number of the step, and so is its reward; it is done and it breaks at a step."""

    action_size = 2
    dt = 0.01

    def __init__(self, done=99, breaks=99, observe=lambda t: jnp.stack([t, t])):
        self.done, self.breaks, self.observe = done, breaks, observe

    def reset(self, key):
        zero = jnp.float32(0)
        return State(zero, self.observe(zero), zero, zero, {"steps": jnp.int32(0)})

    def step(self, state, action):
        t = state.physics + 1
        # In place, as many of Playground's do.
        state.info["steps"] += jnp.int32(1)
        physics = jnp.where(t == self.breaks, jnp.nan, t)
        return State(physics, self.observe(t), t, (t == self.done).astype(jnp.float32), state.info)

    def render(self, states):
        return [np.full((16, 16, 3), 10 * int(t), np.uint8) for t in states]


def make(environment, **options):
    return environments.task(
        environment,
        **{
            "name": "counter",
            "physics": lambda state: (state.physics,),
            "drawn": lambda state: state.physics,
            "episode_length": LENGTH,
            **options,
        },
    )


def total(task):
    return task.rollout(task.init(jax.random.key(0)), jax.random.key(1)).total


@pytest.mark.parametrize(
    ("environment", "repeat", "expected"),
    [
        (Counter(), 1, 1 + 2 + 3 + 4 + 5 + 6),
        (Counter(done=3), 1, 1 + 2 + 3),
        (Counter(breaks=3), 1, 1 + 2),
        (Counter(breaks=1), 1, 0),
        (Counter(), 3, sum(range(1, 19))),
        (Counter(done=5), 3, 1 + 2 + 3 + 4 + 5),
        (Counter(done=6), 3, 1 + 2 + 3 + 4 + 5 + 6),
        (Counter(breaks=5), 3, 1 + 2 + 3),
        (Counter(breaks=6), 3, 1 + 2 + 3),
    ],
)
def test_returns_are_exact(environment, repeat, expected):
    task = make(environment, repeat=repeat)
    assert total(task) == expected
    es = shardes.ShardedES(shardes.Mirrored(shardes.LowRank(r=1)), 4, sigma=0.1, lr=0.1)
    pert, state = es.ask(es.init(jax.random.key(0), task.init(jax.random.key(1))))
    np.testing.assert_array_equal(task.evaluate(es, state, pert, jax.random.key(2)), np.full((4, 1), -expected))


def test_a_policy_sees_one_of_several_observations():
    environment = Counter(observe=lambda t: {"state": jnp.stack([t, t, t]), "privileged": jnp.stack([t])})
    assert make(environment).spec.observation_size == 3
    assert make(environment, observation="privileged").spec.observation_size == 1
    with pytest.raises(TaskError, match="'pixels' is given"):
        make(environment, observation="pixels")


def test_what_an_environment_writes_into_a_state_is_its_own():
    environment = Counter()
    task = make(environment)
    state, _ = task._reset(jax.random.key(0))
    after, *_ = task._step(state, jnp.zeros(2))
    assert state.info["steps"] == 0
    assert after.info["steps"] == 1


@pytest.mark.parametrize(
    ("dt", "repeat", "frames", "rate"), [(0.01, 1, 3, 50), (0.01, 2, 6, 50), (0.02, 1, 6, 50), (0.1, 1, 6, 10)]
)
def test_frames_come_as_fast_as_they_happened_and_at_most_50_a_second(dt, repeat, frames, rate, monkeypatch):
    monkeypatch.setattr(environments, "headless", lambda: environments.contextlib.nullcontext())
    environment = Counter()
    environment.dt = dt
    task = make(environment, repeat=repeat)
    states = task._trajectory(True, task.init(jax.random.key(0)), jax.random.key(1))[1]
    drawn, found = task._draw(states)
    assert len(drawn) == frames
    assert found == pytest.approx(rate)


def test_a_name_that_is_none_and_a_package_that_is_missing():
    with pytest.raises(TaskError, match=r"Zoo has no environment 'ants'\. Did you mean 'Ant'\?"):
        environments.check_name("ants", ["Ant", "Bee"], "Zoo")
    with pytest.raises(TaskError, match="There are Ant, Bee"):
        environments.check_name("qqqq", ["Ant", "Bee"], "Zoo")
    with pytest.raises(TaskError, match=r"pip install 'shardes-tasks\[zoo\]'"):
        environments.imported("no_such_package.envs", "zoo")
