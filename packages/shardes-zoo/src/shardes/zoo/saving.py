"""Writing a model as a snapshot that transformers and `shardes.zoo.load` read."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes.zoo.errors import ZooError
from shardes.zoo.leaves import check_leaves
from shardes.zoo.model import Model
from shardes.zoo.replacing import replacing
from shardes.zoo.snapshot.tensors import leaf_of
from shardes.zoo.snapshot.weights import INDEX, SINGLE, SMALL

__all__ = ["save"]

Array = np.ndarray[Any, Any]

_DTYPES = ("float32", "bfloat16", "float16")


def save(
    model: Model,
    params: Any,
    folder: str | os.PathLike[str],
    *,
    max_shard_size: int = 5 * 10**9,
) -> Path:
    """Write a snapshot: config.json, generation_config.json, safetensors and the tokenizer's files.

    The snapshot is written beside the folder and then takes its place, so that the folder holds the old or the new one
    whole, even after a kill. Of savers to one folder at once the last one wins; in a run of many processes, call it in
    one. The files' metadata and `base` in `model.source` say what the model came from.

    Args:
        model: what the params are of.
        params: with the structure and shapes of `model.params`, each leaf in float32, bfloat16 or float16.
        folder: a new one, an empty one, or one that holds a snapshot and nothing else, which is replaced; neither the
            working directory nor a mount point.
        max_shard_size: bytes; weights of more are split over files of at most as many, with an index.

    Returns:
        The folder, without links in its path.

    Raises:
        ZooError: the params are not those of the model, or the folder cannot be written.
        ValueError: `max_shard_size` is not a positive integer.
    """
    if not isinstance(max_shard_size, int) or max_shard_size < 1:
        raise ValueError(f"max_shard_size is {max_shard_size!r}, and must be a positive integer, of bytes.")
    from safetensors import SafetensorError

    leaves = _check(model, params)
    target = Path(folder)
    try:
        target = Path(os.path.realpath(folder))
        _check_target(target)
        with replacing(target) as new:
            _write(model, leaves, new, max_shard_size)
            # What has come while the new one was written must not be lost either.
            _check_target(target)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ZooError(f"{target} cannot be written: {reason}. Choose another folder.") from error
    return target


def _check(model: Model, params: Any) -> dict[tuple[str, ...], Array]:
    """The leaves by their paths, on the host."""
    tensors = model.architecture.tensors(model.config)
    check_leaves(params, tensors)
    leaves = {}
    for tensor in tensors:
        name = "/".join(tensor.leaf)
        leaf = leaf_of(params, tensor.leaf)
        dtype = np.dtype(getattr(leaf, "dtype", np.float64)).name
        if dtype not in _DTYPES:
            raise ZooError(f"params: {name} has dtype {dtype}, and must have one of {', '.join(_DTYPES)}.")
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable and leaf.is_fully_replicated:
            leaf = leaf.addressable_data(0)
        leaves[tensor.leaf] = np.ascontiguousarray(leaf)
        if not jnp.isfinite(leaf).all():
            raise ZooError(f"params: {name} holds values that are not finite, and must be finite to be loaded again.")
    return leaves


def _check_target(target: Path) -> None:
    if _holds_the_working_directory(target):
        raise ZooError(f"{target} is or holds the working directory, and would be replaced. Choose a folder in it.")
    if target.is_mount():
        raise ZooError(f"{target} is where a file system is mounted, and cannot be replaced. Choose a folder in it.")
    try:
        # A listing knows the kinds: another saver may replace the folder meanwhile.
        with os.scandir(target) as entries:
            foreign = sorted(entry.name for entry in entries if not (_is_of_a_snapshot(entry.name) and entry.is_file()))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ZooError(f"{target} is not a folder, or lies in what is none. Choose another.") from None
    if foreign:
        raise ZooError(
            f"{target} holds {foreign[0]}, which is of no snapshot and would be lost. Choose another folder."
        )


def _holds_the_working_directory(target: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(target)
    except FileNotFoundError:
        return False


def _is_of_a_snapshot(name: str) -> bool:
    return name in (SINGLE, INDEX, *SMALL) or re.fullmatch(r"model-\d{5}-of-\d{5}\.safetensors", name) is not None


def _write(model: Model, leaves: Mapping[tuple[str, ...], Array], folder: Path, max_shard_size: int) -> None:
    dtype = _main_dtype(leaves)
    fields = dict(model.fields)
    # transformers wrote torch_dtype until 5.0, and reads both.
    fields.update({name: dtype for name in ("torch_dtype", "dtype") if name in fields} or {"dtype": dtype})
    _write_json(folder / "config.json", fields)
    if model.generation_fields:
        _write_json(folder / "generation_config.json", model.generation_fields)
    for name, content in (model.tokenizer.files if model.tokenizer is not None else {}).items():
        (folder / name).write_bytes(content.encode())
    _write_weights(model, leaves, folder, max_shard_size)
    for path in folder.glob("*.safetensors"):
        # safetensors writes files that only their owner can read.
        shutil.copymode(folder / "config.json", path)


def _write_weights(model: Model, leaves: Mapping[tuple[str, ...], Array], folder: Path, max_shard_size: int) -> None:
    from safetensors.numpy import save_file

    metadata = {"format": "pt"}
    if model.source.base is not None:
        metadata["shardes.base"] = model.source.base
    shards: list[dict[str, Array]] = [{}]
    size = 0
    for name, values in _tensors(model, leaves):
        if shards[-1] and size + values.nbytes > max_shard_size:
            shards.append({})
            size = 0
        shards[-1][name] = values
        size += values.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / SINGLE, metadata=metadata)
        return
    files = {}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / name, metadata=metadata)
        files.update(dict.fromkeys(shard, name))
    total = sum(values.nbytes for shard in shards for values in shard.values())
    _write_json(folder / INDEX, {"metadata": metadata | {"total_size": total}, "weight_map": files})


def _tensors(model: Model, leaves: Mapping[tuple[str, ...], Array]) -> Iterator[tuple[str, Array]]:
    """Tensors of the checkpoint by name, layer by layer, so that a shard holds whole layers."""
    tensors = model.architecture.tensors(model.config)
    for tensor in tensors:
        if tensor.layers is None:
            yield tensor.name, leaves[tensor.leaf]
    for layer in range(max((tensor.layers or 0 for tensor in tensors), default=0)):
        for tensor in tensors:
            if tensor.layers is not None and layer < tensor.layers:
                yield tensor.name.format(layer), leaves[tensor.leaf][layer]


def _main_dtype(leaves: Mapping[tuple[str, ...], Array]) -> str:
    sizes: Counter[str] = Counter()
    for values in leaves.values():
        sizes[values.dtype.name] += values.size
    return sizes.most_common(1)[0][0]


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
