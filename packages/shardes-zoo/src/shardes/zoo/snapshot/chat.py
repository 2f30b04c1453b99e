"""Chat templates, rendered in a process of their own that the operating system bounds in time and memory.

A template is a program from outside, and jinja2's sandbox keeps it from files, not from filling the memory. The process
is started at the first chat and kept. The bound on memory is Linux's and other POSIX systems'; macOS and Windows have
none that Python can set, and there the limits of time and length are all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.chat_process import ask

__all__ = ["render"]

_MAX_SOURCE = 2**20
_MAX_SECONDS = 10.0


def render(template: str, where: str, variables: Mapping[str, Any]) -> str:
    """The text of a template.

    Args:
        template: its source.
        where: what errors call it.
        variables: what it sees: None, booleans, numbers and text, in lists and in dictionaries by text.

    Raises:
        CheckpointError: the template is not sound, refuses the variables, does what the sandbox forbids, takes more
            than 10 seconds or 512 MiB, or makes more than 16 million characters.
        TypeError: a variable holds something else than the above.
        ValueError: a variable holds itself, or is nested too deeply.
        ZooError: the process that renders cannot be started.
    """
    if len(template) > _MAX_SOURCE:
        raise CheckpointError(f"{where} has {len(template)} characters, and must have at most {_MAX_SOURCE}.")
    given = {name: _plain(value, name) for name, value in variables.items()}
    answer = ask({"template": template, "variables": given}, _MAX_SECONDS)
    if "error" in answer:
        error = answer["error"]
        raise CheckpointError(f"{where} cannot be rendered: {error if error.isprintable() else repr(error)}")
    return answer["text"]


def _plain(value: Any, name: str) -> Any:
    """The value as JSON can say it."""
    try:
        plain = _of_json(value, name)
        json.dumps(plain)
    except RecursionError:
        raise ValueError(f"{name} holds itself or is nested too deeply, and must be plain data.") from None
    return plain


def _of_json(value: Any, name: str) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{name} has the key {key!r:.200}, and a chat template can read text keys only.")
        return {key: _of_json(inner, f"{name}[{key!r:.50}]") for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_of_json(inner, f"{name}[{i}]") for i, inner in enumerate(value)]
    raise TypeError(
        f"{name} is a {type(value).__name__}, and must be None, a boolean, a number, text, or a list or dictionary of "
        "these, for a chat template to read it."
    )
