"""The README's quickstart runs as it is printed there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_quickstart_descends(tmp_path: Path) -> None:
    block = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    script = tmp_path / "quickstart.py"
    script.write_text(block.group(1))
    result = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    losses = [float(loss) for loss in re.findall(r"mean loss (\S+)", result.stdout)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
