"""The numbers of a generation against numpy, with members that are not finite and with groups."""

import jax.numpy as jnp
import numpy as np
import pytest

from shardes.generation import summarize

BEFORE = [jnp.array([3.0, 4.0]), jnp.zeros((2, 2))]
AFTER = [jnp.array([3.0, 4.5]), jnp.full((2, 2), -0.25)]
NAN, INF = np.nan, np.inf


FITNESS = {
    "finite": [3.0, 1.0, 2.0, 7.0],
    "two lost": [3.0, NAN, 2.0, -INF],
    "one left": [NAN, INF, 5.0, NAN],
    "groups": [[1.0, 2.0], [4.0, 0.5], [NAN, 1.0], [2.0, 2.0]],
}


@pytest.mark.parametrize("fitness", FITNESS.values(), ids=FITNESS)
def test_numbers_are_of_the_finite_members(fitness):
    members = np.array(fitness).reshape(4, -1)
    finite = members[np.isfinite(members).all(axis=1)].mean(axis=1)
    numbers = summarize(BEFORE, AFTER, jnp.array(fitness), jnp.float32(2))
    ratio = np.sqrt(0.25 + 4 * 0.0625) / 5
    expected = [finite.mean(), finite.min(), finite.std(), 4 - len(finite), ratio, 2]
    np.testing.assert_allclose(numbers, expected, rtol=1e-6)


def test_without_a_finite_member_there_are_none():
    numbers = summarize(BEFORE, AFTER, jnp.full(4, NAN), jnp.float32(0))
    np.testing.assert_array_equal(np.asarray(numbers)[:4], [NAN, NAN, NAN, 4])
