"""The model that comes with the package: what its entry and its card say, on this project's own text."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardes import zoo

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return zoo.load("byte-transformer")


def test_it_is_what_its_entry_says(model):
    entry = zoo.info("byte-transformer")
    assert sum(leaf.size for leaf in jax.tree.leaves(model.params)) == entry.parameters
    assert model.architecture.model_type == entry.architecture
    assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {jnp.dtype(jnp.bfloat16)}


def test_its_tokens_are_bytes(model):
    text = "def f(x): return x  # é \N{SNOWMAN}\n"
    assert list(model.tokenizer.encode(text)) == list(text.encode())
    assert model.tokenizer.decode(list(text.encode())) == text


def test_held_out_bits_are_those_of_the_recipe(model):
    found = json.loads((ROOT / "validation/results/byte_transformer.json").read_text())
    text = np.frombuffer((ROOT / "zoo/byte-transformer/text.txt").read_bytes(), np.uint8)
    held_out, seq = text[-len(text) // 20 :], found["seq"]
    windows = np.stack([held_out[start : start + seq + 1] for start in range(0, len(held_out) - seq, seq)])
    bits = float(model.nll(model.params, jnp.asarray(windows)).mean()) / math.log(2)
    assert abs(bits - found["held_out"]) < 2e-3


def test_it_writes_what_it_has_read(model):
    ids, mask = model.tokenizer.encode_batch(["The for statement is used to iter"])
    tokens = model.generate(model.params, ids, mask=mask, max_new_tokens=3)
    assert model.tokenizer.decode(tokens[0]).endswith("iterate")
