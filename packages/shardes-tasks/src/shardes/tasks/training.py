"""A run in its folder, from the first generation or from where it ended."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import jax

import shardes
from shardes.callbacks import JSONLLog, Progress
from shardes.tasks.errors import TaskError
from shardes.tasks.plotting import plot
from shardes.tasks.runs import Config, Run, read_log

__all__ = ["train"]


def train(
    config: Config,
    folder: str | os.PathLike[str],
    generations: int,
    devices: int | None = None,
    *,
    resume: bool = False,
) -> str:
    """Train until `generations` are done, and leave config.json, log.jsonl, checkpoints and curve.png in the folder.

    Args:
        config: what the run is made of.
        folder: a new or an empty one; that of the run where it is to be resumed.
        generations: at which to end.
        devices: how many to use; all by default.
        resume: go on with the run in the folder, of the same config.

    Returns:
        Why it ended, as `shardes.History.ended` says.

    Raises:
        TaskError: the folder is not one of these, or the task cannot be made.
        CheckpointError: the checkpoint cannot be read.
    """
    run = Run(folder)
    if resume:
        _check_same(config, Config.read(run.config), run.folder)
    elif run.folder.exists() and any(run.folder.iterdir()):
        raise TaskError(f"{run.folder} is not empty. Choose another folder, or go on with its run by --resume.")
    if devices is not None and devices > jax.device_count():
        raise TaskError(f"{devices} devices are wanted, and there are {jax.device_count()}.")
    task = config.make_task()
    es = config.make_es(shardes.make_mesh(jax.devices()[:devices]))
    state = config.begin(es, task)
    checkpoint = run.checkpoint()
    if jax.process_index() == 0:
        run.folder.mkdir(parents=True, exist_ok=True)
        config.write(run.config)
    state = checkpoint.restore(es, state)
    if int(state.generation) >= generations:
        print(f"{run.folder} has done {int(state.generation)} generations.", file=sys.stderr)
    state, history = shardes.fit(
        es, state, task, generations=generations, callbacks=[JSONLLog(run.log), checkpoint, Progress()]
    )
    if jax.process_index() == 0:
        plot({run.folder.name: read_log(run.log)}, run.curve, config.task)
    return history.ended


def _check_same(given: Config, held: Config, folder: Path) -> None:
    for field in dataclasses.fields(Config):
        new, old = getattr(given, field.name), getattr(held, field.name)
        if new != old:
            raise TaskError(f"{folder} holds a run with {field.name} {old}, and {new} is given. Give the same again.")
