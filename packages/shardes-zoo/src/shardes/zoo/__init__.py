"""Models that evolution strategies can train: written on the seams, their layers stacked and scanned."""

from shardes.zoo import byte_transformer, transformer_block
from shardes.zoo.errors import CheckpointError, HubError, ZooError
from shardes.zoo.hub.pushing import push
from shardes.zoo.loading import load
from shardes.zoo.model import Model
from shardes.zoo.registry import info, names
from shardes.zoo.saving import save

__all__ = [
    "CheckpointError",
    "HubError",
    "Model",
    "ZooError",
    "byte_transformer",
    "info",
    "load",
    "names",
    "push",
    "save",
    "transformer_block",
]
