"""The fields of a config.json of transformers that all decoders share, checked and bounded."""

from __future__ import annotations

from typing import Any

from shardes.zoo.decoder.forward import DecoderConfig
from shardes.zoo.decoder.layers import ACTIVATIONS
from shardes.zoo.decoder.rope_config import read_rope
from shardes.zoo.fields import REQUIRED, Fields

__all__ = ["MOST_LAYERS", "MOST_SIZE", "read_config", "read_switched_windows", "read_windows"]

MOST_LAYERS = 1024
"""Layers that a config may ask for."""

MOST_SIZE = 2**20
"""The largest size that a config may ask for, the vocabulary's included."""

_MOST_HEADS = 2**12
_KINDS = ("full_attention", "sliding_attention")


def read_config(
    fields: Fields,
    *,
    head_dim: int | None = None,
    kv_heads: Any = REQUIRED,
    tied: bool = False,
    activation: str | None = None,
    biased: tuple[str, ...] = (),
    windows: tuple[int | None, ...] | None = None,
) -> DecoderConfig:
    """The config of a decoder.

    Args:
        fields: of config.json.
        head_dim: width of a head where the fields do not say; by default hidden_size / num_attention_heads.
        kv_heads: number of key and value heads where the fields do not say, None for as many as query heads.
        tied: whether embedding and head are one where the fields do not say.
        activation: of the MLP, that of the field hidden_act if None.
        biased: names of the projections that have a bias.
        windows: as from `read_windows`.

    Raises:
        CheckpointError: a field is missing, of another type, out of bounds, or does not fit another.
    """
    d_model = fields.integer("hidden_size", most=MOST_SIZE)
    n_heads = fields.integer("num_attention_heads", most=_MOST_HEADS)
    n_kv_heads = fields.integer("num_key_value_heads", kv_heads, most=_MOST_HEADS) or n_heads
    if n_heads % n_kv_heads:
        raise fields.error("num_key_value_heads", f"a divisor of num_attention_heads, {n_heads}")
    width = fields.integer("head_dim", head_dim, most=MOST_SIZE)
    if width is None:
        if d_model % n_heads:
            raise fields.error("num_attention_heads", f"a divisor of hidden_size, {d_model}, where head_dim is absent")
        width = d_model // n_heads
    if width % 2:
        given = "head_dim" if "head_dim" in fields else "num_attention_heads"
        raise fields.error(given, f"such that heads have an even width, since pairs are turned; it is {width}")
    fields.integer("max_position_embeddings", None)
    for name, causal in (("is_causal", True), ("use_bidirectional_attention", False)):
        if fields.boolean(name, causal) != causal:
            raise fields.error(name, f"{str(causal).lower()} or left out, since no token sees those after it")
    return DecoderConfig(
        vocab_size=fields.integer("vocab_size", most=MOST_SIZE),
        d_model=d_model,
        n_layers=_layers(fields),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=width,
        d_ff=fields.integer("intermediate_size", most=MOST_SIZE),
        norm_eps=fields.number("rms_norm_eps", most=1.0),
        rope=read_rope(fields, width),
        tied=fields.boolean("tie_word_embeddings", tied),
        activation=activation or fields.text("hidden_act", "silu", among=tuple(ACTIVATIONS)),
        biased=biased,
        windows=windows,
    )


def read_windows(fields: Fields, window: int | None, first: int = 0) -> tuple[int | None, ...] | None:
    """For each layer how many tokens a query sees, None for all; None where no layer has a window.

    Args:
        fields: of config.json. Its `layer_types`, if any, say which layers have the window.
        window: the window, None if there is none.
        first: the first layer that has the window where there are no `layer_types`.

    Raises:
        CheckpointError: `layer_types` do not fit.
    """
    n_layers = _layers(fields)
    kinds = fields.items("layer_types", None, length=n_layers)
    if kinds is None:
        kinds = [_KINDS[layer >= first and window is not None] for layer in range(n_layers)]
    if not all(kind in _KINDS for kind in kinds):
        raise fields.error("layer_types", f"made of {' and '.join(_KINDS)}")
    if all(kind == "full_attention" for kind in kinds):
        return None
    if window is None:
        raise fields.error("layer_types", "full_attention throughout, since this config turns no window on")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def read_switched_windows(fields: Fields) -> tuple[int | None, ...] | None:
    """`read_windows` of a config that has `use_sliding_window` and `max_window_layers`, as those of Qwen do."""
    window = fields.integer("sliding_window", None)
    first = fields.integer("max_window_layers", 28, least=0)
    if not fields.boolean("use_sliding_window", False):
        # The number stands in the config even when it is off.
        window = None
    elif window is None:
        raise fields.error("sliding_window", "a positive integer, since use_sliding_window is true")
    return read_windows(fields, window, first)


def _layers(fields: Fields) -> int:
    n_layers: int = fields.integer("num_hidden_layers", most=MOST_LAYERS)
    return n_layers
