"""Snapshots of the Hub: from the cache where that is asked for or all there is, else from the network."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from shardes.zoo.errors import HubError, ZooError
from shardes.zoo.hub.cache import Snapshot, find_cached
from shardes.zoo.hub.client import Client, resolve_token
from shardes.zoo.hub.downloading import Download
from shardes.zoo.hub.errors import Unreachable, warn
from shardes.zoo.hub.processes import first_of_all_processes
from shardes.zoo.snapshot.files import shown
from shardes.zoo.snapshot.hashes import is_hash

__all__ = ["fetch"]


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
    # The client expands a ~, and what looks into its cache does not.
    cache = None if cache_dir is None else Path(os.path.abspath(os.path.expanduser(cache_dir)))

    def again(commit: str) -> Snapshot:
        try:
            return snapshot(commit, offline=True)
        except HubError:
            if offline:
                raise
            return snapshot(commit, offline)

    def first() -> Snapshot:
        return snapshot(revision, offline)

    def snapshot(revision: str | None, offline: bool) -> Snapshot:
        with _disk_errors(repo_id):
            return _snapshot(repo_id, revision, token, cache, offline)

    return first_of_all_processes(first, lambda snapshot: snapshot.commit, again)


@contextlib.contextmanager
def _disk_errors(repo_id: str) -> Iterator[None]:
    """What the disk refuses, as a HubError."""
    try:
        yield
    except OSError as error:
        raise HubError(
            f"{repo_id}: {error.filename or 'the cache'} cannot be used: {error.strerror or error}. See to its "
            "permissions, or choose another folder by cache_dir= or HF_HOME."
        ) from error


def _snapshot(
    repo_id: str, revision: str | None, token: str | bool | None, cache: Path | None, offline: bool
) -> Snapshot:
    from huggingface_hub import constants

    if revision is not None and not _may_be_revision(revision):
        raise HubError(f"revision is {shown(revision)}, and must be a branch, a tag or a commit.")
    if offline or constants.is_offline_mode():
        return find_cached(repo_id, revision, cache)
    if is_hash(revision):
        # A commit does not change: what the cache is sure to have whole needs no network.
        with contextlib.suppress(ZooError):
            return find_cached(repo_id, revision, cache, surely=True)
    token = resolve_token(token)
    try:
        with Client() as client:
            return Download(client, repo_id, revision, token, cache or Path(constants.HF_HUB_CACHE)).snapshot()
    except Unreachable as error:
        try:
            snapshot = find_cached(repo_id, revision, cache)
        except HubError as cached:
            raise Unreachable(f"{error} Nor can the cache be used: {cached}") from error.__cause__
        warn(f"{error} Taken from the cache: commit {snapshot.commit}.")
        return snapshot


def _may_be_revision(revision: object) -> bool:
    # Names of files are made of it.
    return (
        isinstance(revision, str)
        and re.fullmatch(r"\w[\w./-]*", revision) is not None
        and ".." not in revision
        and len(revision.encode()) <= 200
    )
