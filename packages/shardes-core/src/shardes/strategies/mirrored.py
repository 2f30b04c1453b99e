"""Antithetic pairs around any strategy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from shardes.strategies.base import Strategy

__all__ = ["Mirrored"]


@dataclasses.dataclass(frozen=True)
class Mirrored(Strategy):
    """Members 2k and 2k+1 share direction k of `inner`, with signs +1 and -1 (Salimans et al. 2017). `n` is even."""

    inner: Strategy
    signs = (1.0, -1.0)

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Strategy):
            raise TypeError(f"Mirrored needs a strategy, got {self.inner!r}. Pass one, as in Mirrored(LowRank(r=1)).")
        if self.inner.signs != (1.0,):
            raise ValueError(f"{self.inner!r} already has signs {self.inner.signs}. Mirror it once.")

    @property
    def keeps_noise(self) -> bool:  # type: ignore[override]
        """As inner."""
        return self.inner.keeps_noise

    @property
    def chunk(self) -> int | None:  # type: ignore[override]
        """As inner."""
        return self.inner.chunk

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> Any:
        """As inner."""
        return self.inner.noise(key, shape)

    def shift(self, weight: jax.Array, noise: Any, scale: jax.Array) -> Any:
        """As inner."""
        return self.inner.shift(weight, noise, scale)

    def contract(self, noise: Any, weights: jax.Array) -> jax.Array:
        """As inner."""
        return self.inner.contract(noise, weights)
