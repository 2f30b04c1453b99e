"""How many times as long the steps of a tokenizer.json may make a text, from its normalizer to its decoder.

The growth of a step is its largest for any text, counted in characters, and those of steps in sequence multiply. A step
that has no rule here is not known, and refused.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Callable, Iterable, Mapping

from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.patterns import check_pattern

__all__ = ["DECODERS", "NORMALIZERS", "POST_PROCESSORS", "PRE_TOKENIZERS", "growth", "objects"]

_MAX_SPECIAL = 1024

_Rule = float | Callable[[Fields], float]


def growth(step: Fields | None, rules: Mapping[str, _Rule]) -> float:
    """How many times as long a step may make a text, by the rules of its kind; 1 where there is none."""
    if step is None:
        return 1
    rule = rules[step.text("type", among=list(rules))]
    return rule(step) if callable(rule) else rule


def objects(fields: Fields, name: str) -> Iterable[Fields]:
    """The objects of a list, none where it is missing."""
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
        pieces = list(objects(step, name))
        named = [token.text("id") for piece in pieces if (token := piece.section("SpecialToken")) is not None]
        count = sum(len(token.items("ids", ())) for token in map(special.section, named) if token is not None)
        if count > _MAX_SPECIAL:
            raise step.error(name, f"a template with at most {_MAX_SPECIAL} special tokens")
        times.append(sum("Sequence" in piece for piece in pieces))
    return max(times)


def _sequence(name: str, rules: Mapping[str, _Rule]) -> Callable[[Fields], float]:
    return lambda step: math.prod((growth(inner, rules) for inner in objects(step, name)), start=1.0)


NORMALIZERS: dict[str, _Rule] = {
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
NORMALIZERS["Sequence"] = _sequence("normalizers", NORMALIZERS)

PRE_TOKENIZERS: dict[str, _Rule] = {
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
PRE_TOKENIZERS["Sequence"] = _sequence("pretokenizers", PRE_TOKENIZERS)

POST_PROCESSORS: dict[str, _Rule] = {
    "BertProcessing": 1,
    "ByteLevel": 1,
    "RobertaProcessing": 1,
    "TemplateProcessing": _template,
}
POST_PROCESSORS["Sequence"] = _sequence("processors", POST_PROCESSORS)

DECODERS: dict[str, _Rule] = {
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
DECODERS["Sequence"] = _sequence("decoders", DECODERS)
