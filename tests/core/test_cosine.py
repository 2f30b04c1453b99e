"""The numbers behind the expected cosine: the fourth moments of the noise, and the directions that a cosine needs."""

import jax.numpy as jnp
import pytest

from shardes import IIDGaussian, LowRank, Mirrored, Stacked
from shardes.diagnosis.cosine import directions_for, expected_cosine, sampled_dimension
from shardes.leaves import Leaves


def dimension(strategy, **shapes):
    return sampled_dimension(strategy, Leaves({name: jnp.zeros(shape) for name, shape in shapes.items()}))


@pytest.mark.parametrize("r", [1, 2, 4])
def test_an_entry_of_rank_r(r):
    """sum_k x_k y_k / sqrt(r) of normals has the fourth moment 3 + 6 / r, which is K."""
    assert dimension(LowRank(r), w=(1, 1)) == pytest.approx(3 + 6 / r - 1)


@pytest.mark.parametrize("columns", [1, 5, 8])
def test_a_row_of_rank_one(columns):
    """Of x y along the first axis, K = E[x^4] E[y_1^2 |y|^2] = 3 (columns + 2)."""
    assert dimension(LowRank(1), w=(1, columns)) == pytest.approx(3 * (columns + 2) - 1)


def test_leaves_count_by_their_size():
    excess = 2 * (2 + 3 + 1) / 4
    assert dimension(LowRank(4), w=(2, 3)) == pytest.approx(6 + 1 + excess)
    assert dimension(Mirrored(LowRank(4)), w=(2, 3), b=(4,)) == pytest.approx(10 + 1 + excess * 6 / 10)
    assert dimension(IIDGaussian(), w=(2, 3), b=(4,)) == 11
    stacked = Leaves({"w": Stacked(jnp.zeros((5, 2, 3))), "b": jnp.zeros(4)})
    assert sampled_dimension(LowRank(4), stacked) == pytest.approx(34 + 1 + excess * 30 / 34)


@pytest.mark.parametrize("strategy", [LowRank(1), Mirrored(LowRank(1))], ids=repr)
@pytest.mark.parametrize("cosine", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("size", [7.5, 1000.0])
def test_the_fewest_directions_of_a_cosine(strategy, cosine, size):
    fewest = directions_for(strategy, cosine, size)
    assert expected_cosine(strategy, fewest - 1, size) < cosine <= expected_cosine(strategy, fewest, size)
