"""Models that evolution strategies can train: written on the seams, their layers stacked and scanned."""

from shardes.zoo import byte_transformer, transformer_block

__all__ = ["byte_transformer", "transformer_block"]
