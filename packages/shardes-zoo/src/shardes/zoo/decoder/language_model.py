"""The functions that every decoder of the zoo offers, made from what is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax

from shardes.zoo.architecture import Architecture, Tensor
from shardes.zoo.decoder import forward, generation
from shardes.zoo.decoder.arguments import check_ids, check_mask
from shardes.zoo.decoder.forward import Decoder, DecoderConfig, Params
from shardes.zoo.decoder.tensors import COPIES, LEFTOVERS
from shardes.zoo.fields import Fields

__all__ = ["LanguageModel", "decoder_architecture", "language_model"]


class _Score(Protocol):
    def __call__(self, params: Params, ids: Any, config: DecoderConfig, mask: Any = None) -> jax.Array: ...


class _Generate(Protocol):
    def __call__(
        self,
        params: Params,
        ids: Any,
        config: DecoderConfig,
        *,
        mask: Any = None,
        max_new_tokens: int,
        eos_token_id: Any = None,
        pad_token_id: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        key: jax.Array | None = None,
    ) -> jax.Array: ...


class LanguageModel(NamedTuple):
    """Pure functions of `(params, ids, config, ...)`; the config is static, and each is compiled once a shape."""

    logits: _Score
    nll: _Score
    generate: _Generate


def language_model(decoder: Decoder) -> LanguageModel:
    """The functions of an architecture."""

    def logits(params: Params, ids: Any, config: DecoderConfig, mask: Any = None) -> jax.Array:
        """Scores of the next token after each.

        Args:
            params: the model's, in float32 or bfloat16; matrices may be structured weights.
            ids: tokens of shape (batch, seq), any integer dtype.
            config: the model's config.
            mask: (batch, seq), 1 at real tokens, 0 at padding on either side; all are real if None.

        Returns:
            Logits of shape (batch, seq, vocab_size), in the params' dtype; those at padding mean nothing, and are
            finite.

        Raises:
            ValueError, TypeError: `ids` or `mask` are not as said.
        """
        ids = check_ids(ids, config.vocab_size)
        scores: jax.Array = forward.logits(params, ids, config, decoder, check_mask(mask, ids))
        return scores

    def nll(params: Params, ids: Any, config: DecoderConfig, mask: Any = None) -> jax.Array:
        """Negative log-likelihood of every sequence given its first token, in nats a token.

        Args:
            params: as for `logits`.
            ids: tokens of shape (batch, seq), seq at least 2.
            config: the model's config.
            mask: as for `logits`. A token counts if it is real and so is the one before it.

        Returns:
            Means over the predicted real tokens, of shape (batch,), float32; 0 for a sequence that has none.

        Raises:
            ValueError, TypeError: `ids` or `mask` are not as said.
        """
        ids = check_ids(ids, config.vocab_size, least=2)
        lost: jax.Array = forward.nll(params, ids, config, decoder, check_mask(mask, ids))
        return lost

    def generate(
        params: Params,
        ids: Any,
        config: DecoderConfig,
        *,
        mask: Any = None,
        max_new_tokens: int,
        eos_token_id: Any = None,
        pad_token_id: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Continue prompts, token by token; the arguments are those of `shardes.zoo.decoder.generation.generate`."""
        return generation.generate(
            params,
            ids,
            config,
            decoder,
            mask=mask,
            max_new_tokens=max_new_tokens,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            temperature=temperature,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            key=key,
        )

    return LanguageModel(logits, nll, generate)


def decoder_architecture(
    model_type: str,
    class_name: str,
    config: Callable[[Fields], DecoderConfig],
    tensors: Callable[[DecoderConfig], tuple[Tensor, ...]],
    functions: LanguageModel,
) -> Architecture:
    """An architecture of transformers that is a decoder, with what their checkpoints may hold beside its tensors."""
    return Architecture(model_type, class_name, config, tensors, LEFTOVERS, COPIES, **functions._asdict())
