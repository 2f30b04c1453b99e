"""A loaded model: its params, and pure functions of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from shardes.zoo.architecture import Architecture
from shardes.zoo.errors import ZooError
from shardes.zoo.leaves import check_leaves
from shardes.zoo.snapshot.tokenizer import Tokenizer

__all__ = ["Defaults", "Model", "Source", "make_model"]

_OF_THE_CONFIG: Any = type("OfTheConfig", (), {"__repr__": lambda self: "<the config's>"})()


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a model came from.

    Attributes:
        folder: the snapshot that it was read from, None for params that were made here.
        repo_id: the repository of the Hub, None for a folder and for a bundled model.
        revision: what was asked for.
        commit: what that was when it was loaded.
        base: "repo_id@commit" of the model that a saved one was loaded from, None if that is not known.
    """

    folder: Path | None = None
    repo_id: str | None = None
    revision: str | None = None
    commit: str | None = None
    base: str | None = None


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What the checkpoint says of generation: the ids that end a text, and the one that fills it up after.

    Ids outside the vocabulary, which some checkpoints name, are left out: no score is theirs.
    """

    eos_token_id: tuple[int, ...] = ()
    pad_token_id: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model of the zoo, as `shardes.zoo.load` gives it.

    Attributes:
        params: as loaded; the functions below take any of the same structure, such as a perturbed copy.
        config: sizes and settings, hashable.
        tokenizer: None where the checkpoint has none.
        architecture: how the model is run and its tensors are named.
        source: where it came from.
        fields: config.json as it was.
        generation_fields: generation_config.json as it was.
        defaults: end and pad ids for `generate`.
    """

    params: Any
    config: Any
    tokenizer: Tokenizer | None
    architecture: Architecture
    source: Source
    fields: Mapping[str, Any] = dataclasses.field(repr=False)
    generation_fields: Mapping[str, Any] = dataclasses.field(repr=False)
    defaults: Defaults

    def __repr__(self) -> str:
        count = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        return f"Model({self.architecture.model_type}, {count} parameters, {self.source})"

    def logits(self, params: Any, ids: Any, mask: Any = None) -> jax.Array:
        """Scores of the next token after each: (batch, seq, vocabulary), in the params' dtype.

        Args:
            params: the model's, or others of the same structure.
            ids: tokens of shape (batch, seq), any integer dtype.
            mask: (batch, seq), 1 at real tokens; all are real if None.

        Raises:
            ZooError: the params are not of this model's structure and shapes, or it is no model of tokens.
            ValueError, TypeError: `ids` or `mask` are not as said.
        """
        return self._function("logits", params)(params, ids, self.config, mask)  # type: ignore[no-any-return]

    def nll(self, params: Any, ids: Any, mask: Any = None) -> jax.Array:
        """Negative log-likelihood of every sequence given its first token, nats a token: (batch,), float32.

        Args:
            params: the model's, or others of the same structure.
            ids: tokens of shape (batch, seq), seq at least 2.
            mask: (batch, seq), 1 at real tokens; all are real if None.

        Raises:
            ZooError, ValueError, TypeError: as `logits`.
        """
        return self._function("nll", params)(params, ids, self.config, mask)  # type: ignore[no-any-return]

    def generate(
        self,
        params: Any,
        ids: Any,
        *,
        mask: Any = None,
        max_new_tokens: int,
        eos_token_id: Any = _OF_THE_CONFIG,
        pad_token_id: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Prompts and continuations, of shape (batch, seq + max_new_tokens), int32, as transformers gives them.

        Params whose scores are not finite, as after a diverged training, give tokens that mean nothing, and no error:
        look at `logits`.

        Args:
            params: the model's, or others of the same structure.
            ids: prompts of shape (batch, seq), padded on the left.
            mask: (batch, seq), 1 at real tokens; all are real if None.
            max_new_tokens: how many tokens to add at most.
            eos_token_id: the id or ids that end a row, in any iterable; by default the checkpoint's; None for none.
            pad_token_id: what fills a row after its end, by default the checkpoint's, or else the first end token.
            temperature: scale of the randomness; at 0 the likeliest token is taken.
            top_p: samples among the likeliest tokens that together reach this probability.
            repetition_penalty: above 1 disfavours what has occurred.
            key: a `jax.random` key, required where `temperature` is not 0.

        Raises:
            ZooError: as `logits`.
            ValueError, TypeError: another argument is not as said.
        """
        ends = self.defaults.eos_token_id or None if eos_token_id is _OF_THE_CONFIG else eos_token_id
        generated = self._function("generate", params)(
            *(params, ids, self.config),
            mask=mask,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends,
            pad_token_id=self.defaults.pad_token_id if pad_token_id is None else pad_token_id,
            temperature=temperature,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            key=key,
        )
        return generated  # type: ignore[no-any-return]

    def _function(self, name: str, params: Any) -> Any:
        function = getattr(self.architecture, name)
        if function is None:
            kind = self.architecture.model_type.removeprefix("shardes_")
            raise ZooError(f"{kind} is no model of tokens, and has no {name}. Use the functions of shardes.zoo.{kind}.")
        check_leaves(params, self.architecture.tensors(self.config))
        return function


def make_model(architecture: Architecture, params: Any, config: Any, tokenizer: Tokenizer | None = None) -> Model:
    """A model of params that were made here, to be saved or pushed.

    Raises:
        ZooError: the architecture cannot write a config.json of its own.
    """
    if architecture.config_json is None:
        raise ZooError(f"A config of {architecture.model_type} cannot be written from here. Load a model, change that.")
    fields = {"architectures": [architecture.class_name], "model_type": architecture.model_type}
    fields |= architecture.config_json(config)
    return Model(params, config, tokenizer, architecture, Source(), fields, {}, Defaults())
