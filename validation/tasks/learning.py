"""The commands of docs/examples/tasks.sh, each with several seeds, and what their policies get in fresh episodes."""

import functools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from validation.workers import ROOT

WHAT = (
    "mean return of a trained policy, without noise, over fresh episodes; a row a seed, with the mean return of the "
    "population in every generation; train_s: of the command, on so many cpus of this process, which were not idle "
    "otherwise. target: what is asked of the mean. ppo: what Playground's PPO reaches, and who says so; its report "
    "(arXiv 2502.08844) has curves alone, so that these numbers are read off them"
)
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "gymnasium", "playground", "mujoco", "mujoco-mjx")
COMMANDS = ROOT / "docs" / "examples" / "tasks.sh"
SEEDS = (0, 1, 2)
FEWER_SEEDS = {"playground:CartpoleSwingup": (0, 1)}
"""Of what takes longest."""
EPISODES = 20
TARGETS = {
    "gymnasium:CartPole-v1": 500,
    "gymnasium:Acrobot-v1": -100,
    "gymnasium:Pendulum-v1": -300,
    "gymnasium:LunarLander-v3": 200,
    "playground:CartpoleBalance": 900,
}
READ = "its curve of JAX near 100 million steps, as github.com/kengz/SLM-Lab docs/PHASE5_OPS.md reads it"
ALSO_READ = "near 50 in the report's own figure, as google-deepmind/mujoco_playground issue 135 reads it"
PPO = {
    "playground:CartpoleBalance": {"mean": 950, "source": READ},
    "playground:CartpoleSwingup": {"mean": 800, "source": READ},
    "playground:PendulumSwingup": {"mean": 395, "source": f"{READ}; {ALSO_READ}"},
}
SMALL = ["-n", "8", "--generations", "2", "--episodes", "1", "--episode-length", "20"]


def commands() -> dict[str, list[str]]:
    """The commands, by task and strategy."""
    found = {}
    for line in COMMANDS.read_text().splitlines():
        if line.startswith("shardes-train "):
            _, task, *options = shlex.split(line)
            strategy = options[options.index("--strategy") + 1] if "--strategy" in options else "lowrank"
            found[f"{task} {strategy}"] = [task, *options]
    return found


def measurements(tiny: bool) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """One a command."""
    for label, command in list(commands().items())[: 1 if tiny else None]:
        seeds = SEEDS[:1] if tiny else FEWER_SEEDS.get(command[0], SEEDS)
        yield label, functools.partial(_rows, [*command, *SMALL] if tiny else command, seeds)


def _rows(command: list[str], seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    rows = []
    for seed in seeds:
        rows.append(_row(command, seed))
        print(json.dumps({k: v for k, v in rows[-1].items() if k != "curve"}), flush=True)
    return rows


def _row(command: list[str], seed: int) -> dict[str, Any]:
    program = Path(sys.executable).with_name("shardes-train")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start = time.perf_counter()
        arguments = [*command, "--seed", str(seed)]
        subprocess.run([program, *arguments, "--out", run], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        asked = [program, "eval", run, "--episodes", str(EPISODES), "--json"]
        found = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout)
        lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    task = command[0]
    return {
        "command": shlex.join(["shardes-train", *arguments]),
        "cpus": len(os.sched_getaffinity(0)),
        "train_s": round(seconds, 1),
        **{name: found[name] for name in ("episodes", "mean", "std", "min", "max")},
        **({"target": TARGETS[task], "reached": found["mean"] >= TARGETS[task]} if task in TARGETS else {}),
        **({"ppo": PPO[task]} if task in PPO else {}),
        "curve": [round(-line["mean"], 2) for line in lines],
    }


def draw(found: dict[str, Any], figure: Any) -> None:
    """The curves of every command's seeds, with the policies' means, targets, and PPO."""
    columns = 2
    figure.set_size_inches(9, 2.6 * -(-len(found) // columns) + 0.4)
    panels = figure.subplots(-(-len(found) // columns), columns, squeeze=False).reshape(-1)
    for axes, (label, result) in zip(panels, found.items(), strict=False):
        for i, row in enumerate(result["rows"]):
            axes.plot(range(1, len(row["curve"]) + 1), row["curve"], color=f"C{i}", linewidth=1)
            axes.plot(len(row["curve"]), row["mean"], "o", color=f"C{i}", markersize=4)
        for name, style in (("target", "--"), ("ppo", ":")):
            if (value := row.get(name)) is not None:
                axes.axhline(value["mean"] if name == "ppo" else value, color="gray", linestyle=style, label=name)
                axes.legend(frameon=False, fontsize="small")
        mean = statistics.fmean(row["mean"] for row in result["rows"])
        axes.set_title(f"{label}: {mean:.0f}", fontsize="medium")
        axes.set(xlabel="generation", ylabel="return")
    for axes in panels[len(found) :]:
        axes.set_visible(False)
