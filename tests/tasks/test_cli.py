"""The command trains, goes on, evaluates, draws and plots, and says in a line what is wrong."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from PIL import Image
from typer.testing import CliRunner

from shardes.tasks import cli, commands

TASK = "gymnasium:CartPole-v1"
SMALL = ["-n", "16", "--lr", "0.05", "--hidden", "8", "--episode-length", "60"]


def result(*arguments, code=0):
    """What a command prints, run in this process."""
    names = {command.name for command in commands.app.registered_commands}
    given = list(arguments) if arguments[0] in {*names, "--help"} else ["train", *arguments]
    # optax's Adam promotes dtypes.
    with jax.numpy_dtype_promotion("standard"):
        found = CliRunner().invoke(commands.app, given)
    assert found.exit_code == code, found.output
    return found.stdout if code == 0 else found.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of six generations."""
    folder = tmp_path_factory.mktemp("runs") / "cart"
    assert result(TASK, *SMALL, "--generations", "6", "--out", str(folder)).strip() == str(folder)
    return folder


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_leaves_all_of_itself(run):
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.json", "curve.png", "log.jsonl"]
    config = json.loads((run / "config.json").read_text())
    assert (config["task"], config["n"], config["hidden"], config["episode_length"]) == (TASK, 16, [8], 60)
    assert [line["generation"] for line in log(run)] == list(range(6))
    assert all(1 <= -line["best"] <= 60 for line in log(run))
    with Image.open(run / "curve.png") as image:
        assert image.size[0] > 1000


def test_a_run_is_gone_on_with(run, tmp_path):
    half, whole = tmp_path / "half", log(run)
    result(TASK, *SMALL, "--generations", "3", "--out", str(half))
    result(TASK, *SMALL, "--generations", "6", "--out", str(half), "--resume")
    assert [{**line, "seconds": 0} for line in log(half)] == [{**line, "seconds": 0} for line in whole]
    text = result(TASK, *SMALL, "--sigma", "0.2", "--out", str(half), "--resume", code=1)
    assert "holds a run with sigma 0.1, and 0.2 is given" in " ".join(text.split())
    assert "is not empty" in result(TASK, *SMALL, "--out", str(half), code=1)


@pytest.mark.parametrize(
    "options", [["--strategy", "seed"], ["--strategy", "iid", "--optimizer", "sgd", "--normalize"]]
)
def test_other_ways_to_train(tmp_path, options):
    result(TASK, *SMALL, *options, "--generations", "2", "--out", str(tmp_path / "run"))
    assert len(log(tmp_path / "run")) == 2
    assert json.loads(result("eval", str(tmp_path / "run"), "--episodes", "2", "--json"))["episodes"] == 2


def test_a_policy_is_evaluated(run):
    found = json.loads(result("eval", str(run), "--episodes", "3", "--json"))
    assert found["mean"] == pytest.approx(sum(found["returns"]) / 3)
    assert found["min"] == min(found["returns"])
    assert json.loads(result("eval", str(run), "--episodes", "3", "--json")) == found
    lines = dict(line.split(maxsplit=1) for line in result("eval", str(run), "--episodes", "3").splitlines())
    assert lines["task"] == "CartPole-v1"
    assert float(lines["mean"]) == pytest.approx(found["mean"], rel=1e-5)


def test_an_episode_is_drawn(run, tmp_path):
    path = Path(result("render", str(run), "--out", str(tmp_path / "episode.gif")).strip())
    with Image.open(path) as image:
        frames = []
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(image.convert("RGB").tobytes())
    assert len(set(frames)) > 1
    assert "must end in .gif or .mp4" in result("render", str(run), "--out", str(tmp_path / "episode.avi"), code=1)


def test_runs_are_plotted_on_one_axis(run, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    path = Path(result("plot", str(run), str(tmp_path / "other"), "--out", str(tmp_path / "both.png")).strip())
    with Image.open(path) as both, Image.open(run / "curve.png") as one:
        assert both.size == one.size
        assert both.tobytes() != one.tobytes()


def test_tasks_are_listed():
    assert TASK in result("list").splitlines()
    assert set(result("list", "gymnasium").split()) >= {TASK, "gymnasium:Acrobot-v1"}
    assert "CartPole-v1" in json.loads(result("list", "gymnasium", "--json"))["gymnasium"]
    assert "'gim' is no suite" in result("list", "gim", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["gymnasium:CartPol-v1"], 1, "Did you mean 'CartPole-v1'"),
        (["gymnasum:CartPole-v1"], 1, "Did you mean gymnasium:CartPole-v1?"),
        (["CartPole-v1"], 1, "it must be SUITE:NAME"),
        ([TASK, "-n", "7"], 2, "7 is not even"),
        ([TASK, "--hidden", "8,x"], 2, "is not numbers with commas"),
        ([TASK, "--strategy", "magic"], 2, "magic"),
        ([TASK, "--resume"], 2, "it needs the folder of the run"),
        ([TASK, "--sigma", "-1"], 1, "sigma must be finite and above 0"),
        ([TASK, "--lr", "-1"], 1, "lr is -1.0, and must be a positive number"),
        ([TASK, "--lr", "nan"], 1, "lr is nan, and must be a positive number"),
        (["eval", "nowhere"], 1, "cannot be read"),
        (["render", "nowhere"], 1, "cannot be read"),
        (["plot", "nowhere"], 1, "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, monkeypatch, arguments, code, text):
    monkeypatch.chdir(tmp_path)
    found = " ".join(result(*arguments, code=code).replace("│", " ").split())
    assert text in found
    assert "Traceback" not in found


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"task": 1}', "\udcff"])
def test_a_config_that_is_none_is_refused(run, tmp_path, content):
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))
    assert "is no config of a run" in " ".join(result("eval", str(tmp_path), code=1).split())


@pytest.mark.parametrize("changed", [{"strategy": "magic"}, {"optimizer": "lion"}, {"seed": 2**80}, {"lr": 0}])
def test_a_config_of_no_run_is_refused(run, tmp_path, changed):
    config = json.loads((run / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    (name,) = changed
    assert f"is no config of a run: {name} is " in " ".join(result("eval", str(tmp_path), code=1).split())


def test_a_log_that_is_none_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/log.jsonl").write_text('{"generation": 0, "mean": 1, "std": 0}\n')
    assert "is no log of a run: a line has no best" in " ".join(result("plot", str(tmp_path / "run"), code=1).split())


@pytest.mark.slow
def test_ctrl_c_saves(tmp_path):
    command = [
        Path(sys.executable).with_name("shardes-train"),
        TASK,
        *SMALL,
        "--generations",
        "100000",
        "--devices",
        "2",
    ]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XLA_FLAGS": ""},
    )
    try:
        assert process.stderr.readline().startswith("generation 1/100000")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "SIGINT: the run ends after this generation" in err
    assert out.strip() == str(tmp_path / "run")
    done = len(log(tmp_path / "run"))
    assert str(done) in {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert (tmp_path / "run" / "curve.png").exists()


@pytest.mark.slow
def test_the_command_helps():
    command = Path(sys.executable).with_name("shardes-train")
    found = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0
    for name in ("train", "list", "eval", "render", "plot"):
        assert name in found.stdout


def test_without_its_extra_it_names_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(cli, "_NEEDED", ("typer", "no_such_plotter", "no_such_optimizer"))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    said = "shardes-train: it needs no_such_plotter, no_such_optimizer: pip install 'shardes-tasks[cli]'\n"
    assert capsys.readouterr().err == said
