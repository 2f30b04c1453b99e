"""The measurements of validation/tasks run, and the commands of the examples are commands. Tiny results are no use."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardes.tasks import commands
from validation.tasks import learning

ROOT = Path(__file__).parents[2]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "validation.tasks", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("part", "label", "found"),
    [
        ("learning", "gymnasium:CartPole-v1 lowrank", {"mean", "target", "reached", "curve"}),
        ("speed", "gymnasium", {"steps_per_s", "ratio"}),
        pytest.param("speed", "playground", {"steps_per_s", "ratio"}, marks=pytest.mark.slow),
    ],
)
def test_a_part_by_itself(tmp_path: Path, part: str, label: str, found: set[str]) -> None:
    done = run(part, "--tiny", "--only", label, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{part}.json", f"{part}.svg"]
    result = json.loads((tmp_path / f"{part}.json").read_text())
    assert list(result["found"]) == [label]
    assert {"date", "commit", "shardes-tasks", "jax"} <= set(result["found"][label]["environment"])
    assert all(found <= set(row) for row in result["found"][label]["rows"])
    assert "</svg>" in (tmp_path / f"{part}.svg").read_text()


def test_tiny_results_are_not_kept() -> None:
    done = run("--tiny")
    assert done.returncode == 2
    assert "--tiny needs --out" in done.stderr


def test_the_examples_are_commands_of_every_task_with_a_target() -> None:
    found = learning.commands()
    assert set(learning.TARGETS) | set(learning.PPO) == {label.split()[0] for label in found}
    assert {"gymnasium:CartPole-v1 lowrank", "gymnasium:CartPole-v1 seed"} <= set(found)
    for command in found.values():
        # Wrong last, so that nothing is trained.
        result = CliRunner().invoke(commands.app, ["train", *command, "--hidden", "x"])
        assert "'x' is not numbers with commas between" in " ".join(result.output.replace("│", " ").split())


def test_kept_results_are_of_the_examples_and_those_of_the_readme() -> None:
    results = json.loads((ROOT / "validation/results/tasks/learning.json").read_text())["found"]
    readme = (ROOT / "packages/shardes-tasks/README.md").read_text()
    found = learning.commands()
    assert list(results) == list(found)
    for label, command in found.items():
        rows = results[label]["rows"]
        for seed, row in enumerate(rows):
            assert row["command"] == shlex.join(["shardes-train", *command, "--seed", str(seed)])
            assert row["episodes"] == 20
        options = shlex.join(command[1:])
        cells = (f"`{command[0]}`", f"`{options}`" if options else "", ", ".join(f"{row['mean']:.0f}" for row in rows))
        assert f"| {' | '.join(cells)} |".replace("|  |", "| |") in readme
