"""The fine-tuning example trains the bundled model on a text and saves what it made."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from shardes import zoo

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "finetune.py"


def finetune(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLE, *options], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_it_learns_and_saves(tmp_path: Path) -> None:
    result = finetune(tmp_path, "--generations", "40", "-n", "32", "--save", "tuned")
    assert result.returncode == 0, result.stderr
    before, after = (float(bits) for bits in re.findall(r"held out  (\S+) bits a token", result.stdout))
    assert after < before - 0.05
    assert "worse" not in result.stdout
    given, tuned = zoo.load("byte-transformer"), zoo.load(tmp_path / "tuned")
    assert jax.tree.structure(tuned.params) == jax.tree.structure(given.params)
    assert any((a != b).any() for a, b in zip(*map(jax.tree.leaves, (given.params, tuned.params)), strict=True))


@pytest.mark.slow
def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    result = finetune(tmp_path, "--text", "short.txt")
    assert result.returncode == 2
    assert "short.txt has 5 tokens, and needs more than 640: a tenth is held out" in result.stderr


@pytest.mark.slow
def test_it_says_when_it_made_the_model_worse(tmp_path: Path) -> None:
    result = finetune(tmp_path, "--generations", "2", "-n", "4", "--lr", "1")
    assert result.returncode == 0, result.stderr
    assert re.search(r"worse +by \d+\.\d+ bits: try a smaller --lr or --sigma, or more members", result.stdout)
