"""The fine-tuning example trains the bundled model on a text and saves what it made."""

import re
import shutil
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
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--text", "short.txt"), "short.txt has 5 tokens, and needs more than 640: a tenth is held out"),
        (("--text", "absent.txt"), "No such file or directory: 'absent.txt'"),
        (("--model", "byte-transformr"), "byte-transformr is no model of the zoo"),
        (("--sequences", "0"), "argument --sequences: 0 is not positive"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(options: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    result = finetune(tmp_path, *options)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_what_was_trained_is_not_lost_where_it_cannot_be_saved(tmp_path: Path) -> None:
    (tmp_path / "tuned").write_text("in the way")
    result = finetune(tmp_path, "--generations", "1", "-n", "2", "--sequences", "1", "--save", "tuned")
    assert result.returncode == 0, result.stderr
    assert re.search("not saved .*tuned is not a folder", result.stdout)
    found = re.search(r"saved     (.*): load it", result.stdout)
    assert found is not None
    zoo.load(found[1])
    shutil.rmtree(found[1])


@pytest.mark.slow
def test_it_says_when_it_made_the_model_worse(tmp_path: Path) -> None:
    result = finetune(tmp_path, "--generations", "2", "-n", "4", "--lr", "1")
    assert result.returncode == 0, result.stderr
    assert re.search(r"worse +by \d+\.\d+ bits: try a smaller --lr or --sigma, or more members", result.stdout)
