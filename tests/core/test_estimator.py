"""The update estimates the gradient: without bias, and as closely as the number of directions allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import IIDGaussian, LowRank, Mirrored, SeedRegenerated
from shardes.zoo import transformer_block

from .support import slow

pytestmark = slow


def flat(tree):
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


def estimates(strategy, n, sigma, params, loss, *args, count=1):
    """Gradient estimates of several generations at the same params: minus the update at lr 1, without shaping."""
    es = shardes.ShardedES(strategy, n, sigma=sigma, lr=1.0, shaping=shardes.shaping.none)
    state = es.init(jax.random.key(3), params)
    for _ in range(count):
        pert, state = es.ask(state)
        told = es.tell(state, pert, es.apply(loss, state, pert)(*args))
        yield flat(state.params) - flat(told.params)


FOURTH_MOMENT = {"iid": 3, "seed": 3, "low_rank_1": 9, "low_rank_4": 4.5}
STRATEGIES = {
    "iid": IIDGaussian(),
    "seed": SeedRegenerated(chunk=64),
    "low_rank_1": LowRank(r=1),
    "low_rank_4": LowRank(r=4),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_unbiased_on_a_quadratic(name):
    curvature = jnp.diag(jnp.linspace(0.5, 2.0, 12)) + 0.1
    params = {"w": jax.random.normal(jax.random.key(0), (4, 3))}

    def loss(params):
        w = params["w"]
        x = (w if isinstance(w, jax.Array) else shardes.nn.dense(jnp.eye(3), w).T).reshape(-1)
        return 0.5 * x @ curvature @ x

    n = 2**16
    (estimate,) = estimates(Mirrored(STRATEGIES[name]), n, 0.1, params, loss)
    gradient = np.asarray(curvature, np.float64) @ flat(params)
    # A pair gives (g . eps) eps, exactly, on a quadratic; by Cauchy-Schwarz no entry of it varies more than this.
    error = np.linalg.norm(gradient) * np.sqrt(FOURTH_MOMENT[name] / (n / 2))
    assert np.abs(estimate - gradient).max() < 5 * error
    assert np.linalg.norm(gradient) > 50 * error


@pytest.mark.parametrize("how", [IIDGaussian(), SeedRegenerated(chunk=8)], ids=["iid", "seed"])
def test_cosine_grows_with_the_root_of_n(how):
    params = transformer_block.init(jax.random.key(0), d_model=8)
    batch = transformer_block.make_batch(jax.random.key(1), d_model=8, batch=2, seq=8)
    gradient = flat(jax.grad(transformer_block.loss)(params, batch))
    d, count = gradient.size, 24
    cosines = {}
    for directions in (8, 32, 128):
        found = [
            estimate @ gradient / np.linalg.norm(estimate) / np.linalg.norm(gradient)
            for estimate in estimates(
                Mirrored(how), 2 * directions, 1e-2, params, transformer_block.loss, batch, count=count
            )
        ]
        cosines[directions] = np.mean(found)
        expected = np.sqrt(directions / (directions + d + 1))
        # One estimate's cosine is known to about 1 / sqrt(d).
        assert abs(cosines[directions] - expected) < 5 / np.sqrt(d * count)
    assert cosines[8] < cosines[32] < cosines[128]
