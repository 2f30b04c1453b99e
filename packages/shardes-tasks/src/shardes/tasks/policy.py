"""The policy of a task: a small MLP on the seams, deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from shardes import Frozen
from shardes.nn import dense
from shardes.tasks.heads import Head
from shardes.tasks.statistics import Statistics

__all__ = ["MLP"]


class MLP:
    """An MLP from an observation to an action, with running statistics of the observations if it is to normalise.

    Its params are {"layers": [{"w": (out, in), "b": (out,)}, ...]}, and where it normalises "observations", a
    `shardes.Frozen` of `Statistics`.

    Args:
        observation_size: numbers of an observation.
        head: makes the action.
        hidden: sizes of the hidden layers; none for a linear policy.
        activation: after each of them, such as `jnp.tanh` and `jax.nn.relu`.
        normalize: observations to mean 0 and variance 1, by all that were seen before this generation.
    """

    def __init__(
        self,
        observation_size: int,
        head: Head,
        *,
        hidden: Sequence[int] = (32, 32),
        activation: Callable[[jax.Array], jax.Array] = jnp.tanh,
        normalize: bool = False,
    ) -> None:
        self.sizes = (observation_size, *map(int, hidden), head.size)
        if min(self.sizes) < 1:
            raise ValueError(f"The layers have the sizes {self.sizes}, and each must be at least 1.")
        self.head = head
        self.activation = activation
        self.normalize = normalize

    def init(self, key: jax.Array) -> dict[str, Any]:
        """Params, float32: normal weights of variance 1/in, biases of 0."""
        keys = jax.random.split(key, len(self.sizes) - 1)
        layers = [
            {"w": jax.random.normal(k, (out, into), jnp.float32) / math.sqrt(into), "b": jnp.zeros(out, jnp.float32)}
            for k, into, out in zip(keys, self.sizes[:-1], self.sizes[1:], strict=True)
        ]
        params: dict[str, Any] = {"layers": layers}
        if self.normalize:
            params["observations"] = Frozen(Statistics.of_nothing(self.sizes[0]))
        return params

    def __call__(self, params: Any, observation: jax.Array) -> Any:
        """The action for an observation of shape (observation_size,)."""
        *hidden, last = params["layers"]
        x = observation.astype(jnp.float32)
        if self.normalize:
            x = self.statistics(params).normalize(x)
        for layer in hidden:
            x = self.activation(dense(x, layer["w"]) + layer["b"])
        return self.head(dense(x, last["w"]) + last["b"])

    def statistics(self, params: Any) -> Statistics:
        """Of the observations that the params were made with."""
        statistics: Statistics = params["observations"].tree
        return statistics

    def nothing_seen(self) -> Statistics | None:
        """The statistics that a generation begins with; None where they are not kept."""
        return Statistics.of_nothing(self.sizes[0]) if self.normalize else None

    def with_seen(self, params: Any, seen: Statistics | None) -> Any:
        """The params with the statistics of more observations."""
        if seen is None:
            return params
        return {**params, "observations": Frozen(self.statistics(params).with_others(seen))}
