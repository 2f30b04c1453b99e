"""The folder of a run: what it is made of, its log, its checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

import shardes
from shardes.callbacks import Checkpoint
from shardes.tasks import suites
from shardes.tasks.errors import TaskError
from shardes.tasks.task import Task

__all__ = ["Config", "Run", "read_log"]

_LARGEST = 2**20


@dataclasses.dataclass(frozen=True)
class Config:
    """What a run is made of; config.json holds these fields.

    Attributes:
        task: such as "gymnasium:CartPole-v1".
        strategy: "lowrank", "seed" or "iid", each with mirrored pairs.
        rank: of the noise under "lowrank".
        n: members a generation.
        sigma: scale of the perturbation.
        lr: learning rate.
        optimizer: "sgd" or "adam".
        episodes: of every member in a generation.
        episode_length: steps of an episode at most; None as the task has it.
        hidden: sizes of the policy's hidden layers.
        normalize: observations by their running statistics.
        seed: of params, noise and episodes.
    """

    task: str
    strategy: str = "lowrank"
    rank: int = 1
    n: int = 128
    sigma: float = 0.1
    lr: float = 0.1
    optimizer: str = "adam"
    episodes: int = 1
    episode_length: int | None = None
    hidden: tuple[int, ...] = (32, 32)
    normalize: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr is {self.lr}, and must be a positive number")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed is {self.seed}, and must be from 0 to 2**31 - 1")
        for name, known in (("strategy", _STRATEGIES), ("optimizer", _OPTIMIZERS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}, and must be one of {', '.join(known)}")

    @classmethod
    def read(cls, path: Path) -> Config:
        """The config in a file. Raises TaskError when it holds none."""
        try:
            if path.stat().st_size > _LARGEST:
                raise ValueError(f"it has more than {_LARGEST} bytes")
            fields = json.loads(path.read_text(encoding="utf-8"))
            for name, kind in _KINDS.items():
                if not isinstance(fields[name], kind) or (isinstance(fields[name], bool) and kind is not bool):
                    raise ValueError(f"{name} is {fields[name]!r}")
            if len(fields) != len(_KINDS):
                raise ValueError(f"it has other fields than {', '.join(_KINDS)}")
            if not all(isinstance(size, int) for size in fields["hidden"]):
                raise ValueError(f"hidden is {fields['hidden']!r}")
            return cls(**{**fields, "hidden": tuple(fields["hidden"])})
        except OSError as error:
            raise TaskError(f"{path} cannot be read: {error.strerror}. Give the folder of a run.") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TaskError(f"{path} is no config of a run: {error}.") from error

    def write(self, path: Path) -> None:
        """Write it; the file is there whole or not at all."""
        aside = path.with_suffix(".partial")
        aside.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        os.replace(aside, path)

    def make_task(self) -> Task:
        """The task."""
        options: dict[str, Any] = {"episodes": self.episodes, "hidden": self.hidden, "normalize": self.normalize}
        if self.episode_length is not None:
            options["episode_length"] = self.episode_length
        return suites.make(self.task, **options)

    def make_es(self, mesh: Any = None) -> shardes.ShardedES:
        """The evolution strategy."""
        inner = _STRATEGIES[self.strategy](self)
        descent: dict[str, Any] = {"lr": self.lr}
        if self.optimizer == "adam":
            import optax

            descent = {"optimizer": optax.adam(self.lr)}
        return shardes.ShardedES(shardes.Mirrored(inner), self.n, sigma=self.sigma, mesh=mesh, **descent)

    def begin(self, es: shardes.ShardedES, task: Task) -> shardes.ESState:
        """The first state."""
        params, run = jax.random.split(jax.random.key(self.seed))
        return es.init(run, task.init(params))


_STRATEGIES: dict[str, Callable[[Config], shardes.Strategy]] = {
    "lowrank": lambda config: shardes.LowRank(r=config.rank),
    "seed": lambda _: shardes.SeedRegenerated(),
    "iid": lambda _: shardes.IIDGaussian(),
}
_OPTIMIZERS = ("sgd", "adam")
_KINDS: dict[str, Any] = {
    "task": str,
    "strategy": str,
    "rank": int,
    "n": int,
    "sigma": int | float,
    "lr": int | float,
    "optimizer": str,
    "episodes": int,
    "episode_length": int | None,
    "hidden": list,
    "normalize": bool,
    "seed": int,
}


class Run:
    """A folder with config.json, log.jsonl, checkpoints and curve.png."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    @property
    def config(self) -> Path:
        """What the run is made of."""
        return self.folder / "config.json"

    @property
    def log(self) -> Path:
        """A line a generation."""
        return self.folder / "log.jsonl"

    @property
    def curve(self) -> Path:
        """The learning curve."""
        return self.folder / "curve.png"

    def checkpoint(self, every: int = 10) -> Checkpoint:
        """Of the run's state."""
        return Checkpoint(self.folder / "checkpoints", every=every, keep_last=2, keep_best=1)

    def trained(self) -> tuple[Task, Any]:
        """The task and the params of the latest checkpoint.

        Raises:
            TaskError: there is none.
        """
        config = Config.read(self.config)
        task = config.make_task()
        es = config.make_es(shardes.make_mesh(jax.devices()[:1]))
        state = self.checkpoint().restore(es, config.begin(es, task))
        if not int(state.generation):
            raise TaskError(f"{self.folder} has no checkpoint. Train it first.")
        return task, state.params


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's log. Raises TaskError when it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        for line in lines:
            int(line["generation"])
            if missing := {"mean", "best", "std"} - line.keys():
                raise ValueError(f"a line has no {min(missing)}")
        return lines
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror}. Give the folder of a run.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TaskError(f"{path} is no log of a run: {error}.") from error
