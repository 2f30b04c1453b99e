"""What callbacks write and show, from real runs, and when they end one."""

import json
import os
import pty
import re
import subprocess
import sys
import textwrap
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardes
from shardes.callbacks import Checkpoint, EarlyStop, JSONLLog, Progress, Run, TensorBoard
from shardes.generation import Summary

from .support import make_es, slow


def loss(params, target):
    return jnp.sum((params["w"] - target) ** 2)


PARAMS = {"w": jnp.arange(6, dtype=jnp.float32)}
TARGET = np.ones(6, np.float32)


@pytest.fixture(scope="module")
def es():
    return make_es("seed", 8)


def begin(es):
    return es.init(jax.random.key(0), PARAMS)


def fit(es, generations, *callbacks, state=None, data=TARGET):
    state = begin(es) if state is None else state
    return shardes.fit(es, state, loss, data=data, generations=generations, callbacks=callbacks)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_log_has_a_line_a_generation(es, tmp_path):
    _, history = fit(es, 5, JSONLLog(tmp_path / "new" / "log.jsonl"))
    found = lines(tmp_path / "new" / "log.jsonl")
    assert [tuple(line) for line in found] == [Summary._fields] * 5
    for name in Summary._fields[:-1]:
        np.testing.assert_array_equal([line[name] for line in found], getattr(history, name))
    np.testing.assert_allclose([line["seconds"] for line in found], history.seconds, atol=1e-6)


@pytest.mark.parametrize("torn", [b"", b'{"gen', b'{"generation": 3, "mean": 1'])
def test_a_log_goes_on_where_the_run_does(es, tmp_path, torn):
    path = tmp_path / "log.jsonl"
    state, _ = fit(es, 2, JSONLLog(path))
    fit(es, 3, JSONLLog(path), state=state)
    with open(path, "ab") as file:
        file.write(torn)
    first = lines(path)[:2] if not torn else None
    fit(es, 5, JSONLLog(path), state=state)
    found = lines(path)
    assert [line["generation"] for line in found] == list(range(5))
    assert first is None or found[:2] == first
    assert np.diff([line["seconds"] for line in found]).min() >= 0


