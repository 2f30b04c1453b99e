"""The seams between a model and its weights, and the check that a model keeps to them."""

from shardes import StructuredWeight
from shardes.nn.check import Finding, check_model
from shardes.nn.seams import dense, embed

__all__ = ["Finding", "StructuredWeight", "check_model", "dense", "embed"]
