"""What the tests of the core share: a tiny model, the strategies, whole runs to compare, noise made visible."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated, ShardedES, Stacked
from shardes.nn import dense, embed

from .user_strategies import OuterSigns, Rademacher

STRATEGIES = {
    "iid": IIDGaussian(),
    "seed": SeedRegenerated(),
    "low_rank_1": LowRank(r=1),
    "low_rank_4": LowRank(r=4),
    "user_dense": Rademacher(),
    "user_structured": OuterSigns(),
}
PLACEMENTS = ("A", "B")
SHAPINGS = ("centered_ranks", "centered", "z_score", "group_relative", "none")

slow = pytest.mark.slow


def strategies(*fast):
    """Parametrises over every strategy; all but those named are left to the slow tier."""
    return pytest.mark.parametrize("name", [x if x in fast else pytest.param(x, marks=slow) for x in STRATEGIES])


# One of the library's whose noise is kept in factors, one of a user's whose noise is drawn again.
every_strategy = strategies("low_rank_1", "user_structured")
# Where the core alone decides: these, and one that keeps nothing.
some_strategies = pytest.mark.parametrize("name", ["low_rank_1", "user_structured", pytest.param("seed", marks=slow)])


def mesh_of(devices):
    return shardes.make_mesh(jax.devices()[:devices])


def make_es(name="iid", n=8, mirrored=True, devices=8, **options):
    """An ES of a named strategy; sigma and lr are such that one generation moves the params by about their size."""
    strategy = STRATEGIES[name] if isinstance(name, str) else name
    if "optimizer" not in options:
        options = {"lr": 0.1, **options}
    options = {"sigma": 0.1, "mesh": mesh_of(devices), **options}
    return ShardedES(Mirrored(strategy) if mirrored else strategy, n, **options)


def make_params(seed=0):
    """Params of a tiny scanned model: a tied embedding, stacked matrices and biases, a vector, and an integer leaf."""
    keys = jax.random.split(jax.random.key(seed), 3)
    return {
        "embed": jax.random.normal(keys[0], (16, 4)),
        "blocks": Stacked({"w": jax.random.normal(keys[1], (3, 4, 4)), "b": jnp.full((3, 4), 0.1)}),
        "gain": 1 + 0.1 * jax.random.normal(keys[2], (4,)),
        "target": jnp.array([3, 1, 4, 1, 5], jnp.int32),
    }


IDS = np.array([2, 7, 1, 8, 2], np.int32)


def loss(params, ids):
    """Mean squared distance of the scores of five tokens to the rows that `target` names."""

    def block(x, layer):
        x = dense(x, layer["w"])
        return jnp.tanh(x + jnp.broadcast_to(layer["b"], x.shape)), None

    x, _ = jax.lax.scan(block, embed(params["embed"], ids), params["blocks"].layers)
    scores = dense(x * jnp.broadcast_to(params["gain"], x.shape), params["embed"])
    return jnp.mean((scores.astype(jnp.float32) - jax.nn.one_hot(params["target"], 16)) ** 2)


@dataclasses.dataclass(frozen=True)
class Run:
    """Ten generations of the tiny model: the first params and those after 1 and 10 of them, and every fitness."""

    start: Any
    after: dict[int, Any]
    fitness: np.ndarray


KEYS = {
    "threefry2x32": lambda: jax.random.key(7, impl="threefry2x32"),
    "rbg": lambda: jax.random.key(7, impl="rbg"),
    "unsafe_rbg": lambda: jax.random.key(7, impl="unsafe_rbg"),
    "raw threefry2x32": lambda: jax.random.key_data(jax.random.key(7, impl="threefry2x32")),
    "raw rbg": lambda: jax.random.key_data(jax.random.key(7, impl="rbg")),
    "raw unsafe_rbg": lambda: jax.random.key_data(jax.random.key(7, impl="unsafe_rbg")),
}


@functools.cache
def compiled_step(name, how, devices, n, mirrored, chunk):
    # Ranks jump where two members are level to the last bit, so that they cannot be compared to rounding.
    es = make_es(name, n, mirrored, devices, how=how, member_chunk=chunk, lr=0.005, shaping=shardes.shaping.z_score)
    return es, es.step(loss)


@functools.cache
def run(name, how="B", devices=1, n=30, mirrored=True, chunk=None, key="threefry2x32"):
    """Ten generations of `step`, compiled once for all keys."""
    es, step = compiled_step(name, how, devices, n, mirrored, chunk)
    state, after, fitness = es.init(KEYS[key](), make_params()), {}, []
    for generation in range(1, 11):
        state, losses = step(state, IDS)
        fitness.append(np.asarray(losses))
        if generation in (1, 10):
            after[generation] = jax.device_get(state.params)
    return Run(make_params(), after, np.stack(fitness))


def assert_same_run(run, reference, tolerance=1e-5):
    """After one generation and after ten, every leaf has moved the same way, and every member had the same fitness.

    The way is relative to the largest movement of a leaf, beside what float32 may round off the master a generation.
    """
    np.testing.assert_allclose(run.fitness, reference.fitness, rtol=tolerance)
    for generation in (1, 10):
        rounding = generation * np.spacing(np.float32(2))
        given, expected = (update(one.start, one.after[generation]) for one in (run, reference))
        for a, b in zip(given, expected, strict=True):
            assert np.abs(b).max() > 100 * rounding
            assert np.abs(a - b).max() <= tolerance * np.abs(b).max() + rounding


def update(before, after):
    """How far every float leaf has moved, in float64."""
    return [
        np.asarray(new, np.float64) - np.asarray(old, np.float64)
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        if jnp.issubdtype(old.dtype, jnp.floating)
    ]


def assert_identical(given, expected):
    """Two trees are equal in structure, dtypes and every bit."""
    assert jax.tree.structure(given) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def materialize(weight):
    """The array that a leaf stands for as a member sees it, structured or not, read through the seam alone."""
    if not isinstance(weight, shardes.StructuredWeight):
        return weight
    for_layer = lambda w: dense(jnp.eye(w.shape[-1], dtype=w.dtype), w).T  # noqa: E731
    for _ in range(weight.ndim - 2):
        for_layer = jax.vmap(for_layer)
    return for_layer(weight)


def seen_params(params):
    """A function for `apply` that returns the params of every member as arrays."""
    return jax.tree.map(materialize, params, is_leaf=lambda x: isinstance(x, shardes.StructuredWeight))


def lenient(optimizer):
    """The optimizer, left to promote dtypes as optax's own Adam does; all around it stays strict."""

    def update(*args):
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(*args)

    return optimizer._replace(update=update)


@functools.cache
def _at_zero(strategy, n, devices, **options):
    return ShardedES(strategy, n, sigma=1.0, lr=1.0, mesh=mesh_of(devices), **options)


def noise_of(strategy, n, params, key=0, generation=0, devices=1, function=seen_params, **options):
    """Sign times noise of every member, params-shaped with a leading axis of n: what members at zero see of sigma 1."""
    es = _at_zero(strategy, n, devices, **options)
    state = es.init(jax.random.key(key), jax.tree.map(jnp.zeros_like, params))
    pert, state = es.ask(state._replace(generation=jnp.int32(generation)))
    return jax.device_get(es.apply(function, state, pert)())
