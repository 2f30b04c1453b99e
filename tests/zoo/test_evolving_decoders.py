"""Evolution strategies on every decoder: its seams, a generation on one device and on eight, members that generate."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes import LowRank, Mirrored, SeedRegenerated, ShardedES
from shardes.nn import check_model
from shardes.strategies.low_rank import LowRankWeight

from .support import NAMES, every_checkpoint, load

STRATEGIES = {"low_rank": LowRank(r=1), "seed": SeedRegenerated()}


FAST = ("llama-tiny-biased",)
KEY = jax.random.key(3)


def make_es(strategy, devices, n=8):
    mesh = shardes.make_mesh(jax.devices()[:devices])
    return ShardedES(Mirrored(STRATEGIES[strategy]), n, sigma=0.02, lr=0.05, mesh=mesh)


@every_checkpoint
def test_check_model_finds_nothing(name):
    architecture, config, params, golden, _ = load(name)
    ids = jnp.asarray(golden["input_ids"])[:, :6]
    for function in (architecture.logits, architecture.nll):
        assert check_model(lambda params, ids, f=function: f(params, ids, config), params, ids) == []
    assert (
        check_model(lambda params, ids: architecture.generate(params, ids, config, max_new_tokens=2), params, ids) == []
    )


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_generation_on_one_device_and_on_eight(name, strategy):
    architecture, config, params, golden, _ = load(name)
    ids = jnp.asarray(golden["pad_input_ids"])[:, :12]
    mask = jnp.asarray(golden["pad_attention_mask"])[:, :12]

    def loss(params, ids, mask):
        return jnp.mean(architecture.nll(params, ids, config, mask))

    runs = []
    for devices in (1, 8):
        es = make_es(strategy, devices)
        state, fitness = es.step(loss)(es.init(jax.random.key(0), params), ids, mask)
        runs.append((np.asarray(fitness), jax.tree.map(np.asarray, state.params)))
    (fitness, after), (other_fitness, other_after) = runs
    assert fitness.dtype == np.float32
    assert len(set(fitness.tolist())) == 8
    np.testing.assert_allclose(fitness, other_fitness, rtol=1e-5)
    moved = jax.tree.map(lambda a, b: np.abs(a - np.asarray(b)).max(), after, params)
    assert min(jax.tree.leaves(moved)) > 1e-4
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=0, atol=2e-6), after, other_after)


def is_structured(x):
    return isinstance(x, LowRankWeight)


def materialise(params):
    def formed(x):
        return x.base + jnp.swapaxes(x.left, -1, -2) @ x.right if is_structured(x) else x

    return jax.tree.map(formed, params, is_leaf=is_structured)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("qwen2-tiny-sliding", {}, marks=pytest.mark.slow),
        pytest.param("qwen3-tiny", {"temperature": 0.7, "top_p": 0.9, "key": KEY}, marks=pytest.mark.slow),
        ("llama-tiny-biased", {"repetition_penalty": 1.3}),
    ],
)
@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_members_generate_as_their_formed_params_do(name, arguments, devices):
    architecture, config, params, golden, _ = load(name)
    ids, mask = golden["pad_input_ids"][:, -8:], golden["pad_attention_mask"][:, -8:]
    # Every row of every member ends at a step of its own.
    ends = np.unique(golden["gen_ids"][:, 26:]).tolist()[::5]

    def generate(params):
        return architecture.generate(
            params, ids, config, mask=mask, max_new_tokens=12, eos_token_id=ends, pad_token_id=0, **arguments
        )

    es = make_es("low_rank", devices)
    pert, state = es.ask(es.init(jax.random.key(0), params))
    got = np.asarray(es.apply(generate, state, pert)())
    members = es.apply(materialise, state, pert)()
    want = np.stack([generate(jax.tree.map(lambda x, i=i: np.asarray(x)[i], members)) for i in range(8)])
    np.testing.assert_array_equal(got, want)
    assert len({member.tobytes() for member in want}) > 1
