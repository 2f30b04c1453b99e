"""The header of a safetensors file: which tensors it holds and where, checked against the file before anything is read.

The format: 8 bytes of length, that many bytes of JSON, then the tensors without gaps
(https://huggingface.co/docs/safetensors). Memory is bounded by the header's own length, and that by the file's.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from io import FileIO
from typing import Any

from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.files import parse_object, shown

__all__ = ["Entry", "Header", "read_header"]

# Ten thousand tensors need about a megabyte.
_MAX_HEADER = 2**24
_MAX_RANK = 16
_WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor in a file: `size` bytes from byte `start` of the file."""

    file: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class Header:
    """The tensors of a file by name, and its metadata."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read_header(file: FileIO, name: str) -> Header:
    """The header of an open file, which errors call `name`.

    Raises:
        CheckpointError: the file is not safetensors, or its tensors overlap, leave a gap, or do not end where it does.
    """
    total = os.fstat(file.fileno()).st_size
    first = file.read(8)
    if len(first) < 8:
        raise CheckpointError(
            f"{name} has {total} bytes, and a safetensors file begins with 8 bytes of length. Get the file again."
        )
    length = int.from_bytes(first, "little")
    if length > total - 8:
        raise CheckpointError(
            f"{name}: the header's length is {length}, and the file has only {total - 8} bytes after it. "
            "Get the file again."
        )
    if length > _MAX_HEADER:
        raise CheckpointError(f"{name}: the header's length is {length}, and must be at most {_MAX_HEADER}.")
    values = parse_object(file.read(length), f"{name}: the header")
    metadata = values.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError(f"{name}: __metadata__ is {shown(metadata)}, and must be an object of strings.")
    begin = 8 + length
    entries = {key: _entry(name, key, value, begin, total - begin) for key, value in values.items()}
    _check_layout(name, entries, begin, total)
    return Header(entries, metadata)


def _entry(file: str, name: str, value: Any, begin: int, available: int) -> Entry:
    where = f"{file}: {shown(name)}"
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} is {shown(value)}, and must have dtype, shape and data_offsets, no more.")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _WIDTHS:
        raise CheckpointError(f"{where} has dtype {shown(dtype)}, and must have F32, F16 or BF16.")
    if not _counts(shape) or len(shape) > _MAX_RANK:
        raise CheckpointError(
            f"{where} has shape {shown(shape)}, and must have at most {_MAX_RANK} sizes, none negative."
        )
    if not _counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= available:
        raise CheckpointError(
            f"{where} has data_offsets {shown(offsets)}, and must lie in the {available} bytes after the header. "
            "Get the file again."
        )
    size = math.prod(shape) * _WIDTHS[dtype]
    if size != offsets[1] - offsets[0]:
        raise CheckpointError(
            f"{where} has {offsets[1] - offsets[0]} bytes by its data_offsets, and must have {size}: "
            f"its shape is {shape} and its dtype {dtype}."
        )
    return Entry(file, name, dtype, tuple(shape), begin + offsets[0], size)


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_layout(file: str, entries: Mapping[str, Entry], begin: int, total: int) -> None:
    end = begin
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.size)):
        if entry.start != end:
            kind = "overlaps the tensor before it" if entry.start < end else "leaves a gap before it"
            raise CheckpointError(
                f"{file}: {shown(entry.name)} {kind}: it begins at byte {entry.start - begin} of the data, "
                f"and must begin at {end - begin}."
            )
        end += entry.size
    if end != total:
        raise CheckpointError(
            f"{file} has {total} bytes, and must have {end}: {total - end} after the last tensor belong to none. "
            "Get the file again."
        )
