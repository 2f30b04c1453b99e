"""Evolution strategies as two papers set them up, their scale conventions turned into this library's.

The update here is `theta - lr / (n sigma) sum_i w_i eps_i` on a loss, with noise of unit scale.
"""

from __future__ import annotations

import math
from typing import Any

import jax

from shardes import shaping
from shardes.es import ShardedES
from shardes.state import Optimizer
from shardes.strategies import LowRank, Mirrored, SeedRegenerated

__all__ = ["eggroll", "qiu"]


def qiu(*, n: int = 30, sigma: float = 1e-3, alpha: float | None = None, **options: Any) -> ShardedES:
    """Full-rank noise from seeds, as Qiu et al. 2025 fine-tune language models (arXiv 2509.24372).

    Their update, `theta + alpha / n sum_i Z_i eps_i` on z-scored rewards, is not divided by sigma: `lr = alpha sigma`.
    No mirrored pairs, no optimizer, the same 30 members, sigma and alpha for every model of the paper.

    Args:
        n: members a generation.
        sigma: scale of the perturbation, a number.
        alpha: their learning rate; half of sigma by default, as in the paper.
        options: of `ShardedES`.
    """
    alpha = sigma / 2 if alpha is None else alpha
    return ShardedES(
        SeedRegenerated(), n, **{"sigma": sigma, "lr": alpha * sigma, "shaping": shaping.z_score, **options}
    )


def eggroll(
    *,
    n: int,
    sigma: float,
    lr: float | None = None,
    optimizer: Optimizer | None = None,
    rank: int = 1,
    groups: bool = False,
    **options: Any,
) -> ShardedES:
    """Mirrored low-rank noise, as EGGROLL sets it up (Sarkar et al. 2025, arXiv 2511.16652, and its released code).

    Its gradient, `sqrt(n) mean_i(score_i E_i)` with sigma inside `E`, is `sqrt(n) sigma**2` times this library's: plain
    SGD takes `lr sqrt(n) sigma**2`, an optimizer is handed the gradient scaled as much.

    Args:
        n: members a generation.
        sigma: scale of the perturbation, a number.
        lr: their learning rate of plain SGD. Give this or `optimizer`.
        optimizer: an optax transformation.
        rank: of the noise of a matrix.
        groups: fitness is (n, groups), each group centred on its mean, as for prompts; else z-scored as a whole.
        options: of `ShardedES`.
    """
    scale = math.sqrt(n) * sigma**2
    return ShardedES(
        Mirrored(LowRank(rank)),
        n,
        **{
            "sigma": sigma,
            "lr": None if lr is None else lr * scale,
            "optimizer": None if optimizer is None else _Scaled(optimizer, scale),
            "shaping": shaping.group_relative if groups else shaping.z_score,
            **options,
        },
    )


class _Scaled:
    """An optimizer whose gradients are scaled first."""

    def __init__(self, optimizer: Optimizer, scale: float) -> None:
        self.optimizer = optimizer
        self.scale = scale
        self.init = optimizer.init

    def update(self, gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return self.optimizer.update(jax.tree.map(lambda g: g * self.scale, gradient), state, params)
