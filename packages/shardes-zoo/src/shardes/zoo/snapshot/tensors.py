"""Reading the tensors of a checkpoint, each straight into its place in the params."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes import Stacked
from shardes.zoo.architecture import Tensor
from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.files import open_binary
from shardes.zoo.snapshot.header import Entry
from shardes.zoo.snapshot.weights import Weights

__all__ = ["leaf_of", "read_params"]

Array = np.ndarray[Any, Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
# For every dtype the integer of its width, and that of an infinity shifted left by one: what is as large, its sign
# shifted out, is infinite or no number.
_BITS = {"F32": (np.uint32, 0xFF000000), "F16": (np.uint16, 0xF800), "BF16": (np.uint16, 0xFF00)}
_ALIGNMENT = 64
_CHUNK = 2**17


def read_params(folder: Path, weights: Weights, dtype: Any = None) -> dict[str, Any]:
    """Read the params of a model whose tensors have been found.

    On a CPU the params are the very memory that the files were read into: the peak is their size, and that of one
    tensor where `dtype` is not the stored one.

    Args:
        folder: the snapshot.
        weights: where its tensors lie.
        dtype: floating dtype of the params, None for that of the files.

    Raises:
        CheckpointError: a file ends early, or a tensor holds a value that is not finite.
    """
    places: list[tuple[Entry, Array]] = []
    leaves: list[tuple[Tensor, Array]] = []
    for tensor, entries in weights.entries:
        leaf = _empty((len(entries), *tensor.shape), _stored_dtype(tensor, entries) if dtype is None else dtype)
        leaves.append((tensor, leaf))
        places += [(entry, leaf[layer, ...]) for layer, entry in enumerate(entries)]
    places.sort(key=lambda place: (place[0].file, place[0].start))
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open_binary(folder, name)) for name in weights.files}
        for entry, place in places:
            _read(files[entry.file], entry, place)
        for copy, original in weights.copies:
            _check_copy(files[copy.file], copy, files[original.file], original)
    return _tree(leaves)


def _stored_dtype(tensor: Tensor, entries: tuple[Entry, ...]) -> np.dtype[Any]:
    """The dtype that all layers of a tensor are stored in. Raises CheckpointError where they differ."""
    other = next((entry for entry in entries if entry.dtype != entries[0].dtype), None)
    if other is not None:
        raise CheckpointError(
            f"{other.file}: {other.name} has dtype {other.dtype}, and {entries[0].name} has {entries[0].dtype}: layers "
            "are stacked, and must have the same. Say which to use by dtype=."
        )
    return _DTYPES[entries[0].dtype]


def _empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array that begins where JAX takes over memory without a copy."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    array: Array = raw[start : start + size].view(dtype).reshape(shape)
    return array


def _read(file: FileIO, entry: Entry, place: Array) -> None:
    stored = _DTYPES[entry.dtype]
    target = place if place.dtype == stored else _empty(place.shape, stored)
    file.seek(entry.start)
    view = memoryview(target.reshape(-1).view(np.uint8))
    done = 0
    while done < entry.size:
        # One call reads at most 2 GiB.
        count = file.readinto(view[done:])
        if not count:
            raise CheckpointError(f"{entry.file}: {entry.name} ends after {done} of {entry.size} bytes. Get it again.")
        done += count
    _check_finite(entry, target)
    if target is not place:
        with np.errstate(over="ignore"):
            place[...] = target.astype(place.dtype)
        if not all(np.isfinite(chunk).all() for chunk in _chunks(place)):
            raise CheckpointError(
                f"{entry.file}: {entry.name} holds values too large for {place.dtype}. Choose a dtype= with the range "
                "of bfloat16 or float32."
            )


def _check_copy(file: FileIO, copy: Entry, other: FileIO, original: Entry) -> None:
    for start in range(0, copy.size, _CHUNK):
        count = min(_CHUNK, copy.size - start)
        file.seek(copy.start + start)
        held = file.read(count)
        other.seek(original.start + start)
        if held != other.read(count):
            raise CheckpointError(
                f"{copy.file}: {copy.name} differs from {original.name}, and must be a copy of it, since config.json "
                "ties them. Set tie_word_embeddings to false if the model has a head of its own."
            )


def _check_finite(entry: Entry, values: Array) -> None:
    integer, infinity = _BITS[entry.dtype]
    scratch = np.empty(min(_CHUNK, values.size), integer)
    for chunk in _chunks(values.reshape(-1).view(integer)):
        shifted = np.left_shift(chunk, 1, out=scratch[: chunk.size])
        if shifted.max() >= infinity:
            bad = values.reshape(-1)[~np.isfinite(values.reshape(-1).astype(np.float32))]
            raise CheckpointError(
                f"{entry.file}: {entry.name} holds {bad[0]} ({bad.size} of {values.size} values are not finite), "
                "and must hold finite numbers."
            )


def _chunks(values: Array) -> Iterator[Array]:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def _tree(leaves: list[tuple[Tensor, Array]]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    stacked = {tensor.leaf[0] for tensor, _ in leaves if tensor.layers is not None}
    for tensor, values in leaves:
        branch = root
        for key in tensor.leaf[:-1]:
            branch = branch.setdefault(key, {})
        # On a CPU jnp.asarray would copy what device_put takes over.
        branch[tensor.leaf[-1]] = jax.device_put(values if tensor.layers is not None else values[0], may_alias=True)
    return {key: Stacked(value) if key in stacked else value for key, value in root.items()}


def leaf_of(params: Any, leaf: tuple[str, ...]) -> jax.Array:
    """The array of the params at the path of a tensor. Raises KeyError where there is none."""
    for key in leaf:
        params = params.layers[key] if isinstance(params, Stacked) else params[key]
    return params  # type: ignore[no-any-return]
