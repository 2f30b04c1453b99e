"""The tokenizer that the files of a snapshot make: tokenizer.json, with what tokenizer_config.json says beside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.files import read_fields, read_text, shown
from shardes.zoo.snapshot.tokenizer import Tokenizer, guarded, is_broken
from shardes.zoo.snapshot.tokenizer_limits import check_tokenizer

__all__ = ["load_tokenizer", "tokenizer_of"]

_MAX_BYTES = 2**26
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def load_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a snapshot, None where it has no tokenizer.json.

    Raises:
        CheckpointError: a file of it is not sound.
    """
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    files = {name: text for name in names if (text := read_text(folder, name, _MAX_BYTES)) is not None}
    if "tokenizer.json" not in files:
        return None
    return tokenizer_of(files, read_fields(folder, "tokenizer_config.json"))


def tokenizer_of(files: Mapping[str, str], fields: Fields) -> Tokenizer:
    """The tokenizer that files of these contents make, with the fields of tokenizer_config.json."""
    backend = _backend(files["tokenizer.json"])
    special = {role: token for role in _SPECIAL if (token := _token(fields, role)) is not None}
    for role, token in special.items():
        if backend.token_to_id(token) is None:
            raise CheckpointError(
                f"{fields.where}: {role} is {shown(token)}, which tokenizer.json does not have. Get both again."
            )
    templates = _chat_templates(fields)
    if "chat_template.jinja" in files:
        templates["default"] = files["chat_template.jinja"]
    return Tokenizer(backend, special, templates, files)


def _backend(content: str) -> Any:
    from tokenizers import Tokenizer as Backend

    check_tokenizer(content)
    with guarded("be read"):
        backend = Backend.from_str(content)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _token(fields: Fields, role: str) -> str | None:
    value = fields.values.get(role)
    if isinstance(value, dict):
        value = value.get("content")
    # JSON may hold half of a surrogate pair, which is no text.
    if value is not None and (not isinstance(value, str) or is_broken(value)):
        raise fields.error(role, "a string, or an object with its content")
    return value


def _chat_templates(fields: Fields) -> dict[str, str]:
    value = fields.values.get("chat_template")
    if value is None or isinstance(value, str):
        return {} if value is None else {"default": value}
    if isinstance(value, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
        for entry in value
    ):
        return {entry["name"]: entry["template"] for entry in value}
    raise fields.error("chat_template", "a string, or a list of objects with name and template")
