"""One generation, measured without changing the state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardes.diagnosis.cosine import directions_for, expected_cosine, sampled_dimension
from shardes.diagnosis.program import computes_in, cost, large_constants
from shardes.diagnosis.report import Diagnosis
from shardes.es import ShardedES
from shardes.leaves import Leaves
from shardes.state import ESState, Perturbation

__all__ = ["diagnose"]


def diagnose(es: ShardedES, state: ESState, loss: Callable[..., jax.Array], *batch: Any) -> Diagnosis:
    """One generation measured: `print` what it returns for a page that says what may keep it from learning.

    It asks, evaluates `loss(params, *batch)` and tells as `es.step` would, and throws the new state away: about the
    cost of one generation and of its compilation. In a run of several processes, all must call it.

    Args:
        es: the evolution strategy.
        state: the state to measure at. It is neither changed nor donated.
        loss: the loss, as for `es.step`.
        batch: what the loss takes after the params.

    Returns:
        The numbers, as fields; its text is the page, and its `alarms` name the lines that call for action.

    Raises:
        TypeError, ValueError: as `es.apply` and `es.tell`, for a loss that does not fit them.
    """
    if not isinstance(es, ShardedES):
        raise TypeError(f"diagnose(es, state, loss, *batch) needs a shardes.ShardedES first, got {type(es).__name__}.")
    if not callable(loss):
        raise TypeError(f"loss must be a function (params, *batch) -> fitness, got {type(loss).__name__}.")
    pert, asked = es.ask(state)
    leaves = Leaves(state.params, es.freeze)
    program = _trace(es, state, loss, batch)
    evaluate = jax.jit(lambda state, pert, batch: es.apply(loss, state, pert)(*batch))
    evaluation = evaluate.lower(asked, pert, batch).compile()
    fitness = evaluation(asked, pert, batch)
    told = es.tell(asked, pert, fitness)
    narrower = sorted(
        (dtype for dtype in computes_in(program) if dtype.itemsize < fitness.dtype.itemsize),
        key=lambda dtype: jnp.finfo(dtype).nmant,
    )

    def measure(state: ESState, told: ESState, pert: Perturbation, fitness: jax.Array) -> Any:
        measured = _of_fitness(fitness, narrower), _of_perturbation(es, state, pert), _of_update(leaves, state, told)
        return lax.with_sharding_constraint(measured, es._replicated)

    of_fitness, lost, of_update = jax.device_get(jax.jit(measure)(state, told, pert, fitness))
    dtype = next((dtype for dtype, fits in zip(narrower, of_fitness["fits"], strict=True) if fits), fitness.dtype)
    sizes = {leaf.path: leaf.layers * math.prod(leaf.shape) for leaf in leaves.all}
    shares = {leaf.path: float(x) for leaf, x in zip(leaves.trained, lost, strict=True) if x is not None}
    counted = sum(sizes[path] for path in shares)
    population, signs = es._population, len(es.strategy.signs)
    dimension = sampled_dimension(es.strategy, leaves)
    noise = jax.eval_shape(lambda: leaves.noise(es.strategy, pert.key, jnp.uint32(0)))
    flops, at_least = cost(program)
    past, skipped, lr = jax.device_get((state._replace(params=None, opt_state=None), told.skipped, pert.lr))
    return Diagnosis(
        strategy=repr(es.strategy),
        n=es.n,
        generation=int(past.generation),
        lr=None if lr is None else float(lr),
        distinct=int(of_fitness["distinct"]),
        non_finite=int(of_fitness["non_finite"]),
        spread=float(of_fitness["spread"]),
        step=_spacing(float(of_fitness["magnitude"]), dtype),
        step_dtype=str(dtype),
        compute_step=_spacing(float(of_fitness["magnitude"]), es.compute_dtype or fitness.dtype),
        compute_dtype=str(jnp.dtype(es.compute_dtype or fitness.dtype)),
        rounded_away=sum(share * sizes[path] for path, share in shares.items()) / counted if counted else None,
        rounded_away_by_leaf=shares,
        directions=population.directions,
        trained=sum(sizes[leaf.path] for leaf in leaves.trained),
        params=sum(sizes.values()),
        held=tuple(leaf.path for leaf in leaves.all if not leaf.trained),
        drawn=sum(x.size for x in jax.tree.leaves(noise)),
        cosine=expected_cosine(es.strategy, population.directions, dimension),
        n_for_alignment=signs * directions_for(es.strategy, 0.1, dimension),
        update_ratio=float(of_update["change"] / of_update["norm"]) if of_update["norm"] else None,
        update_vanished=float(of_update["vanished"]),
        update_skipped=bool(skipped > past.skipped),
        constants=large_constants(loss, program),
        flops=flops,
        flops_at_least=at_least,
        temporary_bytes=getattr(evaluation.memory_analysis(), "temp_size_in_bytes", None),
        members_a_device=population.local * signs,
        members_at_once=_members_at_once(es),
        past_non_finite=int(past.non_finite),
        past_skipped=int(past.skipped),
    )


def _trace(es: ShardedES, state: ESState, loss: Callable[..., Any], batch: Any) -> Any:
    """The loss of unperturbed params as a jaxpr."""
    seen = jax.eval_shape(es._seen, state.params)
    program, output = jax.make_jaxpr(loss, return_shape=True)(seen, *batch)
    if not isinstance(output, jax.ShapeDtypeStruct):
        raise TypeError(f"loss must return one array, a number or one an episode, got {type(output).__name__}.")
    return program


def _of_fitness(fitness: jax.Array, narrower: list[Any]) -> dict[str, Any]:
    """Reductions over the population, and for each narrower dtype whether all fitness is of its numbers."""
    scores = fitness.reshape(fitness.shape[0], -1)
    finite = jnp.isfinite(scores).all(axis=1)
    fits = []
    for dtype in map(jnp.finfo, narrower):
        # XLA may drop a cast and its inverse; it keeps this.
        rounded = lax.reduce_precision(scores, exponent_bits=dtype.nexp, mantissa_bits=dtype.nmant)
        fits.append(jnp.where(finite[:, None], rounded == scores, True).all())
    values = jnp.where(finite, scores.mean(axis=1), jnp.inf)
    ordered = jnp.sort(values)
    new = jnp.isfinite(ordered) & (ordered != jnp.roll(ordered, 1)).at[0].set(True)
    offset = jnp.where(finite, values - jnp.where(finite.any(), ordered[0], 0), 0)
    count = jnp.maximum(finite.sum(), 1).astype(values.dtype)
    deviations = jnp.where(finite, offset - offset.sum() / count, 0)
    return {
        "distinct": new.sum(),
        "non_finite": (~finite).sum(),
        "spread": jnp.sqrt((deviations**2).sum() / count),
        "magnitude": jnp.where(finite, jnp.abs(values), 0).sum() / count,
        "fits": fits,
    }


def _of_perturbation(es: ShardedES, state: ESState, pert: Perturbation) -> list[Any]:
    """For every trained leaf the share of entries that the first direction leaves as they are; None if structured."""
    leaves = Leaves(state.params, es.freeze)
    weights = leaves.select(es._seen(state.params))
    noise = leaves.noise(es.strategy, pert.key, jnp.uint32(0))
    shifted = leaves.shift(es.strategy, weights, noise, leaves.scales(pert.sigma))
    return [
        _count(member == weight) / max(weight.size, 1) if isinstance(member, jax.Array) else None
        for member, weight in zip(shifted, weights, strict=True)
    ]


def _of_update(leaves: Leaves, state: ESState, told: ESState) -> dict[str, Any]:
    """Norms of the trained params and of their change, and the share of entries without one."""
    before, after = leaves.select(state.params), leaves.select(told.params)
    unchanged = sum(_count(b == a) for b, a in zip(before, after, strict=True))
    return {
        "norm": _norm(before),
        "change": _norm([a - b for b, a in zip(before, after, strict=True)]),
        "vanished": unchanged / max(sum(b.size for b in before), 1),
    }


def _count(flags: jax.Array) -> jax.Array:
    """How many are true, float32: summed in two parts, neither of which saturates in a large array."""
    counts = jnp.atleast_1d(flags).sum(axis=-1, dtype=jnp.int32).astype(jnp.float32)
    return jnp.sum(counts)


def _norm(arrays: list[jax.Array]) -> jax.Array:
    """The norm of all entries, by parts, which a large array needs."""
    rows = [jnp.linalg.norm(jnp.atleast_1d(x).astype(jnp.float32), axis=-1).ravel() for x in arrays]
    norm: jax.Array = jnp.linalg.norm(jnp.stack([jnp.linalg.norm(x) for x in rows]))
    return norm


def _spacing(magnitude: float, dtype: Any) -> float:
    """Distance of neighbouring numbers of a float dtype at a magnitude."""
    info = jnp.finfo(dtype)
    return float(np.ldexp(1.0, max(math.frexp(magnitude)[1] - 1, info.minexp) - info.nmant)) if magnitude else 0.0


def _members_at_once(es: ShardedES) -> int | None:
    """Members that a device evaluates at once; None on a CPU that is left to decide while it traces."""
    population, signs = es._population, len(es.strategy.signs)
    if population.member_chunk == 1:
        return 1
    chunk = population.known_chunk
    return None if chunk is None else signs * min(chunk, population.local)
