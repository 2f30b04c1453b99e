"""An evolution strategy on CartPole's vector environment as one would write it by hand, in numpy."""

from typing import Any

import gymnasium
import numpy as np

Array = np.ndarray[Any, Any]


class Evolution:
    """Mirrored Gaussian noise of all weights, centered ranks, plain descent.

    Args:
        layers: weights (in, out) and biases (out,) of an MLP with tanh between.
        n: members, an even number.
        episodes: of each.
        sigma: scale of the noise.
        lr: learning rate.
    """

    def __init__(self, layers: list[tuple[Array, Array]], n: int, episodes: int, sigma: float, lr: float) -> None:
        self.layers, self.n, self.episodes, self.sigma, self.lr = layers, n, episodes, sigma, lr
        self.generator = np.random.default_rng(0)
        self.environments: Any = gymnasium.make_vec("CartPole-v1", n * episodes, "vector_entry_point")

    def generation(self) -> float:
        """One generation: how many steps of environments counted."""
        shapes = [(w.shape, b.shape) for w, b in self.layers]
        noise = [tuple(self._normal(shape) for shape in pair) for pair in shapes]
        members = [
            (w + self.sigma * a, (b + self.sigma * c)[:, None])
            for (w, b), (a, c) in zip(self.layers, noise, strict=True)
        ]
        returns = self._returns(members)
        ranks = np.empty(self.n, np.float32)
        ranks[np.argsort(returns)] = np.linspace(-0.5, 0.5, self.n, dtype=np.float32)
        step = self.lr / (self.n * self.sigma)
        self.layers = [
            (w + step * np.tensordot(ranks, a, 1), b + step * np.tensordot(ranks, c, 1))
            for (w, b), (a, c) in zip(self.layers, noise, strict=True)
        ]
        return float(returns.sum())

    def _returns(self, members: list[tuple[Array, Array]]) -> Array:
        observations, _ = self.environments.reset(seed=0)
        count = self.n * self.episodes
        returns, alive = np.zeros(count), np.ones(count, bool)
        while alive.any():
            x = observations.reshape(self.n, self.episodes, -1)
            for i, (w, b) in enumerate(members):
                x = x @ w + b
                if i < len(members) - 1:
                    x = np.tanh(x)
            observations, rewards, terminated, truncated, _ = self.environments.step(x.argmax(axis=-1).reshape(-1))
            returns += rewards * alive
            alive &= ~(terminated | truncated)
        return returns.reshape(self.n, self.episodes).sum(axis=1)

    def _normal(self, shape: tuple[int, ...]) -> Array:
        half = self.generator.standard_normal((self.n // 2, *shape), np.float32)
        return np.concatenate([half, -half])
