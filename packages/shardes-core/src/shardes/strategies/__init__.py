"""Perturbation schemes: what one direction of noise is, and nothing about batches, signs, devices or chunks."""

from shardes.strategies.base import Strategy
from shardes.strategies.full_rank import IIDGaussian, SeedRegenerated
from shardes.strategies.low_rank import LowRank
from shardes.strategies.mirrored import Mirrored

__all__ = ["IIDGaussian", "LowRank", "Mirrored", "SeedRegenerated", "Strategy"]
