"""Bringing a snapshot into the cache, through huggingface_hub alone: only the files needed, every one verified."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shardes.zoo.errors import HubError
from shardes.zoo.hub.cache import Snapshot, folder_of, remove, unfinished
from shardes.zoo.hub.client import Client, Failure
from shardes.zoo.hub.errors import explain, warn
from shardes.zoo.snapshot.files import is_plain, read_fields, shown
from shardes.zoo.snapshot.hashes import hashes_of, is_hash
from shardes.zoo.snapshot.weights import INDEX, SINGLE, SMALL, shards_of

__all__ = ["Download"]

# Seconds that the Hub has to answer what is asked about a repository, and for some bytes of a file.
_PATIENCE = 60.0


@dataclasses.dataclass(frozen=True)
class Download:
    """What brings one snapshot into the cache.

    Attributes:
        client: the process that talks with the Hub.
        repo_id: "owner/name".
        revision: branch, tag or commit, None for the default branch.
        token: by `resolve_token`.
        cache: the folder.
    """

    client: Client
    repo_id: str
    revision: str | None
    token: str | bool | None
    cache: Path

    def snapshot(self) -> Snapshot:
        """Fetch what is missing. Raises HubError."""
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

    def _resolve(self) -> str:
        """The commit of the revision, which the cache is told, so that it knows it when offline."""
        from huggingface_hub import HfApi, errors

        commit = self._call("commit", "request", revision=self.revision)
        if not is_hash(commit):
            raise HubError(f"{self.repo_id}: the Hub says that {self.revision or 'main'} is commit {shown(commit)}.")
        where: dict[str, Any] = {"revision": self.revision, "cache_dir": str(self.cache)}
        try:
            known = HfApi().resolve_revision(self.repo_id, **where, local_files_only=True).resolved
        except errors.RevisionResolutionError:
            known = None
        if known != commit:
            self._call("remember", "request", **where)
        return str(commit)

    def _list(self, commit: str) -> dict[str, tuple[str, int]]:
        """Hash and size of every file."""
        found = {}
        for name, digest, size in self._call("files", "list of files", commit=commit):
            if is_plain(name):
                if not is_hash(digest):
                    raise HubError(f"{self.repo_id}: the Hub lists {name} with hash {shown(digest)}.")
                if type(size) is not int or size < 0:
                    raise HubError(f"{self.repo_id}: the Hub lists {name} with size {shown(size)}, which is none.")
                found[name] = (digest, size)
        return found

    def _get(self, commit: str, names: Sequence[str], files: dict[str, tuple[str, int]]) -> Path:
        """The folder, with files of these names that hold what the Hub lists."""
        folder = self._fetch(commit, names, files)
        expected = {name: files[name][0] for name in names}
        wrong = [name for name, found in hashes_of(folder, expected).items() if found != expected[name]]
        if wrong:
            for name in wrong:
                warn(f"{folder / name} does not hold what the Hub has, and is fetched once more.")
                remove(folder / name)
            self._fetch(commit, wrong, files)
        for name, found in hashes_of(folder, {name: expected[name] for name in wrong}).items():
            if found != expected[name]:
                has = (folder / name).stat().st_size
                remove(folder / name)
                raise HubError(
                    f"{self.repo_id}: {name} arrived with {has} bytes of hash {found}, and must have {files[name][1]} "
                    f"of hash {expected[name]}, by the Hub's own list. It was removed. The server or a proxy alters "
                    "it: try again on another network."
                )
        return folder

    def _fetch(self, commit: str, names: Sequence[str], files: dict[str, tuple[str, int]]) -> Path:
        folder = folder_of(self.repo_id, commit, self.cache)
        missing = [name for name in names if folder is None or not (folder / name).exists()]
        if missing:
            needed = sum(files[name][1] for name in missing)
            existing = next(path for path in (self.cache, *self.cache.absolute().parents) if path.exists())
            free = shutil.disk_usage(existing).free
            if needed > free:
                raise HubError(
                    f"{self.repo_id}: {needed} bytes are to be downloaded, and {self.cache} has room for {free}. Make "
                    "room, or choose another folder by cache_dir= or HF_HOME."
                )
            self._call(
                "download",
                f"download of {', '.join(missing)}",
                lambda: unfinished(self.repo_id, self.cache),
                commit=commit,
                cache_dir=str(self.cache),
                names=missing,
                size=needed,
            )
            folder = folder_of(self.repo_id, commit, self.cache)
        absent = [name for name in names if folder is None or not (folder / name).exists()]
        if folder is None or absent:
            raise HubError(f"{self.repo_id}: {', '.join(absent)} did not arrive. Try again.")
        return folder

    def _call(self, operation: str, doing: str, measure: Callable[[], object] = lambda: None, **arguments: Any) -> Any:
        try:
            return self.client.call(operation, self.token, _PATIENCE, measure, repo_id=self.repo_id, **arguments)
        except Failure as failure:
            sent = bool(self.token)
            raise explain(failure.causes, self.repo_id, self.revision, sent, doing, str(self.cache)) from failure
