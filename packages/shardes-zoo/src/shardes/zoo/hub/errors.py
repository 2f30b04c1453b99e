"""What went wrong with the Hub, in words that say what to do."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Sequence
from typing import Any

from shardes.zoo.errors import HubError

__all__ = ["Unreachable", "explain", "warn"]

_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG)
_ZOO = os.path.dirname(os.path.dirname(__file__))


class Unreachable(HubError):
    """The Hub does not answer, or answers that it is out of order."""


def explain(
    causes: Sequence[dict[str, Any]], repo_id: str, revision: str | None, token: bool, doing: str, cache: str = ""
) -> HubError:
    """The error of the client, or of the disk, as a HubError.

    Args:
        causes: the error and what it came from, by `shardes.zoo.hub.worker.causes`.
        repo_id: the repository.
        revision: what was asked for.
        token: whether a token was sent.
        doing: what failed, such as "download of config.json".
        cache: where files are written, by default the Hub's cache.
    """
    from huggingface_hub import constants

    page = f"{constants.ENDPOINT}/{repo_id}"
    how = "pass token=, set HF_TOKEN, or run `hf auth login`"
    room = f"in {cache or constants.HF_HUB_CACHE}, or choose another folder by cache_dir= or HF_HOME"
    for cause in causes:
        kinds, text, status = cause["kinds"], cause["text"], cause["status"]
        if "Refused" in kinds:
            kind = Unreachable if status == 503 else HubError
            what = f"{repo_id}: the Hub at {constants.ENDPOINT} {text} ({doing})."
            return kind(f"{what} {'Try again then' if status else 'Nothing of it is kept. Try another network'}.")
        if "GatedRepoError" in kinds:
            then = "with an account that has access" if token else f"then {how}"
            return HubError(f"{repo_id} is gated: its files need an accepted licence. Accept it on {page}, {then}.")
        if "RevisionNotFoundError" in kinds:
            return HubError(f"{repo_id} has no revision {revision}. Choose a branch, tag or commit listed on {page}.")
        if "RepositoryNotFoundError" in kinds:
            if token:
                return HubError(f"{repo_id} does not exist, or the token has no access to it. Check both on {page}.")
            return HubError(f"{repo_id} does not exist, or is private. Check its name; if it is private, {how}.")
        if "DisabledRepoError" in kinds:
            return HubError(f"{repo_id} has been disabled on the Hub. Choose another repository.")
        if "HFValidationError" in kinds:
            return HubError(f"{repo_id} is not the id of a repository, which is owner/name.")
        if "HfHubHTTPError" in kinds and status in (401, 403):
            return HubError(
                f"{repo_id}: the Hub refused the {doing}: {_line(cause['said'] or text)}. The token is not valid or "
                f"does not allow this; {how}."
            )
        if "HfHubHTTPError" in kinds and status == 429:
            return HubError(f"{repo_id}: the Hub has had too many requests. Wait some minutes, or {how}.")
        if cause["errno"] in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in text:
            return HubError(f"{repo_id}: the disk is full ({doing}). Make room {room}.")
        if cause["errno"] in _NOT_WRITABLE and cause["filename"]:
            why = os.strerror(cause["errno"])
            return HubError(f"{repo_id}: {cause['filename']} cannot be written ({doing}): {why}. Allow it {room}.")
        if "OSError" in kinds and "Consistency check failed" in text:
            return HubError(
                f"{repo_id}: the {doing} was cut short: {_line(text).removeprefix('Consistency check failed: ')} "
                "Nothing of it is kept. Try again."
            )
    if any(_is_unreachable(cause) for cause in causes):
        return Unreachable(
            f"{repo_id}: the Hub at {constants.ENDPOINT} does not answer the {doing}: {_line(causes[0]['text'])}. "
            "Check the network and HF_ENDPOINT, and try again."
        )
    return HubError(f"{repo_id}: the {doing} failed: {causes[0]['kinds'][0]}: {_line(causes[0]['text'])}")


def warn(message: str) -> None:
    """Warn of a line outside of the zoo."""
    warnings.warn(message, skip_file_prefixes=(_ZOO,))


def _is_unreachable(cause: dict[str, Any]) -> bool:
    # TransportError is of the library that the client sends requests with.
    kinds = {"TransportError", "TimeoutError", "OfflineModeIsEnabled"}
    return (cause["status"] or 0) >= 500 or not kinds.isdisjoint(cause["kinds"])


def _line(text: str) -> str:
    lines = text.strip().splitlines() or ["it does not say why"]
    return lines[0][:300].rstrip(".") if len(lines) == 1 else f"{lines[0][:300]}"
