"""The process that talks with the Hub: what it is given, that it ends with its parent, and pushes, which it makes."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from shardes import zoo
from shardes.zoo import HubError, ZooError
from shardes.zoo.hub import client, pushing

from .fakehub import Hub
from .hostile import WEIGHTS, answering, hub, load, refusal, start, weights
from .snapshots import CHECKPOINTS

__all__ = ["hub"]

# Each starts a process that talks to a server.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "revision", ["a" * 201, "é" * 101, "/etc/passwd", "-x", "", "a..b", "a\n", 7, b"main", ["main"]]
)
@pytest.mark.parametrize("offline", [False, True])
def test_what_is_no_revision_is_refused(hub: Hub, tmp_path: Path, revision: Any, offline: bool) -> None:
    message = refusal(tmp_path, revision=revision, offline=offline)
    assert "must be a branch, a tag or a commit" in message
    assert len(message) < 600
    assert hub.log == []


@pytest.mark.parametrize("token", ["hf_a\nb", "hf_a\r", "a b", "é", "\0"])
def test_a_token_that_no_header_holds_is_named(hub: Hub, tmp_path: Path, token: str) -> None:
    message = refusal(tmp_path, token=token)
    assert "character that no header can hold" in message
    assert token not in message
    assert hub.log == []


def test_a_token_is_a_str(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="token is a bytes, and must be a str"):
        load(tmp_path, token=b"hf_a")


def test_a_process_that_dies_is_named(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.sys, "executable", "/bin/false")
    assert "its process ended with 1" in refusal(tmp_path)
    monkeypatch.setattr(client.sys, "executable", "/nowhere/python")
    assert "/nowhere/python cannot be started to talk with the Hub: No such file or directory" in refusal(tmp_path)


def test_the_token_of_a_login_that_cannot_be_read(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path))
    assert f"The token of the login, in {tmp_path}, cannot be read: Is a directory. Log in again" in refusal(tmp_path)
    (tmp_path / "token").write_bytes(b"\xff")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    assert "cannot be read: 'utf-8' codec can't decode" in refusal(tmp_path)
    assert load(tmp_path, token=False) == WEIGHTS


def test_a_cache_may_be_named_from_the_home_folder(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path, cache_dir="~/cache") == WEIGHTS
    assert load(tmp_path, cache_dir="~/cache", offline=True) == WEIGHTS
    assert (tmp_path / "cache" / "models--org--small").is_dir()


@pytest.mark.parametrize("offline", [False, True])
def test_a_cache_that_may_not_be_read(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/of/another")

    monkeypatch.setattr(HfApi, "resolve_revision", refuse)
    message = refusal(tmp_path, offline=offline)
    assert message.startswith("org/small: /of/another cannot be used: Permission denied. See to its permissions")


SCRIPT = """
import sys
from shardes.zoo.hub.fetching import fetch
try:
    fetch("org/small", cache_dir=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True


needs_proc = pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(), reason="/proc")


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        (["-I"], {"PYTHONPATH": "evil"}),
        (["-X", "utf8"], {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
        ([], {"PYTHONIOENCODING": "utf-16"}),
    ],
)
def test_it_is_started_as_its_parent_was(
    hub: Hub, tmp_path: Path, flags: list[str], environment: dict[str, str]
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "json.py").write_text("raise SystemExit(3)")
    subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT, "é"],
        **{"env": os.environ | {"HF_ENDPOINT": hub.url} | environment, "cwd": tmp_path, "timeout": 120},
        check=True,
    )
    assert list(tmp_path.glob("é/**/model.safetensors"))


def test_it_must_be_a_file(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.worker, "__file__", "/some/archive.zip/worker.py")
    with pytest.raises(ZooError, match=r"^/some/archive.zip/worker.py is no file, .* Install shardes-zoo into"):
        load(tmp_path)


@contextlib.contextmanager
def stalled(hub: Hub, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, threading.Event]]:
    """A load in the middle of its weights, its process, and what lets it go on."""
    begun, end = threading.Event(), threading.Event()

    def stall(handler: Any) -> None:
        start(handler, Content_Length=str(len(WEIGHTS)))
        handler.wfile.write(WEIGHTS[: 2**17])
        begun.set()
        end.wait(60)
        handler.wfile.write(WEIGHTS[2**17 :])

    hub.fault = answering(weights, stall)
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, tmp_path / "cache"],
        **{"env": os.environ | environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        start_new_session=True,
    )
    try:
        assert begun.wait(60)
        assert list(tmp_path.glob("cache/**/*.incomplete"))
        (child,) = children(process.pid)
        yield process, child, end
    finally:
        end.set()
        process.kill()


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_what_is_interrupted(hub: Hub, tmp_path: Path, how: signal.Signals) -> None:
    with stalled(hub, tmp_path) as (process, child, _):
        process.send_signal(how)
        out, err = process.communicate(timeout=20)
        assert (out, err) == (b"interrupted\n" if how == signal.SIGINT else b"", b"")
        ended = time.monotonic()
        while not gone(child) or list(tmp_path.glob("cache/**/*.incomplete")):
            assert time.monotonic() < ended + 20


@needs_proc
def test_an_interrupt_is_for_the_parent(hub: Hub, tmp_path: Path) -> None:
    """A terminal sends it to both."""
    with stalled(hub, tmp_path) as (process, child, end):
        os.kill(child, signal.SIGINT)
        end.set()
        assert process.communicate(timeout=60) == (b"", b"")
        assert process.returncode == 0
    assert list(tmp_path.glob("cache/**/model.safetensors"))


def test_progress_is_shown(hub: Hub, tmp_path: Path) -> None:
    environment = os.environ | {"HF_ENDPOINT": hub.url, "TQDM_POSITION": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "cache"],
        **{"env": environment, "capture_output": True, "text": True, "timeout": 60},
    )
    assert "100%" in done.stderr
    assert done.stdout == ""


@pytest.fixture(scope="module")
def model() -> Any:
    return zoo.load(CHECKPOINTS / "qwen2-tiny-tied")


def push(model: Any, **options: Any) -> str:
    started = time.monotonic()
    with pytest.raises(HubError) as caught:
        zoo.push(model, model.params, "org/pushed", **{"token": "writer", **options})
    assert time.monotonic() - started < 60
    return str(caught.value)


def test_a_push_that_stands_still_ends(hub: Hub, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "_PATIENCE", 1.5)
    monkeypatch.setattr(pushing, "_PATIENCE_UPLOAD", 1.5)
    end = threading.Event()
    for path, doing in {
        "/create": "creation of the repository",
        "/branch/": "creation of b",
        "/cdn/": "upload",
    }.items():
        hub.fault = answering(lambda handler, path=path: path in handler.path, lambda _: end.wait(60))
        assert f"does not answer the {doing}: no progress in 1.5 seconds" in push(model, revision="b")
    end.set()


def test_a_push_is_not_told_to_wait_for_long(hub: Hub, model: Any) -> None:
    hub.fault = answering(
        lambda handler: handler.path.startswith("/cdn/"), lambda handler: handler.send(429, Retry_After="9999")
    )
    assert "refuses requests for 9999 seconds (upload)" in push(model)


def test_a_push_is_not_offline(hub: Hub, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "org/pushed cannot be pushed to with HF_HUB_OFFLINE. Unset it." in push(model)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert "character that no header can hold" in push(model, token="writer\n")
    assert hub.log == []
