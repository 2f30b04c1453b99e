"""The tensors that checkpoints of transformers hold for a decoder, and the leaves of the params that they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardes.zoo.architecture import Tensor
from shardes.zoo.decoder.forward import DecoderConfig

__all__ = ["COPIES", "LEFTOVERS", "decoder_tensors"]

LEFTOVERS = (r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",)
"""Tensors that real checkpoints hold and no model needs: rotary tables."""

COPIES = (("lm_head.weight", "model.embed_tokens.weight"),)
"""A head that some checkpoints hold beside a tied embedding, and what it must equal."""


def decoder_tensors(
    config: DecoderConfig, attention: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
) -> tuple[Tensor, ...]:
    """Embedding, blocks, last norm, and the head unless it is tied.

    Args:
        config: the sizes, and which projections have a bias.
        attention: further leaves of a block's attention, with what checkpoints call them and their shapes.
    """
    d, f = config.d_model, config.d_ff
    queries, keys = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    vocabulary = (config.vocab_size, d)

    def projection(part: str, module: str, leaf: str, shape: tuple[int, int]) -> Iterator[Tensor]:
        yield stacked(part, leaf, f"{module}.{leaf}_proj.weight", shape)
        if leaf in config.biased:
            yield stacked(part, f"{leaf}_bias", f"{module}.{leaf}_proj.bias", shape[:1])

    def stacked(part: str, leaf: str, name: str, shape: tuple[int, ...]) -> Tensor:
        return Tensor(("blocks", part, leaf), f"model.layers.{{}}.{name}", shape, config.n_layers)

    return (
        Tensor(("embed",), "model.embed_tokens.weight", vocabulary),
        stacked("attention", "norm", "input_layernorm.weight", (d,)),
        *projection("attention", "self_attn", "q", (queries, d)),
        *projection("attention", "self_attn", "k", (keys, d)),
        *projection("attention", "self_attn", "v", (keys, d)),
        *projection("attention", "self_attn", "o", (d, queries)),
        *(
            stacked("attention", leaf, f"self_attn.{name}.weight", shape)
            for leaf, (name, shape) in (attention or {}).items()
        ),
        stacked("mlp", "norm", "post_attention_layernorm.weight", (d,)),
        *projection("mlp", "mlp", "gate", (f, d)),
        *projection("mlp", "mlp", "up", (f, d)),
        *projection("mlp", "mlp", "down", (d, f)),
        Tensor(("norm",), "model.norm.weight", (d,)),
        *(() if config.tied else (Tensor(("head",), "lm_head.weight", vocabulary),)),
    )
