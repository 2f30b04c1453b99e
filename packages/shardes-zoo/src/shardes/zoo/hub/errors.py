"""What went wrong with the Hub, in words that say what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from shardes.zoo.errors import HubError

__all__ = ["explain", "is_unreachable"]


def is_unreachable(error: BaseException) -> bool:
    """Whether the Hub did not answer, or answered that it is out of order."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            return bool(cause.response.status_code >= 500)
        # The client's own errors of transport, by name: which library it sends requests with is its affair.
        names = {kind.__name__ for kind in type(cause).__mro__}
        if "TransportError" in names or isinstance(cause, OfflineModeIsEnabled | TimeoutError):
            return True
    return False


def explain(error: BaseException, repo_id: str, revision: str | None, token: bool, doing: str) -> HubError:
    """The error of the client, or of the disk, as a HubError.

    Args:
        error: what was raised.
        repo_id: the repository.
        revision: what was asked for.
        token: whether a token was sent.
        doing: what failed, such as "download of config.json".
    """
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{repo_id}"
    how = "pass token=, set HF_TOKEN, or run `hf auth login`"
    for cause in _causes(error):
        if isinstance(cause, errors.GatedRepoError):
            then = "with an account that has access" if token else f"then {how}"
            return HubError(f"{repo_id} is gated: its files need an accepted licence. Accept it on {page}, {then}.")
        if isinstance(cause, errors.RevisionNotFoundError):
            return HubError(f"{repo_id} has no revision {revision}. Choose a branch, tag or commit listed on {page}.")
        if isinstance(cause, errors.RepositoryNotFoundError):
            if token:
                return HubError(f"{repo_id} does not exist, or the token has no access to it. Check both on {page}.")
            return HubError(f"{repo_id} does not exist, or is private. Check its name; if it is private, {how}.")
        if isinstance(cause, errors.DisabledRepoError):
            return HubError(f"{repo_id} has been disabled on the Hub. Choose another repository.")
        if isinstance(cause, errors.HFValidationError):
            return HubError(f"{repo_id} is not the id of a repository, which is owner/name.")
        if isinstance(cause, errors.HfHubHTTPError) and cause.response.status_code in (401, 403):
            return HubError(
                f"{repo_id}: the Hub refused the {doing}: {_line(cause.server_message or cause)}. The token is not "
                f"valid or does not allow this; {how}."
            )
        if isinstance(cause, errors.HfHubHTTPError) and cause.response.status_code == 429:
            return HubError(f"{repo_id}: the Hub has had too many requests. Wait some minutes, or {how}.")
        if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in str(cause):
            return HubError(
                f"{repo_id}: the disk is full ({doing}). Make room in {constants.HF_HUB_CACHE}, or choose another "
                "folder by cache_dir= or HF_HOME."
            )
        if isinstance(cause, PermissionError):
            return HubError(
                f"{repo_id}: {cause.filename} may not be written ({doing}). Choose another folder by cache_dir= or "
                "HF_HOME."
            )
        if isinstance(cause, OSError) and "Consistency check failed" in str(cause):
            return HubError(
                f"{repo_id}: the {doing} was cut short: {_line(cause).removeprefix('Consistency check failed: ')} "
                "Nothing of it is kept. Try again."
            )
    if is_unreachable(error):
        return HubError(
            f"{repo_id}: the Hub at {constants.ENDPOINT} does not answer the {doing}: {_line(error)}. Check the "
            "network and HF_ENDPOINT, and try again."
        )
    return HubError(f"{repo_id}: the {doing} failed: {type(error).__name__}: {_line(error)}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _line(error: object) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".") if len(lines) == 1 else f"{lines[0][:300]}"
