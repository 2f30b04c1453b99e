"""The rotary embedding that a config.json of transformers asks for, in its shape of version 4 or 5."""

from __future__ import annotations

import math
from typing import Any

from shardes.zoo.decoder import rope
from shardes.zoo.decoder.rope import Rope
from shardes.zoo.fields import REQUIRED, Fields

__all__ = ["read_rope"]

_KINDS = ("default", "linear", "llama3", "yarn")
_KEYS = {
    "rope_theta", "rope_type", "type", "factor", "original_max_position_embeddings", "low_freq_factor",
    "high_freq_factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
    "partial_rotary_factor",
}  # fmt: skip
_MOST_THETA = 1e12
_MOST_FACTOR = 2.0**20


def read_rope(fields: Fields, head_dim: int) -> Rope:
    """The rotary embedding of heads of a width.

    Reads `rope_parameters` (version 5), or `rope_theta` and `rope_scaling` (version 4); theta is 10000 if absent.

    Raises:
        CheckpointError: a value is not as required, or the kind is none of default, linear, llama3 and yarn.
    """
    scaling, parameters = fields.section("rope_scaling"), fields.section("rope_parameters")
    if scaling is not None and parameters is not None and scaling.values != parameters.values:
        raise fields.error("rope_scaling", "left out, or equal to rope_parameters, where both are given")
    section = parameters or scaling or Fields({}, f"{fields.where}: rope_parameters")
    kind = section.text("rope_type", section.text("type", "default", among=_KINDS), among=_KINDS)
    if "type" in section:
        section.text("type", among=(kind,))
    for name in section.values:
        if name not in _KEYS:
            raise section.error(name, f"left out: the embeddings known here are {', '.join(_KINDS)}")
    for part in (fields, section):
        if part.number("partial_rotary_factor", 1.0) != 1.0:
            raise part.error("partial_rotary_factor", "1: whole heads are turned")
    theta = section.number(
        "rope_theta", fields.number("rope_theta", 10_000.0, above=1.0, most=_MOST_THETA), above=1.0, most=_MOST_THETA
    )
    if kind == "default":
        return rope.default(head_dim, theta)
    if kind == "linear":
        return rope.linear(head_dim, theta, _factor(section))
    if kind == "llama3":
        return _llama3(section, head_dim, theta, _original(fields, section, REQUIRED))
    longest = fields.integer("max_position_embeddings", None)
    return _yarn(section, head_dim, theta, _original(fields, section, longest), longest)


def _factor(section: Fields, default: Any = REQUIRED) -> Any:
    # Frequencies are divided by it, and must stay finite in float32.
    return section.number("factor", default, above=1 / _MOST_FACTOR, most=_MOST_FACTOR)


def _original(fields: Fields, section: Fields, default: Any) -> Any:
    """How many positions the model was first trained with, which may stand beside the section too."""
    name = "original_max_position_embeddings"
    outside = fields.integer(name, None)
    original = section.integer(name, default if outside is None else outside)
    if outside not in (None, original):
        raise fields.error(name, f"left out, or {original} as in {section.where}")
    return original


def _llama3(section: Fields, head_dim: int, theta: float, original: int) -> Rope:
    low = section.number("low_freq_factor", most=_MOST_FACTOR)
    high = section.number("high_freq_factor", most=_MOST_FACTOR)
    if high <= low:
        raise section.error("high_freq_factor", f"above low_freq_factor, {low:g}")
    factor = _factor(section)
    return rope.llama3(head_dim, theta, factor, low, high, original)


def _yarn(section: Fields, head_dim: int, theta: float, original: int | None, longest: int | None) -> Rope:
    if original is None:
        raise section.error("original_max_position_embeddings", "given, or max_position_embeddings outside")
    # Without a factor, the context that the model has over the one that it was trained with.
    factor = _factor(section, None if longest is None else longest / original)
    if factor is None:
        raise section.error("factor", "a number above 0")
    scale = section.number("attention_factor", None, most=_MOST_FACTOR)
    numerator = section.number("mscale", None, most=_MOST_FACTOR)
    denominator = section.number("mscale_all_dim", None, most=_MOST_FACTOR)
    if scale is None and numerator and denominator and factor > 1:
        scale = (0.1 * numerator * math.log(factor) + 1) / (0.1 * denominator * math.log(factor) + 1)
    return rope.yarn(
        head_dim,
        theta,
        factor,
        original,
        scale=scale,
        fast=section.number("beta_fast", 32.0, most=_MOST_FACTOR),
        slow=section.number("beta_slow", 1.0, most=_MOST_FACTOR),
        truncate=section.boolean("truncate", True),
    )
