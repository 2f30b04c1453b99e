"""What the command `shardes-train` can do. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.console
import rich.markup
import typer

from shardes.tasks.errors import TaskError

__all__ = ["run"]

app = typer.Typer(
    help="Train policies by evolution strategies. `shardes-train gymnasium:CartPole-v1` trains one; the commands below "
    "list tasks, and evaluate, draw and plot what was trained.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Folder = Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]


def run(arguments: Sequence[str]) -> None:
    """Run the command line; what is no command is a task to train."""
    commands = {command.name for command in app.registered_commands}
    if arguments and arguments[0] not in {*commands, "--help"}:
        arguments = ["train", *arguments]
    app(list(arguments))


@app.command("train")
def train(
    task: Annotated[str, typer.Argument(help="SUITE:NAME, such as playground:CartpoleBalance.", show_default=False)],
    strategy: Annotated[Literal["lowrank", "seed", "iid"], typer.Option(help="The perturbation.")] = "lowrank",
    rank: Annotated[int, typer.Option(min=1, help="Of the noise under lowrank.")] = 1,
    n: Annotated[int, typer.Option("-n", min=2, help="Members a generation, an even number.")] = 128,
    sigma: Annotated[float, typer.Option(help="Scale of the perturbation.")] = 0.1,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.1,
    optimizer: Annotated[Literal["sgd", "adam"], typer.Option(help="What descends.")] = "adam",
    generations: Annotated[int, typer.Option(min=1, help="Number at which to end.")] = 100,
    episodes: Annotated[int, typer.Option(min=1, help="Of every member in a generation.")] = 1,
    episode_length: Annotated[int | None, typer.Option(min=1, help="Steps at most; by default the task's own.")] = None,
    hidden: Annotated[str, typer.Option(help="Sizes of the policy's hidden layers.")] = "32,32",
    normalize: Annotated[bool, typer.Option("--normalize", help="Normalise observations.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of params, noise and episodes.")] = 0,
    devices: Annotated[int | None, typer.Option(min=1, help="How many; simulated on a CPU. By default all.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default a new one under runs.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Train a policy on a task."""
    _simulate(devices)
    from shardes.tasks import training
    from shardes.tasks.runs import Config

    if not re.fullmatch(r"(\d+(,\d+)*)?", hidden):
        raise typer.BadParameter(f"{hidden!r} is not numbers with commas between.", param_hint="--hidden")
    if n % 2:
        raise typer.BadParameter(f"{n} is not even, and members come in mirrored pairs.", param_hint="-n")
    if resume and out is None:
        raise typer.BadParameter("it needs the folder of the run, --out.", param_hint="--resume")
    with _errors():
        config = Config(
            task=task,
            strategy=strategy,
            rank=rank,
            n=n,
            sigma=sigma,
            lr=lr,
            optimizer=optimizer,
            episodes=episodes,
            episode_length=episode_length,
            hidden=tuple(int(size) for size in hidden.split(",") if size),
            normalize=normalize,
            seed=seed,
        )
        folder = _new_folder(task) if out is None else out
        ended = training.train(config, folder, generations, devices, resume=resume)
        typer.echo(folder)
    if ended == "SIGINT":
        raise typer.Exit(130)


@app.command("list")
def list_tasks(
    suite: Annotated[str | None, typer.Argument(help="A suite; all by default.")] = None, as_json: AsJson = False
) -> None:
    """List the tasks of the suites that are installed."""
    from shardes.tasks import suites

    with _errors():
        found = suites.names(suite)
    if not any(found.values()):
        typer.echo("No suite is installed: pip install 'shardes-tasks[gymnasium]', or playground, or brax.", err=True)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for name, tasks in found.items():
            for task in tasks:
                typer.echo(f"{name}:{task}")


@app.command("eval")
def evaluate(
    folder: Folder,
    episodes: Annotated[int, typer.Option(min=1, help="How many, none of which it was trained on.")] = 20,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the episodes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Play episodes with the trained policy, without noise, and print their returns."""
    import jax
    import numpy as np

    from shardes.tasks.runs import Run

    with _errors():
        task, params = Run(folder).trained()
        keys = jax.random.split(jax.random.key(seed), episodes)
        returns = np.array([task.rollout(params, key).total for key in keys])
    found: dict[str, Any] = {
        "task": task.spec.name,
        "episodes": episodes,
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
    }
    if as_json:
        typer.echo(json.dumps({**found, "returns": returns.tolist()}, indent=2))
    else:
        for name, value in found.items():
            typer.echo(f"{name:<10}{value:.6g}" if isinstance(value, float) else f"{name:<10}{value}")


@app.command("render")
def render(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="A .gif or .mp4; by default episode.gif in the folder.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the episode.")] = 1,
) -> None:
    """Write an episode of the trained policy as a picture that moves."""
    import jax

    from shardes.tasks.runs import Run

    with _errors():
        task, params = Run(folder).trained()
        typer.echo(task.render(params, jax.random.key(seed), out or folder / "episode.gif"))


@app.command("plot")
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, on one axis.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="A .png; by default curve.png in the first folder.")] = None,
) -> None:
    """Write the learning curve of runs: mean, best and spread of the returns."""
    from shardes.tasks.plotting import plot as write
    from shardes.tasks.runs import Config, Run, read_log

    with _errors():
        runs = [Run(folder) for folder in folders]
        titles = dict.fromkeys(Config.read(run.config).task for run in runs)
        logs = {str(run.folder): read_log(run.log) for run in runs}
        typer.echo(write(logs, out or runs[0].curve, ", ".join(titles)))


def _simulate(devices: int | None) -> None:
    """Have a CPU show this many devices; before JAX is asked for its own."""
    flags = os.environ.get("XLA_FLAGS", "")
    if devices is not None and "host_platform_device_count" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()


def _new_folder(task: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", task)
    taken = {path.name for path in Path("runs").glob(f"{name}-*")}
    return Path("runs") / next(f"{name}-{i}" for i in range(len(taken) + 1) if f"{name}-{i}" not in taken)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    from shardes.callbacks import CheckpointError

    try:
        yield
    except (TaskError, CheckpointError, OSError, ValueError) as error:
        console = rich.console.Console(stderr=True, soft_wrap=True)
        console.print(f"[bold red]error:[/] {rich.markup.escape(str(error))}", highlight=False)
        raise typer.Exit(1) from None
