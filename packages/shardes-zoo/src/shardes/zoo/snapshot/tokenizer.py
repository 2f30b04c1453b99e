"""Text to tokens and back, by the tokenizers library, with the special tokens and chat template of a checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.files import shown

__all__ = ["Tokenizer", "guarded", "is_broken"]

# The names by which messages hold what an assistant thought.
_REASONING = ("reasoning_content", "thinking", "reasoning")


@dataclasses.dataclass(frozen=True, eq=False)
class Tokenizer:
    """The tokenizer of a checkpoint.

    Attributes:
        backend: the `tokenizers.Tokenizer`.
        special: special tokens by role, such as "eos_token", those that the checkpoint names.
        chat_templates: sources of the chat templates by name; the usual one is "default".
        files: contents of the checkpoint's tokenizer files, by name.
    """

    backend: Any
    special: Mapping[str, str]
    chat_templates: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def bos_id(self) -> int | None:
        """Id of the token that begins a text, None without one."""
        return self._id("bos_token")

    @property
    def eos_id(self) -> int | None:
        """Id of the token that ends a text, None without one."""
        return self._id("eos_token")

    @property
    def pad_id(self) -> int | None:
        """Id of the token that pads, None without one."""
        return self._id("pad_token")

    def __len__(self) -> int:
        """How many tokens there are, the special ones included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text, with the special tokens that the checkpoint puts around one unless told otherwise.

        Raises:
            ValueError: the text holds half of a surrogate pair, as names of files and arguments may.
        """
        _check_unbroken(text)
        with guarded("encode"):
            return list(self.backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_batch(
        self, texts: Sequence[str], add_special_tokens: bool = True
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Ids of texts, padded on the left to the longest, and the mask that says which are real.

        Returns:
            ids and mask, both (len(texts), longest), int32; the mask is 1 at real tokens, 0 at padding.

        Raises:
            ValueError: `texts` is one string, or empty, or holds something else than strings, or half of a surrogate
                pair.
        """
        given = [] if isinstance(texts, str) else list(texts)
        if not given or not all(isinstance(text, str) for text in given):
            raise ValueError(
                f"texts is {shown(texts)}, and must be a list of at least one string, and of nothing else."
            )
        for text in given:
            _check_unbroken(text)
        with guarded("encode"):
            found = self.backend.encode_batch(given, add_special_tokens=add_special_tokens)
        rows = [row.ids for row in found]
        if any(max(row, default=0) >= 2**31 for row in rows):
            raise CheckpointError("tokenizer.json has ids of 2**31 or more, and they must fit int32.")
        pad = next((i for i in (self.pad_id, self.eos_id) if i is not None), 0)
        ids = np.full((len(rows), max(map(len, rows))), pad, np.int32)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, ids.shape[1] - len(row) :] = row
            mask[i, ids.shape[1] - len(row) :] = 1
        return ids, mask

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """Text of the ids of one sequence, a list or an array of shape (seq,)."""
        tokens = [operator.index(i) for i in ids]
        if not all(0 <= token < 2**31 for token in tokens):
            raise ValueError(f"ids go from {min(tokens)} to {max(tokens)}, and must be from 0 to 2**31 - 1.")
        with guarded("decode"):
            return str(self.backend.decode(tokens, skip_special_tokens=skip_special_tokens))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        template: str | None = None,
        **variables: Any,
    ) -> str:
        """Text of a conversation by the checkpoint's chat template, to be encoded with add_special_tokens=False.

        Args:
            messages: each with "role" and "content". As in transformers, what is None is left out, and reasoning is
                given under the names that templates read.
            tools: JSON schemas of functions that the model may call.
            add_generation_prompt: end with what makes the model answer.
            template: name of a template, None for the usual one, or for "tool_use" if there are tools and it exists.
            **variables: what else the template reads, such as `enable_thinking`.

        Raises:
            CheckpointError: the checkpoint has no such template, or it refuses, or takes too much.
            TypeError: what is given is not plain data, which is None, booleans, numbers and text, in lists and in
                dictionaries by text.
        """
        from shardes.zoo.snapshot.chat import render

        if template is None:
            template = "tool_use" if tools and "tool_use" in self.chat_templates else "default"
        source = self.chat_templates.get(template)
        if source is None and not self.chat_templates:
            raise CheckpointError(
                "The checkpoint has no chat template. Encode a text of your own instead, or choose an instruct model."
            )
        if source is None:
            known = shown(", ".join(self.chat_templates))
            raise CheckpointError(f"The checkpoint has no chat template {shown(template)}. Choose another: {known}.")
        given = {
            "messages": [_for_templates(message) for message in messages],
            "tools": tools,
            "documents": None,
            **self.special,
            **variables,
        }
        return render(
            source, f"The chat template {shown(template)}", given | {"add_generation_prompt": add_generation_prompt}
        )

    def _id(self, role: str) -> int | None:
        token = self.special.get(role)
        return None if token is None else self.backend.token_to_id(token)


@contextlib.contextmanager
def guarded(what: str) -> Iterator[None]:
    """What the library raises for a tokenizer.json that is not sound, as a CheckpointError; its panics too."""
    try:
        yield
    except (TypeError, CheckpointError):
        raise
    except BaseException as error:
        # A panic of the library is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(f"tokenizer.json is no tokenizer that can {what}: {shown(str(error))}.") from None


def _for_templates(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message as transformers gives it to a template."""
    if not isinstance(message, Mapping):
        return message
    given = {name: value for name, value in message.items() if value is not None}
    reasoning = next((given[name] for name in _REASONING if name in given), None)
    return given if reasoning is None else {"thinking": reasoning, **given, "reasoning_content": reasoning}


def _check_unbroken(text: str) -> None:
    if isinstance(text, str) and is_broken(text):
        raise ValueError(
            f"The text {shown(text[:50])} holds half of a surrogate pair, as bytes do that were not read as UTF-8, and "
            "must be Unicode. Read it as UTF-8."
        )


def is_broken(text: str) -> bool:
    """Whether a string is no text, since it holds half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
