"""Loading a model by its name, the id of a repository, or a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from shardes.zoo.architecture import Tensor
from shardes.zoo.errors import ZooError
from shardes.zoo.fields import Fields
from shardes.zoo.model import Defaults, Model, Source
from shardes.zoo.registry import info, names, near
from shardes.zoo.snapshot.files import read_fields, shown

__all__ = ["find", "load"]

_DTYPES = ("float32", "bfloat16", "float16")


def load(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    dtype: Any = None,
    token: str | bool | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
) -> Model:
    """Load a model of a supported architecture.

    Args:
        name: one of `zoo.names()`; or else a folder that exists; or else the id of a Hub repository, "owner/name".
        revision: branch, tag or commit of the repository; by default the newest. What it stood for is in
            `model.source.commit`.
        dtype: float32, bfloat16 or float16 for all params; by default each as it is stored.
        token: of the Hub, for private and gated repositories; by default the environment's, False for none.
        cache_dir: where downloads are kept; by default as the Hub's environment variables say.
        offline: read the cache and nothing else.

    Raises:
        HubError: the repository or a file of it cannot be had.
        CheckpointError: its files are not those of a model that the zoo can run.
        ZooError: the name is none of the three.
        ValueError: `dtype` is not a floating dtype of the three.
    """
    if dtype is not None:
        dtype = _dtype(dtype)
    cache = None if cache_dir is None else Path(cache_dir)
    return _load_folder(find(name, revision, token=token, cache_dir=cache, offline=offline), dtype)


def _dtype(given: Any) -> Any:
    try:
        dtype = jnp.dtype(given)
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in _DTYPES:
        raise ValueError(f"dtype is {given}, and must be one of {', '.join(_DTYPES)}, or None for the stored.")
    return dtype


def find(
    name: str | os.PathLike[str],
    revision: str | None = None,
    *,
    token: str | bool | None = None,
    cache_dir: Path | None = None,
    offline: bool = False,
) -> Source:
    """The verified snapshot that a name stands for, downloaded if need be. Raises ZooError as `load` does."""
    if isinstance(name, str) and name in names():
        entry = info(name)
        if entry.repo_id is None:
            _no_revision(name, revision)
            return Source(_bundled(name))
        return _of_hub(entry.repo_id, revision or entry.revision, token, cache_dir, offline)
    if os.path.isdir(name):
        _no_revision(name, revision)
        return Source(Path(name))
    if isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        return _of_hub(name, revision, token, cache_dir, offline)
    raise ZooError(
        f"{shown(os.fspath(name))} is no model of the zoo, no folder, and no id of a repository, which is owner/name."
        f"{near(os.fspath(name))}"
    )


def _of_hub(repo_id: str, revision: str | None, token: Any, cache_dir: Path | None, offline: bool) -> Source:
    from shardes.zoo.hub.fetching import fetch

    snapshot = fetch(repo_id, revision, token=token, cache_dir=cache_dir, offline=offline)
    return Source(snapshot.folder, repo_id, revision, snapshot.commit)


def _no_revision(name: object, revision: str | None) -> None:
    if revision is not None:
        raise ZooError(f"revision is {revision!r}, and {name} is no repository of the Hub. Leave revision out.")


def _bundled(name: str) -> Path:
    folder = Path(str(resources.files("shardes.zoo") / "bundled" / name))
    if not folder.is_dir():
        raise ZooError(f"{name} comes with the package, and is not in this installation. Install shardes-zoo again.")
    return folder


def _load_folder(source: Source, dtype: Any) -> Model:
    from shardes.zoo.architectures import architecture_of
    from shardes.zoo.snapshot.tensors import read_params
    from shardes.zoo.snapshot.tokenizer_files import load_tokenizer
    from shardes.zoo.snapshot.weights import find_weights

    folder = source.folder
    assert folder is not None
    fields = read_fields(folder, "config.json", required=True)
    architecture = architecture_of(fields)
    config = architecture.config(fields)
    generation = read_fields(folder, "generation_config.json")
    defaults = _defaults(fields, generation, _vocabulary(architecture.tensors(config)))
    weights = find_weights(folder, architecture, config)
    tokenizer = load_tokenizer(folder)
    if source.repo_id is None:
        source = Source(folder, base=weights.metadata.get("shardes.base"))
    else:
        source = Source(folder, source.repo_id, source.revision, source.commit, f"{source.repo_id}@{source.commit}")
    params = read_params(folder, weights, dtype)
    return Model(params, config, tokenizer, architecture, source, fields.values, generation.values, defaults)


def _vocabulary(tensors: Iterable[Tensor]) -> int:
    return next((tensor.shape[0] for tensor in tensors if tensor.leaf == ("embed",)), 0)


def _defaults(fields: Fields, generation: Fields, vocabulary: int) -> Defaults:
    ends, pads = (
        [token for token in _token_ids(generation, name) or _token_ids(fields, name) if token < vocabulary]
        for name in ("eos_token_id", "pad_token_id")
    )
    return Defaults(tuple(ends), pads[0] if pads else None)


def _token_ids(fields: Fields, name: str) -> tuple[int, ...]:
    value = fields.values.get(name)
    tokens = () if value is None else tuple(value) if isinstance(value, list) else (value,)
    if not all(type(token) is int and -1 <= token < 2**31 for token in tokens):
        raise fields.error(name, "a token id, or a list of them")
    # Some checkpoints write -1 for none.
    return tuple(token for token in tokens if token >= 0)
