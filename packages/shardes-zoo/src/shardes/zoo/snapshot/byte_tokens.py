"""A tokenizer whose tokens are the bytes of UTF-8, as a tokenizer.json that any library reads."""

from __future__ import annotations

import json
from typing import Any

from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.tokenizer import Tokenizer
from shardes.zoo.snapshot.tokenizer_files import tokenizer_of

__all__ = ["byte_tokenizer"]


def byte_tokenizer() -> Tokenizer:
    """The tokenizer that gives every byte of a text its own number as id, 0 to 255, and has no other tokens."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocab = {character: byte for byte, character in enumerate(_characters())}
    model: dict[str, Any] = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": []}
    content: dict[str, Any] = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level}
    content |= {"post_processor": None, "decoder": level, "model": model}
    return tokenizer_of(
        {"tokenizer.json": json.dumps(content, ensure_ascii=False)}, Fields({}, "tokenizer_config.json")
    )


def _characters() -> list[str]:
    """The characters by which byte-level BPE writes bytes: itself where it is printable, else the next above 255."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]
