"""What the cache of the Hub's client has, verified by the hashes that it keeps."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

from shardes.zoo.errors import HubError
from shardes.zoo.hub.errors import explain
from shardes.zoo.hub.worker import causes
from shardes.zoo.snapshot.files import read_fields
from shardes.zoo.snapshot.hashes import hash_by_blob_name, hashes_of, is_hash
from shardes.zoo.snapshot.weights import INDEX, SINGLE, SMALL, shards_of

__all__ = ["Snapshot", "find_cached", "folder_of", "remove", "unfinished"]

_ADVICE = "Load it once with the network, without offline= and HF_HUB_OFFLINE."


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A verified snapshot in the cache.

    Attributes:
        folder: where its files are.
        commit: what the revision stood for.
        hashes: of every file, sha256 or that of a git blob, as the Hub or its cache has them.
    """

    folder: Path
    commit: str
    hashes: dict[str, str]


def find_cached(repo_id: str, revision: str | None, cache_dir: Path | None, surely: bool = False) -> Snapshot:
    """What the cache has, which may lack files that it does not know of unless it must `surely` be whole.

    Raises:
        HubError: it has not all that is needed, or has other bytes than the Hub.
    """
    from huggingface_hub import HfApi, errors, get_cached_repo_tree

    wanted = f"{repo_id} at {revision or 'main'}"
    try:
        found = HfApi().resolve_revision(repo_id, revision=revision, cache_dir=cache_dir, local_files_only=True)
    except errors.RevisionResolutionError:
        raise HubError(f"{wanted} is not in the cache. {_ADVICE}") from None
    except errors.HFValidationError as error:
        raise explain(causes(error), repo_id, revision, False, "name") from None
    commit = found.resolved
    folder = folder_of(repo_id, commit, cache_dir) if is_hash(commit) else None
    if folder is None:
        raise HubError(f"{wanted} is not in the cache. {_ADVICE}")
    try:
        tree = {
            file.path: file.lfs.sha256 if file.lfs else file.blob_id
            for file in get_cached_repo_tree(repo_id, revision=commit, cache_dir=cache_dir)
        }
    except errors.CachedRepoTreeNotFoundError:
        if surely:
            raise HubError(f"{wanted} may be only partly in the cache. {_ADVICE}") from None
        tree = {}
    names = [name for name in SMALL if name in tree or os.path.lexists(folder / name)]
    if os.path.lexists(folder / INDEX) and not os.path.lexists(folder / SINGLE):
        names += [INDEX, *dict.fromkeys(shards_of(read_fields(folder, INDEX)).values())]
    else:
        names.append(SINGLE)
    return Snapshot(folder, commit, _verified(wanted, folder, names, tree))


def _verified(wanted: str, folder: Path, names: list[str], tree: dict[str, str]) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for name in names:
        if not (folder / name).exists():
            raise HubError(f"{wanted} is only partly in the cache: {name} is missing. {_ADVICE}")
        expected = hash_by_blob_name(folder, name) or tree.get(name)
        if expected is None or not is_hash(expected):
            raise HubError(f"{wanted}: the cache does not say what {name} must hold. {_ADVICE}")
        hashes[name] = expected
    for name, found in hashes_of(folder, hashes).items():
        if found != hashes[name]:
            raise HubError(
                f"{wanted}: {folder / name} does not hold what the Hub has: its hash is {found}, and must be "
                f"{hashes[name]}. Delete the file, or load it with the network, which fetches it again."
            )
    return hashes


def folder_of(repo_id: str, commit: str, cache_dir: Path | None) -> Path | None:
    """Where the cache has the files of a commit, None where it has none."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo_id, "config.json", cache_dir=cache_dir, revision=commit)
    return Path(path).parent if isinstance(path, str) else None


def unfinished(repo_id: str, cache_dir: Path) -> int:
    """Bytes of the repository's files that any process is about to write."""
    blobs = cache_dir / f"models--{repo_id.replace('/', '--')}" / "blobs"
    size = 0
    for path in blobs.glob("*.incomplete"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def remove(path: Path) -> None:
    """Remove a file of the cache and what it is a link to."""
    while True:
        target = path.parent / os.readlink(path) if path.is_symlink() else None
        path.unlink(missing_ok=True)
        if target is None:
            return
        path = target
