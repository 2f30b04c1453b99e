"""The files of a snapshot folder, opened only where they lie inside it.

The cache of the Hub holds a snapshot as links to `../../blobs` of the same repository, and those to a store of the
cache that its repositories share: these links are followed, any other that leads out of the folder is refused.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
from collections import Counter
from io import FileIO
from pathlib import Path
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields

__all__ = ["is_plain", "locate", "open_binary", "parse_object", "read_fields", "read_text", "shown"]

# No separator, no drive, no name of a folder, and nothing that a glob would expand.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_MAX_JSON = 2**26


def is_plain(name: object) -> bool:
    """Whether a name from outside is that of a file, and not of a path."""
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def shown(name: object) -> str:
    """A name from outside as an error may show it: short, and on one line."""
    return name if isinstance(name, str) and name.isprintable() and len(name) <= 200 else repr(name)[:200]


def locate(folder: Path, name: str) -> Path:
    """The path of a file of the folder.

    Raises:
        CheckpointError: there is no such file, it is not a regular one, or it lies outside the folder.
    """
    path = folder / name
    if not is_plain(name):
        raise CheckpointError(f"{shown(name)} is not the name of a file of {folder}, and must have no path in it.")
    try:
        path.lstat()
    except FileNotFoundError:
        raise CheckpointError(f"{name} is not in {folder}, and is required.") from None
    except OSError as error:
        raise _unreadable(folder, name, error) from None
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(root) for root in _roots(folder)):
        raise CheckpointError(
            f"{name} in {folder} is a link to {real}, and must lie in the folder. Copy the file there."
        )
    if not real.exists():
        raise CheckpointError(f"{name} in {folder} is a link to nothing. Get the file again.")
    if not real.is_file():
        raise CheckpointError(f"{name} in {folder} is not a regular file, and must be one.")
    return path


def open_binary(folder: Path, name: str) -> FileIO:
    """The file of the folder, open for reading, unbuffered. Raises CheckpointError as `locate` does."""
    path = locate(folder, name)
    try:
        # What became a pipe since must not block.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _unreadable(folder, name, error) from None
    file = os.fdopen(descriptor, "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise CheckpointError(f"{name} in {folder} is not a regular file, and must be one.")
    return file


def read_fields(folder: Path, name: str, required: bool = False) -> Fields:
    """The object in a JSON file of the folder, an empty one where there is no such file and none is required.

    Raises:
        CheckpointError: as `locate` and `parse_object` do, or the file has more than 64 MiB.
    """
    if not required and not os.path.lexists(folder / name):
        return Fields({}, name)
    return Fields(parse_object(_content(folder, name, _MAX_JSON), name), name)


def read_text(folder: Path, name: str, most: int) -> str | None:
    """The text of a UTF-8 file of at most `most` bytes, None where there is no such file."""
    return _decoded(_content(folder, name, most), name) if os.path.lexists(folder / name) else None


def parse_object(content: bytes, where: str) -> dict[str, Any]:
    """The object that bytes of JSON say, which errors call `where`.

    Raises:
        CheckpointError: not UTF-8, not JSON, not an object, or an object in it that names something twice.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
            raise CheckpointError(f"{where} names {shown(twice)} twice, and must name everything once.")
        return found

    if content.startswith(codecs.BOM_UTF8):
        raise CheckpointError(f"{where} begins with a byte order mark, and must be UTF-8 without one. Save it so.")
    try:
        values = json.loads(_decoded(content, where), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{where} is not JSON: {str(error)[:200]}. Get the file again.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{where} holds a {type(values).__name__}, and must hold an object.")
    return values


def _content(folder: Path, name: str, most: int) -> bytes:
    with open_binary(folder, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise CheckpointError(f"{name} has {size} bytes, and must have at most {most}.")
        try:
            return _read_all(file, size)
        except OSError as error:
            raise _unreadable(folder, name, error) from None


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{where} is not UTF-8: {error}. Get the file again.") from None


def _unreadable(folder: Path, name: str, error: OSError) -> CheckpointError:
    return CheckpointError(f"{name} in {folder} cannot be read: {error.strerror}. See to its permissions and its disk.")


def _read_all(file: FileIO, size: int) -> bytes:
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _roots(folder: Path) -> tuple[Path, ...]:
    real = Path(os.path.realpath(folder))
    if real.parent.name != "snapshots" or not (real.parents[1] / "blobs").is_dir():
        return (real,)
    return real, real.parents[1] / "blobs", real.parents[2] / "blobs"
