"""Sending a model to a repository of the Hub, through huggingface_hub alone."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from shardes.zoo.errors import HubError
from shardes.zoo.model import Model
from shardes.zoo.saving import save

__all__ = ["push"]


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
    from huggingface_hub import HfApi, get_token

    from shardes.zoo.hub.errors import explain

    api = HfApi(token=token, library_name="shardes-zoo")
    with tempfile.TemporaryDirectory(prefix="shardes-push-") as temporary:
        folder = save(model, params, Path(temporary) / "snapshot", max_shard_size=max_shard_size)
        doing = "creation of the repository"
        try:
            api.create_repo(repo_id, private=private, exist_ok=True)
            if revision is not None:
                doing = f"creation of {revision}"
                api.create_branch(repo_id, branch=revision, exist_ok=True)
            doing = "upload"
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                revision=revision,
                commit_message=commit_message or f"Upload {model.architecture.model_type} model with shardes-zoo",
                delete_patterns=["*.safetensors", "*.safetensors.index.json"],
            )
        except HubError:
            raise
        except Exception as error:
            sent = bool(token or (token is None and get_token()))
            raise explain(error, repo_id, revision, sent, doing) from error
    return str(commit.oid)
