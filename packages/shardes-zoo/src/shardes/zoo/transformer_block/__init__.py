"""One pre-norm transformer block of six square matrices, trained to imitate a fixed one: small, and worth measuring."""

from typing import Any

from shardes.zoo.architecture import Architecture
from shardes.zoo.model import Model, make_model
from shardes.zoo.transformer_block.modeling import forward, init, loss, make_batch
from shardes.zoo.transformer_block.params import Config, config_json, read, tensors

__all__ = ["ARCHITECTURE", "Config", "forward", "init", "loss", "make_batch", "model"]

ARCHITECTURE = Architecture(
    model_type="shardes_transformer_block",
    class_name="ShardesTransformerBlock",
    config=read,
    tensors=tensors,
    config_json=config_json,
)
"""The block, as the zoo loads it: no model of tokens."""


def model(params: Any, config: Config) -> Model:
    """Params that were made here as a model of the zoo, to be saved or pushed."""
    return make_model(ARCHITECTURE, params, config)
