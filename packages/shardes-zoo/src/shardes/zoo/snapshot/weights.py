"""Which safetensors files hold the weights of a snapshot, and where in them every tensor of the model lies."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shardes.zoo.architecture import Architecture, Tensor
from shardes.zoo.errors import CheckpointError
from shardes.zoo.fields import Fields
from shardes.zoo.snapshot.files import is_plain, locate, open_binary, read_fields, shown
from shardes.zoo.snapshot.header import Entry, Header, read_header

__all__ = ["FLOATS", "INDEX", "SINGLE", "SMALL", "Weights", "find_weights", "shards_of"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SMALL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""The files of a snapshot beside its weights."""
FLOATS = ("F32", "F16", "BF16")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")


@dataclasses.dataclass(frozen=True)
class Weights:
    """Where the tensors of a model lie.

    Attributes:
        entries: for every tensor of the architecture the entries of its layers, or its only one.
        copies: tensors that must equal others, which are the model's.
        files: names of the files in the folder.
        metadata: that of the first file.
    """

    entries: tuple[tuple[Tensor, tuple[Entry, ...]], ...]
    copies: tuple[tuple[Entry, Entry], ...]
    files: tuple[str, ...]
    metadata: Mapping[str, str]


def find_weights(folder: Path, architecture: Architecture, config: Any) -> Weights:
    """Find and check every tensor of a model, reading only headers.

    Args:
        folder: a snapshot with model.safetensors, or else model.safetensors.index.json and its shards.
        architecture: what the config is of.
        config: the model's config.

    Raises:
        CheckpointError: a file is not sound, or the tensors are not exactly those of the model, in name, shape and
            dtype. Of others, only the architecture's `leftovers` are passed over.
    """
    if os.path.lexists(folder / SINGLE):
        files: tuple[str, ...] = (SINGLE,)
        listed = None
    elif os.path.lexists(folder / INDEX):
        listed = shards_of(read_fields(folder, INDEX))
        files = tuple(dict.fromkeys(listed.values()))
        for file in files:
            locate(folder, file)
    else:
        raise CheckpointError(_no_weights(folder))
    headers = {}
    for file in files:
        with open_binary(folder, file) as opened:
            headers[file] = read_header(opened, file)
    held = _check_index(headers, listed) if listed is not None else headers[SINGLE].entries
    tensors = architecture.tensors(config)
    where = SINGLE if listed is None else INDEX
    found = tuple((tensor, tuple(_expected(tensor, held, where))) for tensor in tensors)
    used = {entry.name for _, entries in found for entry in entries}
    copies = tuple(
        (held[copy], held[original])
        for copy, original in architecture.copies
        if copy in held and copy not in used and original in used
    )
    _check_copies(copies)
    _check_unexpected(held, used | {copy.name for copy, _ in copies}, architecture.leftovers)
    return Weights(found, copies, files, headers[files[0]].metadata)


def shards_of(index: Fields) -> dict[str, str]:
    """The file of every tensor, as the index says. Raises CheckpointError for what is not a file of the folder."""
    section = index.section("weight_map")
    if section is None:
        raise CheckpointError(f"{index.where}: weight_map is missing, and is required: an object of file names.")
    if not section.values:
        raise CheckpointError(f"{index.where}: weight_map is empty, and must name the file of every tensor.")
    for tensor, file in section.values.items():
        if not is_plain(file) or not file.endswith(".safetensors"):
            raise CheckpointError(
                f"{index.where}: {shown(tensor)} is in {shown(file)}, and must be in a .safetensors file of the "
                "folder, named without a path."
            )
    return section.values


def _no_weights(folder: Path) -> str:
    try:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
    except OSError:
        # Its files may be read where it may not be listed.
        pickles = []
    required = f"{SINGLE} or {INDEX} is required"
    if pickles:
        return (
            f"{folder} has weights only as {shown(', '.join(pickles))}, which is never opened since a pickle can run "
            f"code; {required}. Convert it with safetensors, or choose a repository that has it."
        )
    return f"{folder} has no weights: {required}."


def _check_index(headers: Mapping[str, Header], listed: Mapping[str, str]) -> dict[str, Entry]:
    held: dict[str, Entry] = {}
    for file, header in headers.items():
        for name, entry in header.entries.items():
            if listed.get(name) != file:
                where = f"in {listed[name]}" if name in listed else "in no file"
                raise CheckpointError(
                    f"{INDEX}: {shown(name)} is {where} by weight_map, and lies in {file}. Get both again."
                )
            held[name] = entry
    for name, file in listed.items():
        if name not in held:
            raise CheckpointError(f"{INDEX}: {shown(name)} is in {file} by weight_map, and {file} does not hold it.")
    return held


def _expected(tensor: Tensor, held: Mapping[str, Entry], where: str) -> Iterator[Entry]:
    # Layer by layer, so that a config of two thousand million layers ends at the first that is missing.
    for layer in range(1 if tensor.layers is None else tensor.layers):
        name = tensor.name if tensor.layers is None else tensor.name.format(layer)
        entry = held.get(name)
        if entry is None:
            raise CheckpointError(
                f"{where}: {name} is missing, and is required with shape {list(tensor.shape)}. "
                "The weights are not those of config.json, or not complete."
            )
        if entry.shape != tensor.shape:
            raise CheckpointError(
                f"{entry.file}: {name} has shape {list(entry.shape)}, and must have {list(tensor.shape)} "
                "by config.json."
            )
        if entry.dtype not in FLOATS:
            raise CheckpointError(f"{entry.file}: {name} has dtype {entry.dtype}, and must have F32, F16 or BF16.")
        yield entry


def _check_copies(copies: Sequence[tuple[Entry, Entry]]) -> None:
    for copy, original in copies:
        if (copy.dtype, copy.shape) != (original.dtype, original.shape):
            raise CheckpointError(
                f"{copy.file}: {copy.name} has dtype {copy.dtype} and shape {list(copy.shape)}, and must be a copy of "
                f"{original.name}, which has {original.dtype} and {list(original.shape)}, since config.json ties them."
            )


def _check_unexpected(held: Mapping[str, Entry], used: set[str], leftovers: tuple[str, ...]) -> None:
    for name, entry in held.items():
        if name not in used and not any(re.fullmatch(pattern, name) for pattern in leftovers):
            raise CheckpointError(
                f"{entry.file}: {shown(name)} is unexpected: the model that config.json describes has no such tensor."
            )
