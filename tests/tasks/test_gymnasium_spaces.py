"""Heads and flat observations of Gymnasium's spaces, against its own `contains` and `flatten`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from shardes.tasks import TaskError
from shardes.tasks.gymnasium.spaces import actions_of, head, observation_size
from shardes.tasks.gymnasium.stepping import part

from .stubs import NESTED

LARGEST = np.finfo(np.float64).max

SPACES = {
    "discrete": spaces.Discrete(4),
    "start": spaces.Discrete(3, start=-5),
    "multi": spaces.MultiDiscrete([[2, 3], [4, 1]]),
    "multi start": spaces.MultiDiscrete([2, 3], start=[7, -2]),
    "binary": spaces.MultiBinary((2, 3)),
    "box": spaces.Box(-2, 3, (2, 2)),
    "float64": spaces.Box(np.array([-0.1, 0.1]), np.array([0.1, 0.3]), dtype=np.float64),
    "float16": spaces.Box(np.float16(-1), np.float16(1), (2,), np.float16),
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "int64": spaces.Box(-3, 2, (4,), np.int64),
    "infinite": spaces.Box(np.float32([-np.inf, 0, -np.inf]), np.float32([np.inf, np.inf, 1])),
    "too large": spaces.Box(-LARGEST, LARGEST, (2,), np.float64),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "dict": NESTED,
    "tuple": spaces.Tuple([NESTED, spaces.Discrete(2)]),
}


@pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_action_is_one_of_the_space(space):
    acting = head(space)
    numbers = np.random.default_rng(0).normal(0, 5, (40, acting.size)).astype(np.float32)
    numbers[0], numbers[1] = 1e6, -1e6
    actions = actions_of(space, jax.vmap(acting)(jnp.asarray(numbers)))
    for row in range(40):
        assert space.contains(part(actions, row)), part(actions, row)
    assert len({repr(part(actions, row)) for row in range(40)}) > 1
    by_member = actions_of(space, jax.vmap(jax.vmap(acting))(jnp.asarray(numbers).reshape(8, 5, acting.size)))
    assert repr(by_member) == repr(actions)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_size_of_an_observation_is_that_of_the_flat_one(space):
    acting = head(space)
    one = part(actions_of(space, jax.vmap(acting)(jnp.zeros((1, acting.size)))), 0)
    assert observation_size(space) == spaces.flatten(space, one).size


@pytest.mark.parametrize("name", ["box", "float64", "bytes", "int64"])
def test_bounds_are_reached(name):
    space = SPACES[name]
    acting = head(space)
    for sign, bound in ((1, space.high), (-1, space.low)):
        numbers = jnp.full((1, acting.size), 30.0 * sign)
        np.testing.assert_allclose(actions_of(space, jax.vmap(acting)(numbers))[0], bound, rtol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Text(3)])}),
    ],
    ids=["text", "sequence", "graph", "nested"],
)
def test_what_is_no_array_is_refused(space):
    with pytest.raises(TaskError, match=r"Observations are of .* is not an array of numbers.*TransformObservation"):
        observation_size(space)
    with pytest.raises(TaskError, match=r"Actions are of .* is not an array of numbers.*TransformAction"):
        head(space)
