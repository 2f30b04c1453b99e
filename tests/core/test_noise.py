"""Noise of a direction is a function of the direction, the leaf, the generation and the key, and of nothing else."""

import functools

import jax
import numpy as np
import pytest

from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated

from .support import (
    STRATEGIES,
    assert_identical,
    assert_same_run,
    every_strategy,
    make_params,
    noise_of,
    run,
    slow,
    some_strategies,
)


def as_seen(params):
    """The float leaves as a member is handed them, structured weights in their parts."""
    return {name: params[name] for name in ("blocks", "embed", "gain")}


@functools.cache
def noise(strategy, n, **options):
    return noise_of(strategy, n, make_params(), function=as_seen, **options)


def members(tree, index):
    return jax.tree.map(lambda x: x[index], tree)


def test_regenerated_noise_has_the_bits_of_the_reference():
    assert_identical(noise(SeedRegenerated(), 15), noise(IIDGaussian(), 15))
    assert_identical(noise(SeedRegenerated(chunk=4), 15, devices=8), noise(IIDGaussian(), 15))


def test_regenerated_noise_gives_the_run_of_the_reference():
    assert_same_run(run("seed"), run("iid"))


@some_strategies
def test_members_of_a_pair_share_a_direction_with_opposite_signs(name):
    pairs = noise_of(Mirrored(STRATEGIES[name]), 14, make_params())
    singles = noise_of(STRATEGIES[name], 7, make_params())
    pairs.pop("target"), singles.pop("target")
    for pair, single in zip(jax.tree.leaves(pairs), jax.tree.leaves(singles), strict=True):
        np.testing.assert_allclose(pair[0::2], single, rtol=0, atol=1e-6)
        np.testing.assert_allclose(pair[1::2], -single, rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{"devices": 3, "member_chunk": 4}, {"devices": 8}], ids=repr)
@every_strategy
def test_neither_devices_nor_chunks_nor_the_size_of_the_population_matter(name, options):
    more = noise(STRATEGIES[name], 30, **options)
    assert_identical(members(more, slice(7)), noise(STRATEGIES[name], 7))


@every_strategy
def test_key_and_generation_matter_to_every_entry(name):
    first = noise_of(STRATEGIES[name], 30, make_params())
    for other in ({"key": 1}, {"generation": 1}):
        second = noise_of(STRATEGIES[name], 30, make_params(), **other)
        for field in ("blocks", "embed", "gain"):
            for a, b in zip(jax.tree.leaves(first[field]), jax.tree.leaves(second[field]), strict=True):
                assert (a != b).any(axis=0).all()


@pytest.mark.parametrize("r", [1, 3, pytest.param(2, marks=slow), pytest.param(8, marks=slow)])
def test_a_matrix_has_noise_of_rank_r_and_a_vector_is_dense(r):
    low, dense = noise_of(LowRank(r), 5, make_params()), noise_of(IIDGaussian(), 5, make_params())
    for matrices in (low["embed"], low["blocks"].layers["w"]):
        assert (np.linalg.matrix_rank(matrices, rtol=1e-5) == min(r, 4)).all()
    assert_identical((low["blocks"].layers["b"], low["gain"]), (dense["blocks"].layers["b"], dense["gain"]))
