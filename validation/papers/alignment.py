"""How closely the estimate follows the gradient, by rank and population, beside the theory."""

import itertools
import math
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import shardes
from shardes.diagnosis.cosine import expected_cosine, sampled_dimension
from shardes.leaves import Leaves
from shardes.nn import dense
from shardes.zoo import transformer_block
from validation.measuring import Run, in_processes

WHAT = (
    "the cosine of a generation's estimate with the gradient of jax.grad, as the mean of `count` independent ones, and "
    "its standard error. theory: sqrt(m / (m + K)) of m directions, with K = d + 1 for d Gaussian entries, and "
    "2 (a + b + 1) / r more for an (a, b) matrix of rank r, for a gradient spread evenly and a loss that is linear "
    "over sigma; worst: the largest difference, in standard errors"
)
STRATEGIES = {
    "full rank": shardes.SeedRegenerated(chunk=32),
    "rank 1": shardes.LowRank(r=1),
    "rank 2": shardes.LowRank(r=2),
    "rank 4": shardes.LowRank(r=4),
    "rank 16": shardes.LowRank(r=16),
}
SIGMA = 1e-3


def run(tiny: bool) -> dict[str, Any]:
    """In one process."""
    request: dict[str, Any] = {"strategies": list(STRATEGIES), "directions": [4, 16, 64, 256, 1024], "count": 32}
    if tiny:
        request = {"strategies": ["rank 1"], "directions": [4], "count": 2}
    rows = in_processes(measure, Run(request))
    return {"worst": max(abs(row["cosine"] - row["theory"]) / row["error"] for row in rows), "rows": rows}


def measure(strategies: list[str], directions: list[int], count: int) -> list[dict[str, Any]]:
    """A row a model, strategy and population."""
    rows = []
    for model, name in itertools.product((matrix, block), strategies):
        params, loss, strategy = *model(), STRATEGIES[name]
        gradient = flat(jax.grad(loss)(params))
        dimension = sampled_dimension(strategy, Leaves(params))
        for m in directions:
            found = cosines(shardes.Mirrored(strategy), 2 * m, params, loss, gradient, count)
            rows.append(
                {
                    "model": model.__name__,
                    "params": gradient.size,
                    "strategy": name,
                    "directions": m,
                    "count": count,
                    "cosine": statistics.fmean(found),
                    "error": statistics.stdev(found) / math.sqrt(count),
                    "theory": expected_cosine(shardes.Mirrored(strategy), m, dimension),
                }
            )
    return rows


def matrix() -> tuple[Any, Any]:
    """A matrix of 16 x 16 and a loss with a random gradient."""
    slope = jax.random.normal(jax.random.key(1), (16, 16))
    return {"w": jnp.zeros((16, 16))}, lambda params: jnp.sum(dense(jnp.eye(16), params["w"]) * slope.T)


def block() -> tuple[Any, Any]:
    """A transformer block of six of them."""
    batch = transformer_block.make_batch(jax.random.key(1), d_model=16, batch=2, seq=8)
    return transformer_block.init(jax.random.key(0), d_model=16), lambda params: transformer_block.loss(params, batch)


def cosines(strategy: Any, n: int, params: Any, loss: Any, gradient: np.ndarray[Any, Any], count: int) -> list[float]:
    """Of estimates of several generations at the same params: minus the update at lr 1, without shaping."""
    es = shardes.ShardedES(strategy, n, sigma=SIGMA, lr=1.0, shaping=shardes.shaping.none)
    state, found = es.init(jax.random.key(3), params), []
    for _ in range(count):
        pert, state = es.ask(state)
        told = es.tell(state, pert, es.apply(loss, state, pert)())
        estimate = flat(state.params) - flat(told.params)
        found.append(float(estimate @ gradient / np.linalg.norm(estimate) / np.linalg.norm(gradient)))
    return found


def flat(tree: Any) -> np.ndarray[Any, Any]:
    """All entries, in float64."""
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


def draw(found: dict[str, Any], figure: Any) -> None:
    """Cosines over directions, with the theory's lines, a panel a model."""
    rows = found["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    for axes, model in zip(figure.subplots(1, len(models), sharey=True), models, strict=True):
        for i, name in enumerate(dict.fromkeys(row["strategy"] for row in rows)):
            own = [row for row in rows if (row["model"], row["strategy"]) == (model, name)]
            m = [row["directions"] for row in own]
            axes.plot(m, [row["theory"] for row in own], color=f"C{i}", linewidth=1)
            errors = [2 * row["error"] for row in own]
            axes.errorbar(m, [row["cosine"] for row in own], errors, color=f"C{i}", fmt="o", markersize=4, label=name)
        axes.set(xscale="log", yscale="log", xlabel="directions", title=f"{model}, {own[0]['params']:,} params")
        axes.set_xticks(m, [f"{x:,}" for x in m])
        axes.minorticks_off()
    figure.supylabel("cosine with the gradient; lines: theory")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(STRATEGIES))
