"""Snapshots of the Hub's repositories, through huggingface_hub alone: only the files needed, every one verified."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardes.zoo.errors import HubError, ZooError
from shardes.zoo.hub.errors import explain, is_unreachable
from shardes.zoo.hub.processes import first_of_all_processes
from shardes.zoo.snapshot.files import is_plain, read_fields, shown
from shardes.zoo.snapshot.hashes import hash_by_blob_name, hashes_of, is_hash
from shardes.zoo.snapshot.weights import INDEX, SINGLE, SMALL, shards_of

__all__ = ["Snapshot", "fetch"]

# Seconds that the Hub has to answer what is asked about a repository.
_PATIENCE = 60.0


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


def fetch(
    repo_id: str,
    revision: str | None = None,
    *,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    offline: bool = False,
) -> Snapshot:
    """Bring a snapshot's config, tokenizer and safetensors files into the cache, and verify them.

    Where the Hub does not answer, what is in the cache is taken, with a warning; a commit that is in the cache is not
    asked for. A cached file of other bytes than the Hub says is fetched once more. In a run of many processes the first
    fetches, then the others read its cache, or fetch the same commit where they have another disk.

    Args:
        repo_id: "owner/name".
        revision: branch, tag or commit, None for the default branch.
        token: of the Hub, None for the environment's, False for none.
        cache_dir: None for that of the environment.
        offline: use the cache alone. So does HF_HUB_OFFLINE.

    Raises:
        HubError: with what happened and what to do.
    """

    def of(revision: str | None, offline: bool = offline) -> Snapshot:
        return _Repository(repo_id, revision, token, None if cache_dir is None else Path(cache_dir)).snapshot(offline)

    def again(commit: str) -> Snapshot:
        try:
            return of(commit, offline=True)
        except HubError:
            if offline:
                raise
            return of(commit)

    return first_of_all_processes(lambda: of(revision), lambda snapshot: snapshot.commit, again)


@dataclasses.dataclass(frozen=True)
class _Repository:
    repo_id: str
    revision: str | None
    token: str | bool | None
    cache_dir: Path | None

    def snapshot(self, offline: bool) -> Snapshot:
        from huggingface_hub import constants

        if self.revision is not None and (".." in self.revision or not re.fullmatch(r"[\w./-]+", self.revision)):
            raise HubError(f"revision is {shown(self.revision)}, and must be a branch, a tag or a commit.")
        if offline or constants.is_offline_mode():
            return self._cached()
        if is_hash(self.revision):
            # A commit does not change: what the cache is sure to have whole needs no network.
            with contextlib.suppress(ZooError):
                return self._cached(surely=True)
        try:
            return self._online()
        except _Unreachable as error:
            try:
                snapshot = self._cached()
            except HubError as cached:
                raise HubError(f"{error.args[0]} Nor can the cache be used: {cached}") from error.__cause__
            warnings.warn(f"{error.args[0]} Taken from the cache: commit {snapshot.commit}.", stacklevel=5)
            return snapshot

    def _online(self) -> Snapshot:
        commit = self._resolve()
        files = self._list(commit)
        if "config.json" not in files:
            raise HubError(
                f"{self.repo_id} at {commit} has no config.json, which is required. Choose a repository with a model "
                "for transformers."
            )
        names = [name for name in SMALL if name in files]
        if SINGLE in files:
            names.append(SINGLE)
        elif INDEX in files:
            folder = self._get(commit, ["config.json", INDEX], files)
            shards = list(dict.fromkeys(shards_of(read_fields(folder, INDEX)).values()))
            missing = [shard for shard in shards if shard not in files]
            if missing:
                raise HubError(f"{self.repo_id} at {commit} has no {missing[0]}, which {INDEX} names.")
            names += [INDEX, *shards]
        else:
            found = sorted(name for name in files if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5")))
            others = f" It has {shown(', '.join(found))}, which is never opened." if found else ""
            raise HubError(
                f"{self.repo_id} at {commit} has no weights in safetensors: {SINGLE} or {INDEX} is required.{others} "
                "Choose a repository that has them."
            )
        folder = self._get(commit, names, files)
        return Snapshot(folder, commit, {name: files[name][0] for name in names})

    def _cached(self, surely: bool = False) -> Snapshot:
        """What the cache has, which may lack files that it does not know of unless it must `surely` be whole."""
        from huggingface_hub import errors, get_cached_repo_tree

        wanted = f"{self.repo_id} at {self.revision or 'main'}"
        advice = "Load it once with the network, without offline= and HF_HUB_OFFLINE."
        try:
            commit = self._api.resolve_revision(
                self.repo_id, revision=self.revision, cache_dir=self.cache_dir, local_files_only=True
            ).resolved
        except errors.RevisionResolutionError:
            raise HubError(f"{wanted} is not in the cache. {advice}") from None
        except errors.HFValidationError as error:
            raise self._explain(error, "name") from None
        folder = self._folder(commit)
        if folder is None:
            raise HubError(f"{wanted} is not in the cache. {advice}")
        try:
            tree = {
                file.path: file.lfs.sha256 if file.lfs else file.blob_id
                for file in get_cached_repo_tree(self.repo_id, revision=commit, cache_dir=self.cache_dir)
            }
        except errors.CachedRepoTreeNotFoundError:
            if surely:
                raise HubError(f"{wanted} may be only partly in the cache. {advice}") from None
            tree = {}
        names = [name for name in SMALL if name in tree or os.path.lexists(folder / name)]
        if os.path.lexists(folder / INDEX) and not os.path.lexists(folder / SINGLE):
            names += [INDEX, *dict.fromkeys(shards_of(read_fields(folder, INDEX)).values())]
        else:
            names.append(SINGLE)
        hashes: dict[str, str] = {}
        for name in names:
            if not (folder / name).exists():
                raise HubError(f"{wanted} is only partly in the cache: {name} is missing. {advice}")
            expected = hash_by_blob_name(folder, name) or tree.get(name)
            if expected is None or not is_hash(expected):
                raise HubError(f"{wanted}: the cache does not say what {name} must hold. {advice}")
            hashes[name] = expected
        for name, found in hashes_of(folder, hashes).items():
            if found != hashes[name]:
                raise HubError(
                    f"{wanted}: {folder / name} does not hold what the Hub has: its hash is {found}, and must be "
                    f"{hashes[name]}. Delete the file, or load it with the network, which fetches it again."
                )
        return Snapshot(folder, commit, hashes)

    @property
    def _api(self) -> Any:
        from huggingface_hub import HfApi

        return HfApi(token=self.token, library_name="shardes-zoo")

    def _resolve(self) -> str:
        """The commit of the revision, which the cache is told, so that it knows it when offline."""
        from huggingface_hub.errors import RevisionResolutionError

        api = self._api
        info = self._ask(lambda: api.model_info(self.repo_id, revision=self.revision, timeout=10), "request")
        commit = info.sha
        if not is_hash(commit):
            raise HubError(f"{self.repo_id}: the Hub says that {self.revision or 'main'} is commit {shown(commit)}.")
        where = {"revision": self.revision, "cache_dir": self.cache_dir}
        try:
            known = api.resolve_revision(self.repo_id, **where, local_files_only=True).resolved
        except RevisionResolutionError:
            known = None
        if known != commit:
            self._ask(lambda: api.resolve_revision(self.repo_id, **where), "request")
        return str(commit)

    def _list(self, commit: str) -> dict[str, tuple[str, int]]:
        """Hash and size of every file."""
        files = self._ask(lambda: list(self._api.list_repo_tree(self.repo_id, revision=commit)), "list of files")
        found = {}
        for file in files:
            if is_plain(file.path) and hasattr(file, "blob_id"):
                digest = file.lfs.sha256 if file.lfs else file.blob_id
                if not is_hash(digest) or not isinstance(file.size, int):
                    raise HubError(f"{self.repo_id}: the Hub lists {file.path} with hash {shown(digest)}.")
                found[file.path] = (digest, file.size)
        return found

    def _folder(self, commit: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache

        path = try_to_load_from_cache(self.repo_id, "config.json", cache_dir=self.cache_dir, revision=commit)
        return Path(path).parent if isinstance(path, str) else None

    def _get(self, commit: str, names: Sequence[str], files: dict[str, tuple[str, int]]) -> Path:
        """The folder, with files of these names that hold what the Hub lists."""
        folder = self._download(commit, names, files)
        expected = {name: files[name][0] for name in names}
        wrong = [name for name, found in hashes_of(folder, expected).items() if found != expected[name]]
        if wrong:
            for name in wrong:
                warnings.warn(
                    f"{folder / name} does not hold what the Hub has, and is fetched once more.", stacklevel=7
                )
                _remove(folder / name)
            self._download(commit, wrong, files)
        for name, found in hashes_of(folder, {name: expected[name] for name in wrong}).items():
            if found != expected[name]:
                has = (folder / name).stat().st_size
                _remove(folder / name)
                raise HubError(
                    f"{self.repo_id}: {name} arrived with {has} bytes of hash {found}, and must have {files[name][1]} "
                    f"of hash {expected[name]}, by the Hub's own list. It was removed. The server or a proxy alters "
                    "it: try again on another network."
                )
        return folder

    def _download(self, commit: str, names: Sequence[str], files: dict[str, tuple[str, int]]) -> Path:
        from huggingface_hub import constants, snapshot_download

        folder = self._folder(commit)
        missing = [name for name in names if folder is None or not (folder / name).exists()]
        if missing:
            needed = sum(files[name][1] for name in missing)
            place = self.cache_dir or Path(constants.HF_HUB_CACHE)
            free = shutil.disk_usage(next(p for p in (place, *place.absolute().parents) if p.exists())).free
            if needed > free:
                raise HubError(
                    f"{self.repo_id}: {needed} bytes are to be downloaded, and {place} has room for {free}. Make room, "
                    "or choose another folder by cache_dir= or HF_HOME."
                )
            try:
                snapshot_download(
                    self.repo_id,
                    revision=commit,
                    cache_dir=self.cache_dir,
                    token=self.token,
                    allow_patterns=missing,
                )
            except Exception as error:
                raise self._explain(error, f"download of {', '.join(missing)}") from error
            folder = self._folder(commit)
        absent = [name for name in names if folder is None or not (folder / name).exists()]
        if folder is None or absent:
            raise HubError(f"{self.repo_id}: {', '.join(absent)} did not arrive. Try again.")
        return folder

    def _ask(self, call: Callable[[], Any], what: str) -> Any:
        """The answer of the Hub, which the client itself would await for ever."""
        answer: list[Any] = []

        def run() -> None:
            try:
                answer.append((call(), None))
            except BaseException as error:
                answer.append((None, error))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_PATIENCE)
        value, error = answer[0] if answer else (None, TimeoutError(f"no answer in {_PATIENCE:g} seconds"))
        if error is None:
            return value
        if not isinstance(error, Exception):
            raise error
        raise self._explain(error, what) from error

    def _explain(self, error: Exception, doing: str) -> ZooError:
        from huggingface_hub import get_token

        token = bool(self.token or (self.token is None and get_token()))
        explained = explain(error, self.repo_id, self.revision, token, doing)
        return _Unreachable(*explained.args) if is_unreachable(error) else explained


class _Unreachable(HubError):
    """The Hub does not answer."""


def _remove(path: Path) -> None:
    """Remove a file of the cache and what it is a link to."""
    while True:
        target = path.parent / os.readlink(path) if path.is_symlink() else None
        path.unlink(missing_ok=True)
        if target is None:
            return
        path = target
