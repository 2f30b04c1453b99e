"""Environments of MuJoCo Playground as tasks, the extra `playground`."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from shardes.tasks.environments import check_name, imported, quiet, task
from shardes.tasks.errors import TaskError
from shardes.tasks.functional import Functional

__all__ = ["make", "names"]

_MENAGERIE = "https://github.com/deepmind/mujoco_menagerie.git"
_SECONDS_TO_ANSWER = 30
# git asks no one for a password, and gives up on a server that sends nothing.
_GIT = {"GIT_TERMINAL_PROMPT": "0", "GIT_HTTP_LOW_SPEED_LIMIT": "1000", "GIT_HTTP_LOW_SPEED_TIME": "30"}


def make(
    name: str,
    *,
    episodes: int = 1,
    episode_length: int | None = None,
    hidden: Sequence[int] = (32, 32),
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh,
    normalize: bool = False,
    observation: str = "state",
    config_overrides: Mapping[str, Any] | None = None,
) -> Functional:
    """A task of a registered environment, which runs inside the jitted generation, by MJX written in JAX.

    An episode ends when the environment is done; nothing resets it. A step whose physics are not finite ends it too,
    and counts nothing. An action is held for the `action_repeat` of the config.

    The environments of locomotion and manipulation need MuJoCo Menagerie, which Playground clones from GitHub when the
    first of them is made.

    Args:
        name: of the environment, such as "CartpoleBalance".
        episodes: of every member in a generation.
        episode_length: actions after which an episode ends, if nothing has ended it; by default as the config says.
        hidden: sizes of the policy's hidden layers.
        activation: after each of them.
        normalize: observations by their running statistics.
        observation: of several in a dict, the one that the policy sees.
        config_overrides: of the environment's config, such as {"impl": "warp"}; names of nested ones with dots.

    Raises:
        TaskError: there is no such environment, or it cannot be made.
    """
    check_name(name, names(), "Playground")
    playground = _playground()
    config = playground.registry.get_default_config(name).lock()
    overrides = {**({"impl": "jax"} if "impl" in config else {}), **(config_overrides or {})}
    try:
        config.update_from_flattened_dict(overrides)
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"{name} takes no such config_overrides: {error.args[0]}") from error
    if name not in playground.dm_control_suite.ALL_ENVS:
        _check_assets(name)
    try:
        with quiet(), mock.patch.dict(os.environ, _GIT):
            environment = playground.registry.load(name, config=config)
    except Exception as error:
        raise TaskError(f"{name} cannot be made: {type(error).__name__}: {error}") from error
    repeat = config.get("action_repeat", 1)
    return task(
        environment,
        name=name,
        physics=lambda state: (state.data.qpos, state.data.qvel),
        drawn=lambda state: state,
        observation=observation,
        repeat=repeat,
        episode_length=math.ceil(config.episode_length / repeat) if episode_length is None else episode_length,
        episodes=episodes,
        hidden=hidden,
        activation=activation,
        normalize=normalize,
    )


def names() -> list[str]:
    """Names of the environments. Raises TaskError when Playground is not installed."""
    playground = _playground()
    suites = (playground.dm_control_suite, playground.locomotion, playground.manipulation)
    return [name for suite in suites for name in suite.ALL_ENVS]


def _playground() -> Any:
    return imported("mujoco_playground", "playground")


def _check_assets(name: str) -> None:
    """Raise a TaskError unless the files of the robots are here or can be cloned; Playground would wait for ever."""
    environments = imported("mujoco_playground._src.mjx_env", "playground")
    folder = environments.MENAGERIE_PATH
    if folder.exists():
        return
    try:
        subprocess.run(
            ["git", "ls-remote", _MENAGERIE, "HEAD"],
            check=True,
            timeout=_SECONDS_TO_ANSWER,
            env={**os.environ, **_GIT},
            stdin=subprocess.DEVNULL,
            # What git has started may outlive it, and nothing is to wait for that.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TaskError(
            f"{name} needs the files of MuJoCo Menagerie, and git cannot get them from {_MENAGERIE} here. Where it "
            f"can, run\n  git clone {_MENAGERIE} mujoco_menagerie\n"
            f"  git -C mujoco_menagerie checkout {environments.MENAGERIE_COMMIT_SHA}\n"
            f"and move the folder to {folder}"
        ) from error
