"""What a tokenizer.json may ask of the tokenizers library, which aborts the process where it finds no memory.

A text may grow to 256 times its length on its way to tokens, and so may the text of tokens on its way back: real ones
stay below, such as 18 times where Unicode is normalised, times two where a space is put before each word. The growth of
a step is its largest for any text, counted in characters, and those of steps in sequence multiply.
"""

from __future__ import annotations

import binascii
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.files import shown
from shardes.zoo.snapshot.patterns import check_pattern

__all__ = ["check_tokenizer"]

_MAX_GROWTH = 256
_MAX_TOKEN = 4096
# At each character of a text, Unigram looks for pieces of up to the longest.
_MAX_PIECE = 256
_MAX_ADDED = 2**23
_MAX_WORD = 1000
_MAX_SPECIAL = 1024


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
    normalized = _growth(fields.section("normalizer"), _NORMALIZERS)
    steps = (("pre_tokenizer", _PRE_TOKENIZERS), ("post_processor", _POST_PROCESSORS))
    _at_most_growth(normalized * math.prod(_growth(fields.section(name), table) for name, table in steps), "encode")
    _at_most_growth(_growth(fields.section("decoder"), _DECODERS), "decode")
    _check_added(fields, normalized)
    if (model := fields.section("model")) is not None:
        _check_model(model)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # The library may take another of two than is checked here.
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has a name twice")
    return values


def _at_most_growth(growth: float, what: str) -> None:
    if growth > _MAX_GROWTH:
        raise CheckpointError(
            f"tokenizer.json may make a text {growth:.3g} times as long to {what} it, and must make it at most "
            f"{_MAX_GROWTH} times as long."
        )


_Rule = float | Callable[[Fields], float]


def _growth(step: Fields | None, rules: Mapping[str, _Rule]) -> float:
    if step is None:
        return 1
    rule = rules[step.text("type", among=list(rules))]
    return rule(step) if callable(rule) else rule


def _objects(fields: Fields, name: str) -> Iterable[Fields]:
    values = fields.items(name, ())
    if not all(isinstance(value, dict) for value in values):
        raise fields.error(name, "a list of objects")
    return (Fields(value, f"{fields.where}: {name}") for value in values)


def _replace(step: Fields) -> float:
    """Of a match of m characters come those of the content, and between any two characters may be an empty match."""
    pattern, content = step.section("pattern"), step.text("content")
    if pattern is None:
        raise step.error("pattern", "an object")
    if "Regex" in pattern:
        check_pattern(pattern.text("Regex"), pattern.where)
        least = 0
    else:
        least = len(pattern.text("String"))
    return max(1, math.ceil(len(content) / least)) if least else 1 + 2 * len(content)


def _precompiled(step: Fields) -> float:
    """The longest text in a map of sentencepiece: an array of which the map says the size, then texts that NUL ends."""
    try:
        blob = binascii.a2b_base64(step.text("precompiled_charsmap"), strict_mode=True)
    except ValueError:
        blob = b""
    size = int.from_bytes(blob[:4], "little")
    if size + 4 > len(blob):
        raise step.error("precompiled_charsmap", "a map of sentencepiece, as base64")
    return max(1, *(len(text.decode(errors="replace")) for text in blob[4 + size :].split(b"\0")))


def _split(step: Fields) -> float:
    pattern = step.section("pattern")
    if pattern is not None and "Regex" in pattern:
        check_pattern(pattern.text("Regex"), pattern.where)
    return 1


def _template(step: Fields) -> float:
    """How often the text comes; the special tokens around it are limited by their number."""
    special = step.section("special_tokens") or Fields({}, step.where)
    times = [1]
    for name in ("single", "pair"):
        pieces = list(_objects(step, name))
        named = [token.text("id") for piece in pieces if (token := piece.section("SpecialToken")) is not None]
        count = sum(len(token.items("ids", ())) for token in map(special.section, named) if token is not None)
        if count > _MAX_SPECIAL:
            raise step.error(name, f"a template with at most {_MAX_SPECIAL} special tokens")
        times.append(sum("Sequence" in piece for piece in pieces))
    return max(times)


def _sequence(name: str, rules: Mapping[str, _Rule]) -> Callable[[Fields], float]:
    return lambda step: math.prod((_growth(inner, rules) for inner in _objects(step, name)), start=1.0)


_NORMALIZERS: dict[str, _Rule] = {
    "BertNormalizer": 8,
    "ByteLevel": 4,
    "Lowercase": 2,
    "NFC": 3,
    "NFD": 4,
    "NFKC": 18,
    "NFKD": 18,
    "Nmt": 1,
    "Precompiled": _precompiled,
    "Prepend": lambda step: 1 + len(step.text("prepend")),
    "Replace": _replace,
    "Strip": 1,
    "StripAccents": 1,
}
_NORMALIZERS["Sequence"] = _sequence("normalizers", _NORMALIZERS)

_PRE_TOKENIZERS: dict[str, _Rule] = {
    "BertPreTokenizer": 1,
    # A byte is a character, and a space comes before.
    "ByteLevel": 5,
    "CharDelimiterSplit": 1,
    "Digits": 1,
    "FixedLength": 1,
    "Metaspace": 2,
    "Punctuation": 1,
    "Split": _split,
    "UnicodeScripts": 1,
    "Whitespace": 1,
    "WhitespaceSplit": 1,
}
_PRE_TOKENIZERS["Sequence"] = _sequence("pretokenizers", _PRE_TOKENIZERS)

_POST_PROCESSORS: dict[str, _Rule] = {
    "BertProcessing": 1,
    "ByteLevel": 1,
    "RobertaProcessing": 1,
    "TemplateProcessing": _template,
}
_POST_PROCESSORS["Sequence"] = _sequence("processors", _POST_PROCESSORS)

_DECODERS: dict[str, _Rule] = {
    # An empty suffix is found between any two characters.
    "BPEDecoder": 3,
    "ByteFallback": 1,
    "ByteLevel": 1,
    "CTC": 3,
    "Fuse": 1,
    "Metaspace": 1,
    "Replace": _replace,
    "Strip": 1,
    "WordPiece": 2,
}
_DECODERS["Sequence"] = _sequence("decoders", _DECODERS)


def _check_added(fields: Fields, normalized: float) -> None:
    total = 0.0
    for token in _objects(fields, "added_tokens"):
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
