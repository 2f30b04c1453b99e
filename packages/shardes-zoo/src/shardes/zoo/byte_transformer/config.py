"""The sizes of a byte transformer."""

from __future__ import annotations

import dataclasses

from shardes.zoo.decoder import rope
from shardes.zoo.decoder.forward import DecoderConfig

__all__ = ["BYTES", "Config"]

BYTES = 256


@dataclasses.dataclass(frozen=True)
class Config:
    """The sizes of a byte transformer. Hashable, so that it can be a static argument of `jax.jit`.

    Attributes:
        d_model: width of the residual stream.
        n_layers: number of blocks.
        n_heads: number of query heads, each of width `d_model / n_heads`.
        n_kv_heads: number of key and value heads; each serves `n_heads / n_kv_heads` query heads.
        d_ff: width of the gated MLP.
        context: how many bytes the model sees when it samples; train it on sequences of about this length.
        rope_theta: base of the rotary wavelengths.
        norm_eps: added to the mean square in RMSNorm.

    Raises:
        ValueError: a size is not positive, or the sizes do not fit each other.
    """

    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int = 2
    d_ff: int = 128
    context: int = 64
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            integer = isinstance(field.default, int)
            if not isinstance(value, int if integer else int | float) or not value > 0:
                kind = "integer" if integer else "number"
                raise ValueError(f"{field.name} is {value!r}, and must be a positive {kind}, such as {field.default}.")
        if self.d_model % self.n_heads:
            raise ValueError(
                f"d_model is {self.d_model} and n_heads is {self.n_heads}, and every head must have the same width. "
                "Choose a d_model that n_heads divides."
            )
        if self.head_dim % 2:
            raise ValueError(
                f"d_model / n_heads is {self.head_dim}, and must be even, since rotary embedding turns pairs. "
                f"Choose a d_model that {2 * self.n_heads} divides."
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads is {self.n_heads} and n_kv_heads is {self.n_kv_heads}, and every key and value head must "
                "serve as many query heads. Choose an n_kv_heads that divides n_heads."
            )

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads

    @property
    def decoder(self) -> DecoderConfig:
        """The same, as the functions of all decoders take it."""
        return DecoderConfig(
            vocab_size=BYTES,
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            d_ff=self.d_ff,
            norm_eps=self.norm_eps,
            rope=rope.default(self.head_dim, self.rope_theta),
            tied=True,
        )
