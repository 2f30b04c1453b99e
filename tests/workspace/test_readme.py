"""The first example of a README runs as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_first_example(readme: str, folder: Path) -> str:
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / readme).read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    script = folder / "example.py"
    script.write_text(block.group(1))
    result = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_quickstart_descends(tmp_path: Path) -> None:
    printed = run_first_example("README.md", tmp_path)
    losses = [float(loss) for loss in re.findall(r"mean loss (\S+)", printed)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


def test_the_core_runs_alone(tmp_path: Path) -> None:
    run_first_example("packages/shardes-core/README.md", tmp_path)
