"""A Hub on loopback for one test, with a small repository, and ways to make it answer otherwise."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from shardes.zoo import HubError
from shardes.zoo.hub import downloading
from shardes.zoo.hub.fetching import fetch

from .fakehub import Hub

WEIGHTS = bytes(range(256)) * 1200
MIB = 2**20


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tmp_path / "hub" / "org" / "small"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    with Hub(tmp_path / "hub") as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(downloading, "_PATIENCE", 20.0)
        yield running


def load(tmp_path: Path, **options: Any) -> bytes:
    """The weights that were fetched. Nothing of a file that was not finished may be left."""
    options.setdefault("cache_dir", tmp_path / "cache")
    started = time.monotonic()
    try:
        snapshot = fetch("org/small", **options)
        return (snapshot.folder / "model.safetensors").read_bytes()
    finally:
        assert time.monotonic() - started < 60
        assert list(tmp_path.glob("cache/**/*.incomplete")) == []


def refusal(tmp_path: Path, **options: Any) -> str:
    with pytest.raises(HubError) as caught:
        load(tmp_path, **options)
    return str(caught.value)


def weights(handler: Any) -> bool:
    return handler.command == "GET" and (handler.path.startswith("/cdn/") or handler.path.endswith(".safetensors"))


def api(handler: Any) -> bool:
    return handler.path.startswith("/api/models/")


def tree(handler: Any) -> bool:
    return "/tree/" in handler.path


def start(handler: Any, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.close_connection = True


def answering(which: Callable[[Any], bool], how: Callable[[Any], object]) -> Callable[[Any], bool]:
    def fault(handler: Any) -> bool:
        if which(handler):
            with contextlib.suppress(OSError):
                how(handler)
            return True
        return False

    return fault


def forever(handler: Any, part: bytes, pause: float = 0.0, most: int = 2**28) -> int:
    """Send until the other side has enough of it."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < most:
            handler.wfile.write(part)
            sent += len(part)
            time.sleep(pause)
    handler.close_connection = True
    return sent
