"""The example of CartPole learns, with either noise, and its policy balances in fresh episodes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cartpole.py"


@pytest.mark.parametrize("strategy", ["lowrank", pytest.param("seed", marks=pytest.mark.slow)])
def test_it_reaches_a_mean_of_400(tmp_path: Path, strategy: str) -> None:
    result = subprocess.run(
        [sys.executable, EXAMPLE, "--strategy", strategy], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    means = [float(mean) for mean in re.findall(r"mean return +(\S+)", result.stdout)]
    assert means[0] < 60
    assert means[-1] >= 400
    assert float(re.findall(r"the policy (\S+)", result.stdout)[0]) >= 400
