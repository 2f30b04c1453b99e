"""Tiny checkpoints with what transformers makes of them, and tiny models of any architecture with random params."""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from shardes import Stacked
from shardes.zoo import architectures
from shardes.zoo.architecture import Architecture
from shardes.zoo.decoder import rope
from shardes.zoo.decoder.forward import DecoderConfig
from shardes.zoo.fields import Fields

CHECKPOINTS = Path(__file__).parent / "checkpoints"
NAMES = sorted(path.parent.name for path in CHECKPOINTS.glob("*/golden.npz"))
# One of each architecture: what does not depend on the variants is tested on these alone.
ONE_OF_EACH = ("gemma-tiny", "llama-tiny-biased", "mistral-tiny", "qwen2-tiny-sliding", "qwen3-tiny")
every_checkpoint = pytest.mark.parametrize("name", NAMES)
one_of_each = pytest.mark.parametrize("name", ONE_OF_EACH)


class Checkpoint(NamedTuple):
    architecture: Architecture
    config: Any
    params: Any
    golden: dict[str, np.ndarray]
    tensors: dict[str, np.ndarray]


@functools.cache
def load(name):
    folder = CHECKPOINTS / name
    architecture, config = read_config(fields_of(name))
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    params = tree(architecture.tensors(config), lambda tensor: [tensors[name] for name in tensor.names])
    with np.load(folder / "golden.npz") as golden:
        return Checkpoint(architecture, config, params, dict(golden), tensors)


def fields_of(name):
    return json.loads((CHECKPOINTS / name / "config.json").read_text())


def read_config(values):
    fields = Fields(values, "config.json")
    architecture = architectures.architecture_of(fields)
    return architecture, architecture.config(fields)


def tree(tensors, values_of):
    """Float32 params of the values of each tensor's layers."""
    params = {}
    for tensor in tensors:
        values = np.stack([np.asarray(value, np.float32) for value in values_of(tensor)])
        branch = params
        for key in tensor.leaf[:-1]:
            branch = branch.setdefault(key, {})
        branch[tensor.leaf[-1]] = jnp.asarray(values[0] if tensor.layers is None else values)
    return params | {"blocks": Stacked(params["blocks"])}


def random_params(architecture, config, seed=0):
    """Params without symmetries, large enough that some tokens stand out."""
    rng = np.random.default_rng(seed)

    def values_of(tensor):
        scale = 1.0 if len(tensor.shape) == 1 else 2.5 / np.sqrt(tensor.shape[-1])
        return [scale * rng.normal(size=tensor.shape) for _ in tensor.names]

    return tree(architecture.tensors(config), values_of)


def tiny_config(**changes):
    """Sizes of a decoder of twelve tokens."""
    sizes = {"vocab_size": 12, "d_model": 8, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "d_ff": 10}
    rest = {"norm_eps": 1e-6, "rope": rope.default(6, 100.0), "tied": True}
    return DecoderConfig(**(sizes | rest | changes))
