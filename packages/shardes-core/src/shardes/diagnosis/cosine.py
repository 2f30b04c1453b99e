"""How closely a generation's estimate can follow the gradient.

On a linear loss of gradient g the estimate is the mean of (g . eps) eps over m directions. Its mean is g, and
E|estimate|^2 = (m - 1 + K) / m |g|^2 with K |g|^2 = E[(g . eps)^2 |eps|^2]: the cosine is about sqrt(m / (m - 1 + K)).
For d Gaussian entries K = d + 2, by Isserlis' theorem. For an (a, b) matrix of rank-r noise it is ab + 2 +
2 (a + b + 1) / r: its entries are as many and as uncorrelated, so that d counts them all, and not the few numbers they
are made of. Over many leaves the excesses over d + 2 are averaged, weighted by each leaf's share of |g|^2.
"""

from __future__ import annotations

import math

from shardes.leaves import Leaves
from shardes.strategies import LowRank, Mirrored, Strategy

__all__ = ["directions_for", "expected_cosine", "sampled_dimension"]


def sampled_dimension(strategy: Strategy, leaves: Leaves) -> float:
    """The `d + 1` of `sqrt(m / (m + d + 1))`, for a gradient spread evenly over the trained entries.

    A strategy that is none of this library's counts as full rank.
    """
    inner = strategy.inner if isinstance(strategy, Mirrored) else strategy
    dimension = excess = 0.0
    for leaf in leaves.trained:
        size = leaf.layers * math.prod(leaf.shape)
        dimension += size
        if isinstance(inner, LowRank) and len(leaf.shape) == 2:
            excess += size * 2 * (sum(leaf.shape) + 1) / inner.r
    return dimension + 1 + excess / max(dimension, 1)


def expected_cosine(strategy: Strategy, directions: int, dimension: float) -> float:
    """The cosine of an estimate with the gradient of a linear loss, its fitness centred; ranks cost some per cent."""
    independent = directions - _lost_to_mean(strategy)
    return math.sqrt(independent / (independent + dimension))


def directions_for(strategy: Strategy, cosine: float, dimension: float) -> int:
    """The directions at which that cosine is expected."""
    return math.ceil(cosine**2 / (1 - cosine**2) * dimension) + _lost_to_mean(strategy)


def _lost_to_mean(strategy: Strategy) -> int:
    """1 where the mean fitness, which shaping takes off, is fitted to the very directions; mirrored pairs have none."""
    return int(sum(strategy.signs) != 0)
