"""Two faults of the mutation testing are made and looked for; what they are says nothing of the tests."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "validation.mutation", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_two_faults(tmp_path: Path) -> None:
    sources = {path: path.read_text() for path in ROOT.glob("packages/shardes-nn/src/**/*.py")}
    done = run("--tiny", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "mutation.json").read_text())
    assert {"date", "commit", "jax"} <= set(result["environment"])
    assert "</svg>" in (tmp_path / "mutation.svg").read_text()
    assert result["first"] == result["last"] == {"killed": 2, "share": 1, "share_without_equivalent": 1}
    for fault in result["faults"]:
        assert fault["before"] != fault["after"]
        assert fault["by"].startswith("tests/nn/test_seams.py::")
    assert {path: path.read_text() for path in sources} == sources


def test_tiny_results_are_not_kept() -> None:
    done = run("--tiny")
    assert done.returncode == 2
    assert "--tiny needs --out" in done.stderr


def test_the_figures_are_those_of_the_faults() -> None:
    result = json.loads((ROOT / "validation/results/mutation.json").read_text())
    faults = result["faults"]
    assert len(faults) >= 100
    for which in ("first", "last"):
        killed = sum(fault[which] != "survived" for fault in faults)
        assert result[which]["share"] == killed / len(faults)
    assert result["last"]["share"] >= 0.9
    assert all("equivalent" in fault for fault in faults if fault["last"] == "survived")
