"""A decoder over bytes: RMSNorm, RoPE, SwiGLU, grouped-query attention, tied embedding, layers stacked and scanned."""

from typing import Any

from shardes.zoo.architecture import Architecture
from shardes.zoo.byte_transformer.config import Config
from shardes.zoo.byte_transformer.modeling import generate, init, logits, loss, nll
from shardes.zoo.byte_transformer.params import config_json, read, tensors
from shardes.zoo.byte_transformer.sampling import sample
from shardes.zoo.model import Model, make_model
from shardes.zoo.snapshot.byte_tokens import byte_tokenizer

__all__ = ["ARCHITECTURE", "Config", "generate", "init", "logits", "loss", "model", "nll", "sample"]

ARCHITECTURE = Architecture(
    model_type="shardes_byte_transformer",
    class_name="ShardesByteTransformer",
    config=read,
    tensors=tensors,
    logits=logits,
    nll=nll,
    generate=generate,
    config_json=config_json,
)
"""The byte transformer, as the zoo loads it."""


def model(params: Any, config: Config) -> Model:
    """Params that were made here as a model of the zoo, whose tokens are bytes, to be saved or pushed."""
    return make_model(ARCHITECTURE, params, config, byte_tokenizer())
