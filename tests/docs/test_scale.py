"""The measurements of validation/scale run, and their plots are drawn. What they find is of no use at this size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "validation.scale", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ("loop", {"generation_s": ["bare", "fit", "fit, watched"], "ratio": ["fit", "fit, watched"]}),
        pytest.param("checkpoints", {}, marks=pytest.mark.slow),
        pytest.param("replays", {"generation_s": ["replay", "run"]}, marks=pytest.mark.slow),
        pytest.param("determinism", {"generation_s": ["default", "deterministic"]}, marks=pytest.mark.slow),
        pytest.param("placements", {"generation_s": ["A", "B"], "auto": ["how", "seconds"]}, marks=pytest.mark.slow),
    ],
)
def test_a_part_by_itself(tmp_path: Path, part: str, found: dict[str, list[str]]) -> None:
    done = run(part, "--tiny", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{part}.json", f"{part}.svg"]
    result = json.loads((tmp_path / f"{part}.json").read_text())
    assert {"date", "commit", "device", "jax"} <= set(result["environment"])
    for row in result["rows"]:
        assert {name: sorted(row[name]) for name in found} == found
    assert "</svg>" in (tmp_path / f"{part}.svg").read_text()


@pytest.mark.slow
def test_memory_grows_by_the_factors(tmp_path: Path) -> None:
    done = run("memory", "--tiny", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    few, many = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert few["complete"]
    assert many["complete"]
    # Two layers of two thin factors and a dense vector, for every direction.
    assert [row["factors"] for row in (few, many)] == [4 * 2 * 3 * 64 * row["n"] // 2 for row in (few, many)]
    assert many["temporary"] - few["temporary"] == pytest.approx(many["factors"] - few["factors"], rel=0.05)


def test_tiny_results_are_not_kept() -> None:
    done = run("--tiny")
    assert done.returncode == 2
    assert "--tiny needs --out" in done.stderr


def test_an_unknown_part_is_named() -> None:
    done = run("speed")
    assert done.returncode == 2
    assert "no part is called speed; there are memory, loop" in done.stderr
