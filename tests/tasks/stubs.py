"""Environments of Gymnasium that end, break, hang and die at a known step; importing this registers them."""

import os
import signal
import time
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

NAN, INF = float("nan"), float("inf")
LINE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
NESTED = spaces.Dict(
    {
        "choice": spaces.Discrete(3, start=-1),
        "pair": spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[1, 5])]),
        "pixels": spaces.Box(0, 255, (2, 2), np.uint8),
        "real": spaces.Box(-0.1, 0.3, (2,), np.float64),
        "free": spaces.Box(np.array([-np.inf, 0], np.float32), np.float32(np.inf)),
    }
)


class Stub(gymnasium.Env):
    """Counts steps. Reward, observation and end are functions of the number of the step, from 1, and of the seed."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, reward=float, observe=None, ends=lambda t: False, truncates=lambda t: False, at=None, **options):
        self.observation_space = options.get("observations", LINE)
        self.action_space = options.get("actions", spaces.Discrete(2))
        self.reward, self.ends, self.truncates, self.at = reward, ends, truncates, at or {}
        self.observe = observe or (lambda t: np.array([t, 1.0]))
        self.render_mode = options.get("render_mode")
        self.over = True

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.over, self.start = 0, False, int(self.np_random.integers(100))
        return self.observe(0), {}

    def step(self, action):
        assert not self.over, "it is stepped after its end"
        assert self.action_space.contains(action), f"{action!r} is no action"
        self.t += 1
        self.at.get(self.t, lambda: None)()
        terminated, truncated = self.ends(self.t), self.truncates(self.t)
        self.over = bool(terminated or truncated)
        return self.observe(self.t), self.reward(self.t), terminated, truncated, {}

    def render(self):
        frame = np.zeros((32, 48, 3), np.uint8)
        frame[:, : 4 * (self.t + 1)] = 255
        return frame


class Seeded(Stub):
    """Its only reward is what the seed has drawn."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.start, *rest


class Noisy(Stub):
    """A walk from where the seed says, which action and noise of its own move; it ends far out."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=2)
        return self.x.copy(), {}

    def step(self, action):
        assert np.isfinite(action).all()
        self.x = 0.9 * self.x + 0.3 * np.asarray(action, np.float64) + 0.1 * self.np_random.normal(size=2)
        far = bool(np.abs(self.x).max() > 2)
        return self.x.copy(), -float(np.sum(self.x**2)), far, False, {}


class Ramp(CartPoleVectorEnv):
    """CartPole's vector environment, whose reward is the number of the step."""

    def step(self, action):
        number = self.steps + 1
        observations, reward, *rest = super().step(action)
        return observations, reward * number, *rest


class RampAlone(gymnasium.envs.classic_control.cartpole.CartPoleEnv):
    """The same of one environment."""

    def reset(self, **options):
        self.t = 0
        return super().reset(**options)

    def step(self, action):
        self.t += 1
        observation, reward, *rest = super().step(action)
        return observation, reward * self.t, *rest


def fail():
    raise ValueError("the simulator has a bug")


STUBS = {
    "Ends": ({"ends": lambda t: t == 4}, 1 + 2 + 3 + 4, 4),
    "Once": ({"ends": lambda t: True}, 1, 1),
    "Truncates": ({"truncates": lambda t: t == 3}, 1 + 2 + 3, 3),
    "Both": ({"truncates": lambda t: t == 3, "ends": lambda t: t == 3}, 1 + 2 + 3, 3),
    "Never": ({}, sum(range(1, 10)), 9),
    "Integer": ({"reward": lambda t: np.int64(2 * t)}, 2 * sum(range(1, 10)), 9),
    "Array": ({"reward": lambda t: np.float32(t), "ends": lambda t: np.bool_(t == 2)}, 3, 2),
    "NaNReward": ({"reward": lambda t: NAN if t == 5 else t}, 1 + 2 + 3 + 4, 4),
    "InfReward": ({"reward": lambda t: INF if t == 5 else t}, 1 + 2 + 3 + 4, 4),
    "NaNSeen": ({"observe": lambda t: np.array([NAN if t >= 3 else 1, 1.0])}, 1 + 2, 2),
    "TooLarge": ({"observe": lambda t: np.array([1e300 if t >= 3 else 1, 1.0])}, 1 + 2, 2),
    "NaNFirst": ({"observe": lambda t: np.array([NAN if t == 0 else 1, 1.0])}, 0, 0),
    "AllNaN": ({"observe": lambda t: np.array([NAN, NAN])}, 0, 0),
}
BROKEN = {
    "Raises": {"at": {3: fail}},
    "Dies": {"at": {3: lambda: os.kill(os.getpid(), signal.SIGKILL)}},
    "Exits": {"at": {3: lambda: os._exit(7)}},
    "Hangs": {"at": {3: lambda: time.sleep(600)}},
}

for name, (options, _, _) in STUBS.items():
    gymnasium.register(f"Stub{name}-v0", Stub, kwargs=options, max_episode_steps=9)
for name, options in BROKEN.items():
    gymnasium.register(f"Stub{name}-v0", Stub, kwargs=options, max_episode_steps=9)
gymnasium.register("StubEndless-v0", Stub)
gymnasium.register("StubRich-v0", Stub, kwargs={"reward": lambda t: 1e300}, max_episode_steps=9)
gymnasium.register(
    "StubGiant-v0", Stub, kwargs={"observe": lambda t: np.array([1e30 if t == 4 else t, 1.0])}, max_episode_steps=9
)
for name, seen in {"Scalar": 1.0, "Short": np.ones(1), "None": None}.items():
    gymnasium.register(f"Stub{name}-v0", Stub, kwargs={"observe": lambda t, seen=seen: seen}, max_episode_steps=9)
gymnasium.register("StubSeeded-v0", Seeded, kwargs={"ends": lambda t: True}, max_episode_steps=9)
gymnasium.register(
    "StubNoisy-v0", Noisy, kwargs={"actions": spaces.Box(-1.0, 1.0, (2,), np.float64)}, max_episode_steps=20
)
gymnasium.register(
    "StubNested-v0",
    Stub,
    kwargs={"observations": NESTED, "actions": NESTED, "observe": lambda t: NESTED.sample()},
    max_episode_steps=9,
)
gymnasium.register("StubRamp-v0", entry_point=RampAlone, vector_entry_point=Ramp, max_episode_steps=15)
