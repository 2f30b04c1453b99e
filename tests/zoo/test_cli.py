"""The command `shardes-zoo`: what it prints, for people and for programs, and how it exits."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from shardes import zoo
from shardes.zoo import printing
from shardes.zoo.commands import app

from .snapshots import BAD, CHECKPOINTS

FOLDER = str(CHECKPOINTS / "qwen2-tiny-tied")


def run(*arguments: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, arguments)


def result(*arguments: str) -> str:
    found = run(*arguments)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_list() -> None:
    shown = result("list")
    for name in ("qwen2.5-0.5b-instruct", "smollm2-135m", "byte-transformer"):
        assert name in shown
    entries = json.loads(result("list", "--json"))
    assert [entry["name"] for entry in entries] == list(zoo.names())
    assert entries[1]["parameters"] == 494_032_768


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (40, "licence, repository, architecture"),
        (80, "repository, architecture"),
        (120, "architecture"),
        (200, None),
        (None, None),
    ],
)
def test_list_shows_the_columns_that_fit_a_terminal_and_a_program_all(
    width: int | None, left_out: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width or 40))
    monkeypatch.setattr(printing, "_is_a_terminal", lambda: width is not None)
    found = run("list")
    lines = found.stdout.splitlines()
    assert len(lines) == 1 + len(zoo.names())
    assert max(map(len, lines)) <= (width or 200)
    assert "\u2026" not in found.stdout
    assert found.stderr == (f"The terminal is too narrow for: {left_out}.\n" if left_out else "")
    whole = "qwen2.5-3b-instruct 3,085,938,688 Qwen Research License Qwen/Qwen2.5-3B-Instruct qwen2"
    shown = next(line for line in lines if line.startswith("qwen2.5-3b-instruct"))
    assert whole.startswith(" ".join(shown.split()))
    assert (left_out is None) == (whole == " ".join(shown.split()))


def test_info() -> None:
    assert "494,032,768" in result("info", "qwen2.5-0.5b")
    bundled = result("info", "byte-transformer")
    assert "none, the model comes with the package" in bundled
    assert "revision" not in bundled
    entry = json.loads(result("info", "qwen2.5-0.5b", "--json"))
    assert entry["repo_id"] == "Qwen/Qwen2.5-0.5B"
    assert entry["revision"] == "main"


def test_pull() -> None:
    assert result("pull", FOLDER).strip() == FOLDER
    assert json.loads(result("pull", FOLDER, "--json")) == {"folder": FOLDER, "repo_id": None, "commit": None}


def test_verify() -> None:
    assert "finite" in result("verify", FOLDER)
    found = json.loads(result("verify", FOLDER, "--json"))
    assert (found["architecture"], found["forward"]) == ("qwen2", "finite")


def test_generate() -> None:
    text = result("generate", FOLDER, "Hello, world!", "--max-new-tokens", "8")
    found = json.loads(result("generate", FOLDER, "Hello, world!", "--max-new-tokens", "8", "--json"))
    assert text == found["text"] + "\n"
    model = zoo.load(FOLDER)
    assert found["prompt_ids"] == model.tokenizer.encode("Hello, world!")
    chat = json.loads(result("generate", FOLDER, "Hi", "--chat", "--max-new-tokens", "1", "--json"))
    assert chat["prompt_ids"][0] == model.tokenizer.backend.token_to_id("<|im_start|>")
    sampled = [
        result("generate", FOLDER, "Hi", "--temperature", "2", "--seed", seed, "--max-new-tokens", "8", "--json")
        for seed in ("0", "0", "1")
    ]
    assert sampled[0] == sampled[1] != sampled[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("info", "nothing"), "is not the name of a model"),
        (("pull", "nothing"), "is no model of the zoo"),
        (("verify", str(BAD / "nan-weights")), "must hold finite numbers"),
        (("generate", str(BAD / "config-missing"), "Hi"), "config.json is not in"),
        (("generate", str(BAD / "good-base"), "Hi"), "has no tokenizer"),
        (("generate", FOLDER, ""), "The prompt has no tokens"),
        (("generate", FOLDER, "Hi", "--max-new-tokens", str(10**30)), "max_new_tokens is 1000"),
        (("generate", FOLDER, "Hi", "--temperature", "inf"), "temperature is inf, and must be a number"),
    ],
)
def test_errors_are_plain(arguments: tuple[str, ...], message: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 1
    assert isinstance(found.exception, SystemExit)
    assert message in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nA trace"),
            "RESOURCE_EXHAUSTED: Out of memory.",
        ),
        (MemoryError(), "MemoryError"),
        (TypeError("[bold] is no number"), "[bold] is no number"),
    ],
)
def test_errors_of_a_computation_are_plain(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(zoo.Model, "generate", fail)
    found = run("generate", FOLDER, "Hi")
    assert (found.exit_code, found.stderr) == (1, f"error: {message}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("info",),
        ("generate", FOLDER, "Hi", "--dtype", "int8"),
        ("generate", FOLDER, "Hi", "--top-p", "2"),
        ("generate", FOLDER, "Hi", "--seed", "-1"),
        ("generate", FOLDER, "Hi", "--seed", str(10**30)),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize("command", [(), ("list",), ("info",), ("pull",), ("verify",), ("generate",)])
def test_help(command: tuple[str, ...]) -> None:
    assert "--help" in result(*command, "--help")


@pytest.mark.slow
def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("shardes-zoo")
    found = subprocess.run([command, "pull", FOLDER], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout.strip()) == (0, FOLDER), found.stderr
    found = subprocess.run([command, "info", "nothing"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    assert found.stderr.startswith("error: ")
    assert "Traceback" not in found.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is full")
def test_a_full_disk_is_said_in_a_line() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [Path(sys.executable).with_name("shardes-zoo"), "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert process.returncode == 1
    assert process.stderr == "shardes-zoo: No space left on device\n"


def test_a_closed_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    app(["list"], standalone_mode=False)


def test_a_reader_that_goes_away_ends_the_command_in_silence() -> None:
    command = Path(sys.executable).with_name("shardes-zoo")
    for arguments in (["list"], ["info", "qwen2.5-3b", "--json"]):
        with subprocess.Popen([command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""


INTERRUPTED = """
import os, signal, sys, threading
from shardes.zoo import Model, cli
place, folder = sys.argv[1:]
def interrupt(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    while place == "computing":
        pass
if place == "computing":
    Model.generate = interrupt
else:
    from shardes.zoo import loading
    loading.load = interrupt
sys.argv = ["shardes-zoo", "generate", folder, "Hi"]
cli.main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(("place", "code"), [("loading", 130), ("computing", -signal.SIGINT)])
def test_ctrl_c(place: str, code: int) -> None:
    """A shell calls both 130."""
    command = [sys.executable, "-c", INTERRUPTED, place, FOLDER]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (code, "", "")


WITHOUT = """
import sys
sys.modules["typer"] = None
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "typer" else find_spec(name)
from shardes.zoo.cli import main
main()
"""


def test_without_the_extra() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT, "list"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr.splitlines() == ["shardes-zoo: its command line needs more: pip install 'shardes-zoo[cli]'"]
