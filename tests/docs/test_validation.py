"""The checks of validation/ are listed and run at sizes that say nothing; what is kept says where it was measured."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from validation.__main__ import CHECKS, chosen
from validation.accelerator import __main__ as accelerator
from validation.command import RESULTS
from validation.invariance.__main__ import Evolved, compared
from validation.workers import ROOT

PEERS = (ROOT / ".tools/peers/bin/python").exists()
TRANSFORMERS = "TRANSFORMERS_PYTHON" in os.environ or (ROOT / ".tools/transformers/bin/python").exists()
needs_peers = pytest.mark.skipif(not PEERS, reason="the published package is not installed; validation.peers does so")
needs_transformers = pytest.mark.skipif(not TRANSFORMERS, reason="TRANSFORMERS_PYTHON names no torch and transformers")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    # As where no tests run: one device, unless a check asks for more.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "validation", *args]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def found(folder: Path, name: str) -> dict:
    """The result of a tiny check, which has run to its end."""
    done = run(name, "--tiny", "--out", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    (check,) = chosen([name])
    result = json.loads((folder / check.result).read_text())
    assert result["what"] == check.module.WHAT
    assert {"date", "commit", "device", "cores", "python", "jax", "shardes-core"} <= set(result["environment"])
    assert "</svg>" in (folder / check.result).with_suffix(".svg").read_text()
    return result


def test_every_check_is_listed():
    listed = run().stdout.splitlines()
    assert len(listed) == len(CHECKS) == len({check.name for check in CHECKS})
    for line, check in zip(listed, CHECKS, strict=True):
        assert line.split()[:3] == [check.name, str(check.minutes), "min"]
        assert line.endswith(f"{check.shows}: results/{check.result}")
        assert check.shows


def test_every_package_of_checks_has_its_checks_listed():
    packages = {path.parent.name for path in (ROOT / "validation").glob("*/__main__.py")}
    assert packages == {check.name.partition(".")[0] for check in CHECKS}


def test_what_is_kept_is_listed_and_says_where_it_was_measured():
    files = {path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*.json")}
    assert files <= {check.result for check in CHECKS}
    for file in files:
        result = json.loads((RESULTS / file).read_text())
        parts = result["found"].values() if "found" in result else [result]
        for part in parts:
            assert {"date", "commit", "machine", "cores", "python", "jax"} <= set(part["environment"]), file


def test_packages_and_parts_are_chosen():
    assert [check.name for check in chosen(["papers", "scale.loop"])] == [
        "papers.throughput",
        "papers.alignment",
        "scale.loop",
    ]


def test_an_unknown_check_is_named():
    done = run("speed", "peers")
    assert done.returncode == 1
    assert "No check is called speed. python -m validation lists them." in done.stderr


def test_tiny_results_are_not_kept():
    done = run("papers", "--tiny")
    assert done.returncode == 2
    assert "--tiny needs --out" in done.stderr


@pytest.mark.slow
def test_invariance(tmp_path):
    result = found(tmp_path, "invariance")
    assert result["sound"]
    layouts = [(row["processes"], row["devices"], row["how"], row["deterministic"]) for row in result["rows"]]
    assert layouts == [(1, 2, "B", False), (1, 2, "A", True), (2, 2, "B", False), (2, 2, "A", True)]
    assert all(row["identical"] for row in result["rows"] if row["deterministic"])


@pytest.mark.parametrize("figure", ["fitness", "sum", "update"])
@pytest.mark.parametrize(
    ("off", "beside", "deterministic", "sound"),
    [
        (0.0, "one device", True, True),
        (1e-7, "one device", True, False),
        (1e-7, "one device", False, True),
        (1e-4, "one device", False, False),
        (5e-5, "a CPU", True, True),
        (1e-3, "a CPU", True, False),
    ],
)
def test_invariance_tells_what_differs(figure, off, beside, deterministic, sound):
    one = Evolved(np.array([[1.0, 3.0, 4.0]]), [np.array([1.0, 2.0]), np.ones(2)], [np.array([1.0, 2.0]), np.ones(2)])
    amplification = 4 / np.std([1, 3, 4])
    largest = {"fitness": 4, "sum": 2, "update": 2}[figure]
    allowed = off * (1 + amplification if figure == "update" else 1)
    other = copy.deepcopy(one)
    getattr(other, figure)[0][0] += allowed * largest
    result = compared(one, other, beside, deterministic)
    assert result["sound"] == sound
    assert result["amplification"] == pytest.approx(amplification)
    assert result[figure] == pytest.approx(allowed)
    assert [name for name in ("fitness", "sum", "update") if result[name]] == ([figure] if off else [])


def test_throughput(tmp_path):
    result = found(tmp_path, "papers.throughput")
    assert result["paper"]["EGGROLL, drawn on the fly"] == 69
    for row in result["rows"]:
        sides = {"inference", "drawn on the fly", "generation"}
        assert set(row["speed"]) == sides | ({"drawn beforehand"} if row["strategy"] != "SeedRegenerated" else set())
        for side, speed in row["speed"].items():
            assert speed == pytest.approx(100 * row["seconds"]["inference"] / row["seconds"][side])


def test_alignment(tmp_path):
    result = found(tmp_path, "papers.alignment")
    assert {row["model"] for row in result["rows"]} == {"matrix", "block"}
    for row in result["rows"]:
        assert abs(row["cosine"] - row["theory"]) < 6 / (row["params"] * row["count"]) ** 0.5


def test_accelerator(tmp_path):
    result = found(tmp_path, "accelerator")
    assert result["seconds"] < result["budget"]
    (alike,), (row,), (speed,) = (result[name] for name in ("invariance", "throughput", "generations"))
    assert alike["beside"] == "a CPU"
    assert alike["identical"]
    assert row["strategy"] == "IIDGaussian"
    assert speed["tokens_per_s"]["generation"] == pytest.approx(4 * 8 / speed["seconds"]["generation"])
    assert speed["memory"]["temporary"] > 0


def test_the_accelerator_keeps_to_its_budget(monkeypatch):
    every = accelerator.sections(tiny=False)
    assert [section.name for section in every] == ["invariance", *["throughput"] * 4, *["generations"] * 4]
    for section in every:
        (row,) = accelerator.measured(section, left=12)
        assert row["skipped"] == "12 s of the budget were left, and 30 s are needed"
    monkeypatch.setattr(accelerator, "LEAST", 0)
    (row,) = accelerator.measured(every[-1], left=0.2)
    assert row["model"] == "qwen2 0.5B"
    assert row["strategy"] == "SeedRegenerated"
    assert row["skipped"] == "it had not ended when the budget had, after 0 s"


def test_bits_a_byte(tmp_path):
    result = found(tmp_path, "byte_transformer")
    assert 0.5 < result["train"] < 2
    assert 0.5 < result["held_out"] < 2.5


@needs_peers
@pytest.mark.slow
def test_peers(tmp_path):
    result = found(tmp_path, "peers")
    assert result["environment"]["published"] == "0.1.1"
    (row,) = result["rows"]
    assert row["ratios"]["throughput"] == row["published"]["seconds"] / row["ours"]["seconds"]


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformers_roundtrip", "zoo_speed", "smollm2"])
def test_beside_transformers(tmp_path, name):
    result = found(tmp_path, name)
    if name == "transformers_roundtrip":
        assert result["sound"]
    elif name == "smollm2":
        assert max(result["against_transformers"]["largest_difference"].values()) < 1e-4
        assert result["against_transformers"]["greedy_tokens_equal"] == [True] * 3
    else:
        assert list(result["beside_transformers"]) == ["prefill 8x128"]
