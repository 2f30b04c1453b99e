"""Sending a model to a repository of the Hub, through huggingface_hub alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from shardes.zoo.errors import HubError
from shardes.zoo.model import Model
from shardes.zoo.saving import save

__all__ = ["push"]

# Seconds that the Hub has to answer, and that an upload may stand still: hashes are computed, and checked, in silence.
_PATIENCE = 60.0
_PATIENCE_UPLOAD = 600.0


def push(
    model: Model,
    params: Any,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    token: str | bool | None = None,
    max_shard_size: int = 5 * 10**9,
) -> str:
    """Save a model and upload it as one commit, creating the repository if there is none.

    Weights of the repository that are not among those uploaded are deleted in the same commit, since a loader could
    take them for the model's.

    Args:
        model: what the params are of.
        params: as for `shardes.zoo.save`.
        repo_id: "owner/name".
        private: whether a repository that is created is private; by default as the account says.
        revision: branch, created if there is none; by default the main one.
        commit_message: by default one that says what was uploaded.
        token: of the Hub, with the right to write; by default the environment's.
        max_shard_size: as for `shardes.zoo.save`.

    Returns:
        The commit.

    Raises:
        HubError: the Hub cannot be reached or refuses.
        ZooError: the params are not those of the model.
    """
    from huggingface_hub import constants

    from shardes.zoo.hub.client import Client, Failure, resolve_token
    from shardes.zoo.hub.errors import explain

    if constants.is_offline_mode():
        raise HubError(f"{repo_id} cannot be pushed to with HF_HUB_OFFLINE. Unset it.")
    token = resolve_token(token)
    with tempfile.TemporaryDirectory(prefix="shardes-push-") as temporary:
        folder = save(model, params, Path(temporary) / "snapshot", max_shard_size=max_shard_size)
        doing = "creation of the repository"
        try:
            with Client() as client:
                client.call("create", token, _PATIENCE, repo_id=repo_id, private=private)
                if revision is not None:
                    doing = f"creation of {revision}"
                    client.call("branch", token, _PATIENCE, repo_id=repo_id, revision=revision)
                doing = "upload"
                commit = client.call(
                    "upload",
                    token,
                    _PATIENCE_UPLOAD,
                    repo_id=repo_id,
                    folder_path=str(folder),
                    revision=revision,
                    commit_message=commit_message or f"Upload {model.architecture.model_type} model with shardes-zoo",
                    delete_patterns=["*.safetensors", "*.safetensors.index.json"],
                )
        except Failure as failure:
            raise explain(failure.causes, repo_id, revision, bool(token), doing) from failure
    return str(commit)
