"""From the id of an environment to a task."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
from gymnasium.envs.functional_jax_env import FunctionalJaxEnv

from shardes.tasks.errors import TaskError
from shardes.tasks.functional import Functional
from shardes.tasks.gymnasium.native import is_native
from shardes.tasks.gymnasium.pure import pure
from shardes.tasks.gymnasium.spaces import head, observation_size
from shardes.tasks.gymnasium.stepping import make_one
from shardes.tasks.gymnasium.task import GymnasiumTask
from shardes.tasks.names import nearest
from shardes.tasks.policy import MLP
from shardes.tasks.task import Spec

__all__ = ["make", "names"]

_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "phys2d": "phys2d", "tabular": "phys2d"}
"""What brings the dependencies of a module of gymnasium.envs."""


def make(
    id: str,
    *,
    episodes: int = 1,
    vectorization: str | None = None,
    hidden: Sequence[int] = (32, 32),
    activation: Callable[[jax.Array], jax.Array] = jnp.tanh,
    normalize: bool = False,
    episode_length: int | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> GymnasiumTask | Functional:
    """A task of a registered environment, or of "module:id" after importing the module.

    An episode ends when the environment terminates or truncates it, and counts the rewards until then. All members
    begin their episodes alike. Observations are flat, choices one-hot, and float32. Environments that are pure
    functions of JAX run inside the jitted generation, unless they are wrapped or a `vectorization` is given.

    `n` times `episodes` environments are made once and kept, in each process those of its own members: their memory is
    this many times that of one. A strategy that keeps its noise (`LowRank`, `IIDGaussian`) is faster here than
    `SeedRegenerated`, which draws it again in every step.

    Args:
        id: of the environment, such as "CartPole-v1".
        episodes: of every member in a generation.
        vectorization: who steps the environments. "native": Gymnasium's own vector environment, of CartPole. "sync":
            this process. "async": worker processes, one a CPU, which no fork makes, so that environments and wrappers
            are pickled; not on Windows. By default native where there is, else async for 32 environments and more on
            more than one CPU, else sync. The fitness is the same.
        hidden: sizes of the policy's hidden layers.
        activation: after each of them.
        normalize: observations by their running statistics.
        episode_length: steps after which an episode ends, if nothing has ended it. Needed where the environment has no
            limit of its own.
        wrappers: functions from an environment to an environment, applied in order.
        options: of the environment, as in `gymnasium.make`.

    Raises:
        TaskError: there is no such environment, it cannot be made, its spaces are not of numbers, or it has no limit.
    """
    registered = _find(id)
    probe = _probe(registered, options, wrappers)
    try:
        length = _length(id, probe.spec.max_episode_steps, episode_length)
        is_pure = isinstance(probe.unwrapped, FunctionalJaxEnv) and not wrappers
        if is_pure and vectorization is None:
            return pure(
                id,
                probe.unwrapped,
                episode_length=length,
                episodes=episodes,
                hidden=hidden,
                activation=activation,
                normalize=normalize,
            )
        acting = head(probe.action_space)
        size = observation_size(probe.observation_space)
    finally:
        probe.close()
    native = is_native(registered) and not wrappers
    if vectorization not in (None, "native", "sync", "async") or (vectorization == "native" and not native):
        raise TaskError(
            f"vectorization is {vectorization!r}, and must be 'sync' or 'async', or 'native' for CartPole without "
            "wrappers."
        )
    if vectorization is None and native:
        vectorization = "native"
    policy = MLP(size, acting, hidden=hidden, activation=activation, normalize=normalize)
    return GymnasiumTask(
        Spec(id, length, size, acting.size),
        policy,
        episodes,
        registered,
        options,
        wrappers,
        probe.action_space,
        probe.metadata,
        vectorization,
    )


def _find(id: str) -> Any:
    """What is registered under an id."""
    module, _, name = id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise TaskError(f"{module} of {id!r} cannot be imported: {error}") from error
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    near = nearest(name, gymnasium.registry)
    advice = f"Did you mean {near!r}?" if near else f"If a package registers it, name it 'package:{name}'."
    raise TaskError(f"Gymnasium has no environment {name!r}. {advice}")


def _probe(registered: Any, options: dict[str, Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """An environment, for what it says of itself."""
    try:
        return make_one(registered, options, wrappers)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        entry = str(registered.entry_point)
        extra = _EXTRAS.get(entry.removeprefix("gymnasium.envs.").split(".")[0])
        own = extra is not None and entry.startswith("gymnasium.envs.")
        advice = f"pip install 'shardes-tasks[{extra}]'\n" if own else ""
        raise TaskError(f"{registered.id} needs more: {advice}{type(error).__name__}: {error}") from error
    except Exception as error:
        raise TaskError(f"{registered.id} cannot be made: {type(error).__name__}: {error}") from error


def _length(id: str, own: int | None, given: int | None) -> int:
    if own is None and given is None:
        raise TaskError(f"{id} has no limit of steps of its own. Give episode_length, after which its episodes end.")
    return min(length for length in (own, given) if length is not None)


def names() -> list[str]:
    """Ids of the environments that are registered, the latest version of each."""
    latest = {(spec.namespace, spec.name): spec for spec in sorted(gymnasium.registry.values(), key=_version)}
    return sorted(spec.id for spec in latest.values())


def _version(spec: Any) -> int:
    return -1 if spec.version is None else int(spec.version)
