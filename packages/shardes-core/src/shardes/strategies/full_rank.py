"""Full-rank Gaussian noise: kept (the reference), or regenerated from its seed (Qiu et al. 2025)."""

from __future__ import annotations

import dataclasses

import jax

from shardes import random
from shardes.counts import is_count
from shardes.strategies.base import Strategy

__all__ = ["IIDGaussian", "SeedRegenerated"]


@dataclasses.dataclass(frozen=True)
class IIDGaussian(Strategy):
    """Independent Gaussian entries, materialised: the textbook reference. Memory is `n` times the params."""

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Standard normals of the leaf's shape."""
        noise: jax.Array = random.normal(key, shape)
        return noise


@dataclasses.dataclass(frozen=True)
class SeedRegenerated(IIDGaussian):
    """The very noise of `IIDGaussian`, drawn for the evaluation and again for the update, never kept.

    `chunk` directions are held at once, so memory is `chunk` times the params whatever `n` is. arXiv 2509.24372.
    """

    chunk: int = 1
    keeps_noise = False

    def __post_init__(self) -> None:
        if not is_count(self.chunk):
            raise ValueError(f"chunk must be an integer of at least 1, got {self.chunk!r}: directions held at once.")
