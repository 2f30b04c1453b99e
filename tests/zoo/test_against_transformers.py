"""Every decoder against what transformers computed from the same checkpoint."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes.zoo import gemma, llama, mistral, qwen2, qwen3
from shardes.zoo.decoder import forward as decoder

from .support import CHECKPOINTS, every_checkpoint, load, one_of_each

MODULES = {"gemma": gemma, "llama": llama, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3}
# The largest difference between two kernels of transformers itself is 2e-5; a wrong eps moves logits by 2e-3.
TOLERANCE = 1e-4


@every_checkpoint
class TestScores:
    def test_logits(self, name):
        architecture, config, params, golden, _ = load(name)
        got = architecture.logits(params, golden["input_ids"], config)
        assert got.dtype == jnp.float32
        np.testing.assert_allclose(got, golden["logits"], rtol=0, atol=TOLERANCE)

    def test_hidden_states(self, name):
        architecture, config, params, golden, _ = load(name)
        own = MODULES[architecture.model_type].modeling.DECODER
        got = decoder.hidden_states(params, jnp.asarray(golden["input_ids"]), config, own)
        np.testing.assert_allclose(got, golden["hidden_states"], rtol=0, atol=TOLERANCE)

    def test_nll(self, name):
        architecture, config, params, golden, _ = load(name)
        got = architecture.nll(params, golden["input_ids"], config)
        np.testing.assert_allclose(got, -golden["next_logprobs"].mean(axis=1), rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(got.mean(), golden["loss"], rtol=0, atol=TOLERANCE)

    def test_log_probabilities(self, name):
        architecture, config, params, golden, _ = load(name)
        log_p = jax.nn.log_softmax(architecture.logits(params, golden["input_ids"], config))[:, :-1]
        got = jnp.take_along_axis(log_p, jnp.asarray(golden["input_ids"])[:, 1:, None], axis=-1)[..., 0]
        np.testing.assert_allclose(got, golden["next_logprobs"], rtol=0, atol=TOLERANCE)

    def test_left_padding(self, name):
        architecture, config, params, golden, _ = load(name)
        ids, mask = golden["pad_input_ids"], golden["pad_attention_mask"]
        real = mask.astype(bool)
        got = np.asarray(architecture.logits(params, ids, config, mask))
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got[real], golden["pad_logits"][real], rtol=0, atol=TOLERANCE)
        counted = real[:, 1:] & real[:, :-1]
        log_p = np.asarray(jax.nn.log_softmax(golden["pad_logits"]))[:, :-1]
        picked = np.where(counted, np.take_along_axis(log_p, ids[:, 1:, None], axis=-1)[..., 0], 0)
        want = -picked.sum(axis=1) / counted.sum(axis=1)
        np.testing.assert_allclose(architecture.nll(params, ids, config, mask), want, rtol=0, atol=TOLERANCE)


@every_checkpoint
class TestGreedy:
    def test_token_for_token(self, name):
        architecture, config, params, golden, _ = load(name)
        got = architecture.generate(params, golden["input_ids"], config, max_new_tokens=32)
        assert got.dtype == jnp.int32
        np.testing.assert_array_equal(got, golden["gen_ids"])

    def test_equals_scoring_again(self, name):
        architecture, config, params, golden, _ = load(name)
        n = golden["input_ids"].shape[1]
        ids = architecture.generate(params, golden["input_ids"], config, max_new_tokens=32)
        scored = architecture.logits(params, ids, config)
        np.testing.assert_array_equal(jnp.argmax(scored[:, n - 1 : -1], axis=-1), ids[:, n:])

    def test_left_padding(self, name):
        architecture, config, params, golden, _ = load(name)
        mask = golden["pad_attention_mask"]
        got = architecture.generate(params, golden["pad_input_ids"], config, mask=mask, max_new_tokens=32)
        np.testing.assert_array_equal(got, golden["pad_gen_ids"])

    def test_end_token(self, name):
        architecture, config, params, golden, _ = load(name)
        end, pad, want = int(golden["eos_gen_eos_id"]), int(golden["eos_gen_pad_id"]), golden["eos_gen_ids"]
        assert (want[:, 24:] == end).any()
        arguments = {"max_new_tokens": 32, "eos_token_id": end, "pad_token_id": pad}
        got = np.asarray(architecture.generate(params, golden["input_ids"], config, **arguments))
        np.testing.assert_array_equal(got[:, : want.shape[1]], want)
        assert (got[:, want.shape[1] :] == pad).all()

    def test_repetition_penalty(self, name):
        architecture, config, params, golden, _ = load(name)
        penalty = float(golden["rep_gen_penalty"])
        arguments = {"max_new_tokens": 32, "repetition_penalty": penalty}
        got = architecture.generate(params, golden["input_ids"], config, **arguments)
        np.testing.assert_array_equal(got, golden["rep_gen_ids"])


@every_checkpoint
def test_every_tensor_has_a_leaf(name):
    architecture, config, _, _, tensors = load(name)
    described = {name: tensor.shape for tensor in architecture.tensors(config) for name in tensor.names}
    assert described == {name: value.shape for name, value in tensors.items()}
    leaves = [tensor.leaf for tensor in architecture.tensors(config)]
    assert len(set(leaves)) == len(leaves)


@one_of_each
def test_bfloat16(name):
    architecture, config, params, golden, _ = load(name)
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    got = architecture.logits(params, golden["input_ids"], config)
    assert got.dtype == jnp.bfloat16
    error = np.abs(np.asarray(got, np.float32) - golden["logits"])
    assert error.mean() < 0.02 * np.abs(golden["logits"]).mean()
    assert error.max() < 0.1 * np.abs(golden["logits"]).max()
    nll = architecture.nll(params, golden["input_ids"], config)
    assert nll.dtype == jnp.float32
    np.testing.assert_allclose(nll, -golden["next_logprobs"].mean(axis=1), rtol=0.02)
    tokens = architecture.generate(params, golden["input_ids"], config, max_new_tokens=8)
    scored = np.asarray(architecture.logits(params, tokens, config), np.float32)[:, 23:-1]
    chosen = np.take_along_axis(scored, np.asarray(tokens)[:, 24:, None], axis=-1)[..., 0]
    assert (scored.max(axis=-1) - chosen).max() < 0.05 * np.abs(scored).max()


def test_shapes_of_version_4_and_5_say_the_same():
    assert load("qwen2-tiny-tied").config == load("qwen2-tiny-tied-v5config").config


def test_the_checkpoints_are_of_every_architecture():
    kinds = {json.loads(path.read_text())["model_type"] for path in CHECKPOINTS.glob("*/config.json")}
    assert kinds == set(MODULES)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_functions_are_those_of_the_architecture(module):
    assert (module.logits, module.nll, module.generate) == (
        module.ARCHITECTURE.logits,
        module.ARCHITECTURE.nll,
        module.ARCHITECTURE.generate,
    )
