"""The examples of a README run as they are printed there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_example(readme: str, folder: Path, mark: str = "import") -> str:
    """Run the first Python block with a mark in it, and return what it prints."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / readme).read_text(), re.DOTALL | re.MULTILINE)
    script = folder / "example.py"
    script.write_text(next(block for block in blocks if mark in block))
    result = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_quickstart_descends(tmp_path: Path) -> None:
    printed = run_example("README.md", tmp_path)
    losses = [float(loss) for loss in re.findall(r"mean loss (\S+)", printed)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_the_core_runs_alone(tmp_path: Path) -> None:
    run_example("packages/shardes-core/README.md", tmp_path)


def test_a_strategy_of_ones_own_is_a_few_lines(tmp_path: Path) -> None:
    run_example("README.md", tmp_path, mark="class Rademacher")
