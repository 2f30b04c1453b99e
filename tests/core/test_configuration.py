"""Two evolution strategies that update differently have different configurations, and equal ones the same."""

import functools

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import shardes
from shardes.configuration import configuration, difference


def make(**options):
    options = {"lr": 0.1, **options} if "optimizer" not in options else options
    return shardes.ShardedES(shardes.SeedRegenerated(), 4, **{"sigma": 0.1, **options})


def decayed(rate):
    return lambda generation: rate / (1 + generation)


def scheduled(rate, generation):
    return rate / (1 + generation)


class Schedule:
    def __init__(self, rate):
        self.rate = rate
        self.itself = self

    def __call__(self, generation):
        return self.rate / (1 + generation)


PAIRS = {
    "rate": [{"optimizer": optax.adam(0.1)}, {"optimizer": optax.adam(0.2)}],
    "momentum": [{"optimizer": optax.sgd(0.1, momentum=0.9)}, {"optimizer": optax.sgd(0.1, momentum=0.8)}],
    "kind": [{"optimizer": optax.adam(0.1)}, {"optimizer": optax.adamw(0.1)}],
    "a schedule of optax": [{"optimizer": optax.adam(optax.linear_schedule(1, 0, steps))} for steps in (10, 20)],
    "steps": [{"optimizer": optax.MultiSteps(optax.adam(0.1), steps)} for steps in (2, 3)],
    "a closure": [{"lr": decayed(0.1)}, {"lr": decayed(0.2)}],
    "a partial": [{"lr": functools.partial(scheduled, 0.1)}, {"lr": functools.partial(scheduled, 0.2)}],
    "an object": [{"lr": Schedule(0.1)}, {"lr": Schedule(0.2)}],
    "a method": [{"lr": Schedule(0.1).__call__}, {"lr": Schedule(0.2).__call__}],
    "an array": [{"lr": decayed(jnp.float32(0.1))}, {"lr": decayed(jnp.float32(0.2))}],
    "sigma": [{"sigma": 0.1}, {"sigma": 0.2}],
    "sigma of a leaf": [{"sigma": {"a": 0.1, "b": np.float32(0.1)}}, {"sigma": {"a": 0.1, "b": np.float32(0.2)}}],
    "dtype": [{"compute_dtype": jnp.bfloat16}, {}],
    "deterministic": [{"deterministic": True}, {}],
    "frozen": [{"freeze": lambda path: path in ("a",)}, {}],
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_changes_the_update_changes_the_configuration(name):
    one, other = (configuration(make(**options)) for options in PAIRS[name])
    assert difference(one, other) is not None
    assert difference(one, configuration(make(**PAIRS[name][0]))) is None


def test_equal_settings_are_the_same_wherever_they_were_made():
    for options in (
        lambda: {"optimizer": optax.adam(0.1)},
        lambda: {"lr": decayed(0.1)},
        lambda: {"lr": Schedule(0.1)},
    ):
        assert configuration(make(**options())) == configuration(make(**options()))


@pytest.mark.parametrize("options", [{"how": "A"}, {"member_chunk": 2}, {"mesh": None}])
def test_what_only_rounds_otherwise_changes_nothing(options):
    assert configuration(make(**options)) == configuration(make())