@pytest.mark.parametrize(
    "content", [b"a diary\n", b"[1]\n", b'{"generation": "x"}\n', b"\xff", b"x" * 2**17, b'{"generation": NaN}\n']
)
def test_what_is_no_log_is_left_alone(es, tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(ValueError, match=r"holds what no run wrote, b.* Choose another file"):
        fit(es, 1, JSONLLog(tmp_path / "log"))
    assert (tmp_path / "log").read_bytes() == content


def test_what_is_not_finite_is_null(es, tmp_path):
    fit(es, 1, JSONLLog(tmp_path / "log"), data=np.full(6, np.nan, np.float32))
    (line,) = lines(tmp_path / "log")
    assert (line["mean"], line["best"], line["std"], line["non_finite"]) == (None, None, None, 8)


def test_a_line_is_there_as_soon_as_the_run_has_its_numbers(es, tmp_path):
    path, seen = tmp_path / "log", []
    fit(es, 6, JSONLLog(path), lambda generation: seen.append(len(lines(path))))
    assert seen == [0, 0, 0, 1, 2, 3]
    assert len(lines(path)) == 6


def test_tensorboard_reads_what_was_written(es, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, history = fit(es, 5, TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = {
        "fitness/mean": history.mean,
        "fitness/best": history.best,
        "fitness/std": history.std,
        "update_ratio": history.update_ratio,
        "non_finite": history.non_finite,
    }
    assert set(events.Tags()["tensors"]) == set(tags)
    for tag, expected in tags.items():
        found = events.Tensors(tag)
        assert [one.step for one in found] == list(range(5))
        values = [
            np.asarray(one.tensor_proto.float_val or np.frombuffer(one.tensor_proto.tensor_content, "f4"))
            for one in found
        ]
        np.testing.assert_allclose(np.ravel(values), expected, rtol=1e-6)


def test_patience(es):
    means = [5.0, 4.0, 4.5, 4.0, 3.0, 3.5, 3.0, 2.99, 9.0]

    def ends(stop):
        stop.start(None)
        for number, mean in enumerate(means):
            summary = Summary(number, mean, mean, 0.0, 0, 0.0, 0.0)
            if stop.generation(type("Over", (), {"summary": summary})):
                return number
        return None

    assert ends(EarlyStop(patience=2)) == 3
    assert ends(EarlyStop(patience=3)) is None
    assert ends(EarlyStop(patience=3, min_delta=0.1)) == 7
    assert ends(EarlyStop(target=3.0)) == 4
    assert ends(EarlyStop(patience=100)) is None
    _, history = fit(es, 400, EarlyStop(target=10.0))
    assert history.ended == "callback"
    assert history.mean[-1] <= 10 < history.mean[:-1].min()
    with pytest.raises(ValueError, match="patience is None, and must be at least 1, or a target be given"):
        EarlyStop()
    with pytest.raises(ValueError, match="patience is 0"):
        EarlyStop(0)
    with pytest.raises(ValueError, match="min_delta is nan"):
        EarlyStop(3, min_delta=float("nan"))


def test_plain_lines(es, capsys):
    _, history = fit(es, 15, Progress(tokens=100, every=3600))
    out, err = capsys.readouterr()
    assert out == ""
    head, last = err.splitlines()
    numbers = r"mean (\S+)  best \S+  std \S+  update \S+  non-finite 0"
    assert float(re.fullmatch(rf"generation 1/15  {numbers}", head)[1]) == pytest.approx(history.mean[0], rel=1e-5)
    found = re.fullmatch(rf"generation 15/15  {numbers}  members/s (\S+)  tokens/s \S+", last)
    assert float(found[1]) == pytest.approx(history.mean[-1], rel=1e-5)
    fit(es, 5, Progress(every=0))
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 5
    # Three of them may have been seen to be over at once.
    assert "members/s" not in shown
    fit(es, 50, Progress(every=3600), lambda generation: generation.number == 2)
    assert capsys.readouterr().err.splitlines()[1:][-1] == "The run ended by callback."


class Stream:
    """A stderr as a notebook may have it: it takes text and is no file. Once gone it takes none."""

    def __init__(self):
        self.text = ""
        self.gone = False

    def write(self, text):
        if self.gone:
            raise BrokenPipeError
        self.text += text

    def flush(self):
        pass


def test_any_stderr_will_do(es, monkeypatch, capsys):
    stream = Stream()
    monkeypatch.setattr("sys.stderr", stream)
    fit(es, 3, Progress(every=0))
    assert len(stream.text.splitlines()) == 3
    stream.gone = True
    _, history = fit(es, 3, Progress(every=0), lambda generation: generation.number == 1)
    assert len(history) == 2
    monkeypatch.setattr("sys.stderr", None)
    fit(es, 3, Progress(every=0))
    assert capsys.readouterr().out == ""


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(es, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    fit(es, 3, Progress(every=0))
    found = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert found == ["generation 1/3", "generation 2/3", "generation 3/3"]


def test_files_are_where_they_were_said_to_be(es, tmp_path, monkeypatch):
    """Wherever the process goes afterwards."""
    monkeypatch.chdir(tmp_path)
    state = begin(es)
    callbacks = [
        JSONLLog("log"), TensorBoard("events"), Checkpoint("checkpoints"), shardes.ReplayLog("replay", es, state)
    ]  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    fit(es, 3, *callbacks, state=state)
    assert len(list(callbacks[-1])) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("place", ["generation", "data"])
def test_what_is_over_is_logged_when_something_raises(es, tmp_path, place):
    def broken(generation):
        if place == "generation" and generation.number == 4:
            raise RuntimeError("this")

    def data(generation):
        if place == "data" and generation == 5:
            raise RuntimeError("this")
        return TARGET

    with pytest.raises(RuntimeError, match="this"):
        fit(es, 9, JSONLLog(tmp_path / "log"), broken, data=data)
    assert [line["generation"] for line in lines(tmp_path / "log")] == [0, 1, *([2] if place == "data" else [])]


def test_rates_are_those_of_the_last_half_minute(es):
    """Two generations a second of 8 members, after a first that took a minute to compile."""
    progress = Progress(tokens=10, every=1e9)
    progress.begin(Run(es, begin(es), 200))
    for number in range(100):
        summary = Summary(number, 1.0, 1.0, 0.0, 0, 0.0, 60 + number / 2)
        progress.watch(type("Over", (), {"summary": summary}))
    numbers = dict(progress._numbers(summary))
    assert (numbers["members/s"], numbers["tokens/s"]) == ("16", "160")
    assert progress._left() == "0:00:50"


SCRIPT = """
    import jax, jax.numpy as jnp, shardes, sys
    es = shardes.ShardedES(shardes.SeedRegenerated(), 8, sigma=0.1, lr=0.1, mesh=shardes.make_mesh(jax.devices()[:1]))
    state = es.init(jax.random.key(0), {"w": jnp.ones(6)})
    shardes.fit(es, state, lambda params: jnp.sum(params["w"] ** 2), generations=300,
                callbacks=[shardes.callbacks.Progress(tokens=1000)])
    print("done")
"""


@slow
@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_sees_a_bar_and_the_numbers(columns):
    terminal, child = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], env=environment, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    timer = threading.Timer(120, process.kill)
    timer.start()
    seen = b""
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:
        pass  # how Linux says that the other side is closed
    finally:
        timer.cancel()
        os.close(terminal)
    status = process.wait(timeout=60)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert status == 0, text
    assert "300/300" in text
    for word in ("mean", "best", "std", "update", "non-finite", "members/s", "tokens/s", "done"):
        assert word in text
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= columns


@slow
def test_a_missing_extra_is_named(tmp_path):
    script = """
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name in ("orbax", "tensorboard", "rich") else found(name)
        import sys, shardes
        sys.stderr.isatty = lambda: True
        from shardes.callbacks import Checkpoint, Progress, TensorBoard
        for make in (Checkpoint, TensorBoard, lambda _: Progress()):
            try:
                make("folder")
            except ImportError as error:
                print(error)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for extra in ("checkpoint", "tensorboard", "progress"):
        assert f"pip install 'shardes-core[{extra}]'" in out


def test_one_run_at_a_time_writes(es, tmp_path):
    """What another has open is refused with its name, and free again when that one is over."""
    makers = {
        "log.jsonl": lambda: JSONLLog(tmp_path / "log.jsonl"),
        "checkpoints": lambda: Checkpoint(tmp_path / "checkpoints"),
        "replay": lambda: shardes.ReplayLog(tmp_path / "replay", es, begin(es)),
    }
    for name, make in makers.items():
        refused = []

        def other(generation, make=make, refused=refused):
            with pytest.raises(ValueError, match=r"is written to by another run. Wait for its end") as error:
                fit(es, 1, make())
            refused.append(str(error.value))

        fit(es, 1, make(), other)
        assert len(refused) == 1
        assert str(tmp_path / name) in refused[0]
    fit(es, 1, JSONLLog(tmp_path / "log.jsonl"))
