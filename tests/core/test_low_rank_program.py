"""The traced program of a low-rank generation holds no member's matrix, and no member's embedding table."""

import jax
import jax.numpy as jnp
import pytest

from shardes import LowRank, Mirrored, SeedRegenerated, ShardedES, Stacked
from shardes.nn import dense, embed

from .programs import arrays_in
from .support import PLACEMENTS, mesh_of

# Sizes that no product of the other axes of the program can give by chance.
VOCAB, WIDTH, HIDDEN, LAYERS, N = 41, 13, 29, 3, 22


def make_params():
    return {
        "embed": jnp.ones((VOCAB, WIDTH)),
        "blocks": Stacked({"up": jnp.ones((LAYERS, HIDDEN, WIDTH)), "down": jnp.ones((LAYERS, WIDTH, HIDDEN))}),
    }


MATRICES = {(VOCAB, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN)}


def loss(params, ids):
    def block(x, layer):
        return x + dense(jnp.tanh(dense(x, layer["up"])), layer["down"]), None

    x, _ = jax.lax.scan(block, embed(params["embed"], ids), params["blocks"].layers)
    return jnp.mean(jax.nn.logsumexp(dense(x, params["embed"]), axis=-1))


def batched_matrices(strategy, how, chunk):
    """Shapes in the traced program that are a matrix of the model with more axes in front than its layers."""
    es = ShardedES(Mirrored(strategy), N, sigma=0.1, lr=0.1, mesh=mesh_of(2), how=how, member_chunk=chunk)
    state = es.init(jax.random.key(0), make_params())
    traced = es.step(loss).trace(state, jnp.zeros(5, jnp.int32)).jaxpr
    shapes = {tuple(array.shape) for array in arrays_in(traced) if hasattr(array, "shape")}
    assert (LAYERS, HIDDEN, WIDTH) in shapes  # the walk sees what there is
    transposed = MATRICES | {(b, a) for a, b in MATRICES}
    return {s for s in shapes if s[-2:] in transposed and s[:-2] not in ((), (1,), (LAYERS,), (1, LAYERS))}


@pytest.mark.parametrize("how", PLACEMENTS)
@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("rank", [1, 3])
def test_no_matrix_of_a_member(rank, chunk, how):
    assert batched_matrices(LowRank(rank), how, chunk) == set()


def test_full_rank_noise_is_found_by_the_same_walk():
    found = batched_matrices(SeedRegenerated(chunk=3), "B", None)
    assert any(shape[-2:] == (VOCAB, WIDTH) for shape in found)
    assert any(shape[-2:] == (HIDDEN, WIDTH) for shape in found)
