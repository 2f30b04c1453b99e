"""What a tokenizer.json may ask of the tokenizers library, which aborts the process where it finds no memory.

A text may grow to 256 times its length on its way to tokens, and so may the text of tokens on its way back: real ones
stay below, such as 18 times where Unicode is normalised, times two where a space is put before each word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.files import shown
from shardes.zoo.snapshot.tokenizer_growth import (
    DECODERS,
    NORMALIZERS,
    POST_PROCESSORS,
    PRE_TOKENIZERS,
    growth,
    objects,
)

__all__ = ["check_tokenizer"]

_MAX_GROWTH = 256
_MAX_TOKEN = 4096
# At each character of a text, Unigram looks for pieces of up to the longest.
_MAX_PIECE = 256
_MAX_ADDED = 2**23
_MAX_WORD = 1000
# Each of them goes over the text; the pieces of a template count as well.
_MAX_STEPS = 4096


def check_tokenizer(content: str) -> None:
    """Check that the library can read and use a tokenizer.json within bounds; whether it is sound, the library checks.

    Raises:
        CheckpointError: it is not JSON, has a step that is not known, or asks for too much.
    """
    try:
        values = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"tokenizer.json is not JSON: {shown(str(error))}. Get the file again.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"tokenizer.json holds a {type(values).__name__}, and must hold an object.")
    fields = Fields(values, "tokenizer.json")
    _check_steps(values)
    try:
        normalized = _check_growth(fields)
    except RecursionError:
        raise CheckpointError(
            "tokenizer.json has steps within steps, nested too deeply to be read. Get the file again."
        ) from None
    _check_added(fields, normalized)
    if (model := fields.section("model")) is not None:
        _check_model(model)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # The library may take another of two than is checked here.
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has a name twice")
    return values


def _check_steps(values: dict[str, Any]) -> None:
    left = [values.get(name) for name in ("normalizer", "pre_tokenizer", "post_processor", "decoder")]
    count = 0
    while left:
        value = left.pop()
        if isinstance(value, dict):
            count += 1
            left += value.values()
        elif isinstance(value, list):
            left += value
    if count > _MAX_STEPS:
        raise CheckpointError(f"tokenizer.json has {count} steps, and must have at most {_MAX_STEPS}.")


def _check_growth(fields: Fields) -> float:
    """The growth of the normalizer, where that of all steps is within bounds."""
    normalized = growth(fields.section("normalizer"), NORMALIZERS)
    steps = (("pre_tokenizer", PRE_TOKENIZERS), ("post_processor", POST_PROCESSORS))
    _at_most_growth(normalized * math.prod(growth(fields.section(name), table) for name, table in steps), "encode")
    _at_most_growth(growth(fields.section("decoder"), DECODERS), "decode")
    return normalized


def _at_most_growth(times: float, what: str) -> None:
    if times > _MAX_GROWTH:
        raise CheckpointError(
            f"tokenizer.json may make a text {times:.3g} times as long to {what} it, and must make it at most "
            f"{_MAX_GROWTH} times as long."
        )


def _check_added(fields: Fields, normalized: float) -> None:
    total = 0.0
    for token in objects(fields, "added_tokens"):
        content = token.text("content")
        _at_most_long([content], token.where)
        total += len(content) * (normalized if token.boolean("normalized", True) else 1)
    if total > _MAX_ADDED:
        raise CheckpointError(
            f"tokenizer.json has added_tokens of up to {total:.3g} characters, normalised, and must have at most "
            f"{_MAX_ADDED}."
        )


def _check_model(model: Fields) -> None:
    values = model.values.get("vocab")
    if isinstance(values, dict):
        _at_most_long(values, model.where)
    elif isinstance(values, list):
        _at_most_long((entry[0] for entry in values if isinstance(entry, list) and entry), model.where, _MAX_PIECE)
    _at_most_long((model.text(name, "") for name in ("end_of_word_suffix", "unk_token")), model.where)
    model.integer("max_input_chars_per_word", 1, least=0, most=_MAX_WORD)
    prefix = model.text("continuing_subword_prefix", "")
    _at_most_long([prefix], model.where)
    if prefix:
        # The library cuts off as many bytes without a look.
        for merge in model.items("merges", ()):
            parts = merge.split(" ") if isinstance(merge, str) else merge
            if not (isinstance(parts, list) and len(parts) == 2 and str(parts[1]).startswith(prefix)):
                raise CheckpointError(
                    f"{model.where}: the merge {shown(merge)} must have a second part that begins with {shown(prefix)}."
                )


def _at_most_long(tokens: Iterable[object], where: str, most: int = _MAX_TOKEN) -> None:
    for token in tokens:
        if isinstance(token, str) and len(token) > most:
            raise CheckpointError(
                f"{where} has a token of {len(token)} characters, {shown(token[:50])}, and must have at most {most}."
            )
