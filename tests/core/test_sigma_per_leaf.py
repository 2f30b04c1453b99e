"""Sigma may be a params-shaped tree: one scale a leaf, in the perturbation and in the update alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import LowRank, Mirrored, Stacked, shaping

from .support import make_es, noise_of, seen_params, slow

N, LR = 6, 0.5
PARAMS = {"w": jnp.ones((3, 4)), "b": jnp.zeros(4), "layers": Stacked({"w": jnp.ones((2, 3, 4))}), "n": jnp.int32(2)}
SIGMA = {"w": 0.1, "b": np.float32(0.3), "layers": Stacked({"w": 0.2}), "n": 1}
FITNESS = np.random.default_rng(0).normal(size=N).astype(np.float32)


@pytest.mark.parametrize("how", [pytest.param("A", marks=slow), "B"])
def test_every_leaf_has_its_own(how):
    es = make_es("low_rank_1", N, sigma=SIGMA, lr=LR, how=how, shaping=shaping.none)
    pert, state = es.ask(es.init(jax.random.key(0), PARAMS))
    seen, after = es.apply(seen_params, state, pert)(), es.tell(state, pert, FITNESS).params
    noise = noise_of(Mirrored(LowRank(1)), N, PARAMS)
    for get in (lambda tree: tree["w"], lambda tree: tree["b"], lambda tree: tree["layers"].layers["w"]):
        before, eps, sigma = np.asarray(get(PARAMS)), get(noise), get(SIGMA)
        np.testing.assert_allclose(get(seen), before[None] + sigma * eps, rtol=0, atol=1e-6)
        step = -LR / (N * sigma) * np.tensordot(FITNESS, eps, axes=1)
        np.testing.assert_allclose(get(after), before + step, rtol=0, atol=1e-5)


def test_equal_scales_are_one_scale():
    updates = []
    for sigma in (0.1, jax.tree.map(lambda _: 0.1, PARAMS)):
        es = make_es("iid", N, sigma=sigma)
        pert, state = es.ask(es.init(jax.random.key(0), PARAMS))
        updates.append(jax.tree.leaves(es.tell(state, pert, FITNESS).params))
    for a, b in zip(*updates, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
