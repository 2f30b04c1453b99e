"""The main example, run as a person runs it."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_quickstart(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docs" / "examples" / "quickstart.py"), *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)


def bits(output: str, part: str) -> tuple[float, float]:
    """Trained and unigram bits a byte, as printed."""
    found = re.search(rf"^{part}\s+([\d.]+)\s+([\d.]+)$", output, re.MULTILINE)
    assert found, output
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        pytest.param("lowrank", "LowRank(r=1)", marks=pytest.mark.slow),
        ("seed", "SeedRegenerated(chunk=1)"),
    ],
)
def test_one_argument_switches_the_algorithm(tmp_path: Path, strategy: str, named: str) -> None:
    done = run_quickstart(tmp_path, "--strategy", strategy, "--generations", "2")
    assert done.returncode == 0, done.stderr
    assert f"Mirrored(inner={named}), 256 members a generation on 8 devices" in done.stdout
    assert re.search(r"^generation 2/2  bits a byte: mean [\d.]+  best [\d.]+  [\d,]+ members/s$", done.stdout, re.M)
    assert re.search(r"^sampled: .+", done.stdout, re.MULTILINE)
    png = (tmp_path / "quickstart.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width >= 600
    assert height >= 400


@pytest.mark.slow
def test_without_matplotlib_it_says_how_to_get_a_curve(tmp_path: Path) -> None:
    blocked = tmp_path / "matplotlib.py"
    blocked.write_text("raise ImportError('not installed')\n")
    code = (
        f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['quickstart', '--generations', '2']; "
        f"runpy.run_path({str(ROOT / 'docs/examples/quickstart.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "no curve: matplotlib is not installed (pip install matplotlib)" in done.stdout
    assert not list(tmp_path.glob("*.png"))


def test_generations_below_one_are_refused(tmp_path: Path) -> None:
    done = run_quickstart(tmp_path, "--generations", "0")
    assert done.returncode == 2
    assert "--generations must be at least 1, got 0" in done.stderr


@pytest.mark.slow
def test_it_learns_far_more_than_byte_frequencies(tmp_path: Path) -> None:
    done = run_quickstart(tmp_path)
    assert done.returncode == 0, done.stderr
    trained, unigram = bits(done.stdout, "train")
    assert trained < unigram - 0.3
    trained, unigram = bits(done.stdout, "held out")
    assert trained < unigram - 0.3
