"""Whether a downloaded file holds the bytes that the Hub says it does: the client compares lengths alone."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardes.zoo.snapshot.files import open_binary

__all__ = ["hash_by_blob_name", "hashes_of", "is_hash"]


def is_hash(value: object) -> bool:
    """Whether this is a sha256, or the sha1 of a git blob, in hexadecimal."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", value) is not None


def hash_by_blob_name(folder: Path, name: str) -> str | None:
    """The hash that the cache calls a file by: the name of the blob that the file is a link to, None without one."""
    path = folder / name
    blob = os.path.basename(os.readlink(path)) if path.is_symlink() else None
    return blob if is_hash(blob) else None


def hashes_of(folder: Path, expected: Mapping[str, str]) -> dict[str, str]:
    """The hashes of files of the folder, each of the kind of the one expected; files are read side by side."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: _hash_of(folder, name, expected[name]), expected)
        return dict(zip(expected, found, strict=True))


def _hash_of(folder: Path, name: str, like: str) -> str:
    """The hash of a file of the folder, of the kind of another: sha256 of its content, or sha1 of it as a git blob."""
    with open_binary(folder, name) as file:
        if len(like) == 64:
            return hashlib.file_digest(file, "sha256").hexdigest()
        start = b"blob %d\0" % os.fstat(file.fileno()).st_size
        return hashlib.file_digest(file, lambda: hashlib.sha1(start, usedforsecurity=False)).hexdigest()
