"""A Hub that never ends, sends too much, or names paths: what it does ends, and leaves nothing behind."""

import contextlib
import gzip
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from shardes.zoo.hub import downloading, worker

from .fakehub import Hub
from .hostile import MIB, WEIGHTS, answering, api, forever, hub, load, refusal, start, tree, weights

__all__ = ["hub"]

# Each starts a process that talks to a server.
pytestmark = pytest.mark.slow


@pytest.fixture
def impatient(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_PATIENCE", 1.5)


def test_a_body_that_is_longer_than_listed_is_never_written(hub: Hub, tmp_path: Path) -> None:
    largest = [0]

    def endless(handler: Any) -> None:
        start(handler, Content_Length=str(2**40))
        for _ in range(100):
            handler.wfile.write(bytes(MIB))
            sizes = [path.stat().st_size for path in tmp_path.glob("cache/**/*.incomplete")]
            largest[0] = max(largest[0], *sizes, 0)

    hub.fault = answering(weights, endless)
    message = refusal(tmp_path)
    assert f"sends more than the {len(WEIGHTS) + 2} bytes that it lists for config.json, model.safetensors" in message
    assert largest[0] <= len(WEIGHTS)
    hub.fault = None
    assert load(tmp_path) == WEIGHTS


def test_a_small_file_may_not_be_a_large_one(hub: Hub, tmp_path: Path) -> None:
    def endless(handler: Any) -> None:
        start(handler, ETag='"x"', X_Repo_Commit="c")
        if handler.command == "GET":
            forever(handler, bytes(MIB))

    hub.fault = answering(lambda handler: handler.path.endswith("/config.json"), endless)
    assert "sends more than" in refusal(tmp_path)


def test_a_compressed_body_is_bounded_too(hub: Hub, tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(200 * MIB))

    def send(handler: Any) -> None:
        handler.send(200, bomb, Content_Encoding="gzip")

    hub.fault = answering(weights, send)
    assert "sends more than" in refusal(tmp_path)
    hub.fault = answering(api, send)
    assert "sends an answer in 'gzip', and was asked for none" in refusal(tmp_path)


@pytest.mark.usefixtures("impatient")
def test_a_dribble_ends(hub: Hub, tmp_path: Path) -> None:
    def dribble(handler: Any) -> None:
        start(handler, Content_Length=str(len(WEIGHTS)))
        forever(handler, b"x", 0.05)

    hub.fault = answering(weights, dribble)
    message = refusal(tmp_path)
    assert "does not answer the download of config.json, model.safetensors: no progress in 1.5 seconds" in message


@pytest.mark.usefixtures("impatient")
def test_a_dribble_of_headers_ends(hub: Hub, tmp_path: Path) -> None:
    hub.fault = answering(api, lambda handler: forever(handler, b"HTTP/1.1 200 OK\r\nX: y", 0.05))
    assert "does not answer the request: no progress" in refusal(tmp_path)


def test_a_slow_transfer_is_awaited(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "_PATIENCE", 3.0)
    # What the process says of its progress is enough, as it must be for what it buffers.
    monkeypatch.setattr(downloading, "unfinished", lambda *_: 0)
    content = WEIGHTS * 8

    def slow(handler: Any) -> None:
        start(handler, Content_Length=str(len(content)))
        for at in range(0, len(content), 2**18):
            handler.wfile.write(content[at : at + 2**18])
            time.sleep(0.5)

    (hub.root / "org" / "small" / "model.safetensors").write_bytes(content)
    hub.fault = answering(weights, slow)
    assert load(tmp_path) == content


def test_a_lock_is_awaited_while_its_owner_makes_progress(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "_PATIENCE", 1.5)
    digest = hub.entry(hub.root / "org" / "small" / "model.safetensors")["lfs"]["oid"]
    cache = tmp_path / "cache"
    (cache / "models--org--small" / "blobs").mkdir(parents=True)
    (cache / ".locks" / "models--org--small").mkdir(parents=True)
    other = cache / "models--org--small" / "blobs" / f"{digest}.other.incomplete"
    held = threading.Event()

    def hold() -> None:
        with FileLock(cache / ".locks" / "models--org--small" / f"{digest}.lock"):
            held.set()
            for _ in range(20):
                with other.open("ab") as file:
                    file.write(b"more")
                time.sleep(0.25)
            other.unlink()

    owner = threading.Thread(target=hold)
    owner.start()
    held.wait(10)
    assert load(tmp_path) == WEIGHTS
    owner.join()


@pytest.mark.parametrize("status", [429, 503])
def test_a_short_wait_is_waited(hub: Hub, tmp_path: Path, status: int) -> None:
    refused = []

    def once(handler: Any) -> bool:
        if not tree(handler) or refused:
            return False
        refused.append(handler.path)
        handler.send(status, Retry_After="1")
        return True

    hub.fault = once
    assert load(tmp_path) == WEIGHTS
    assert len(refused) == 1


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("which", [tree, weights])
def test_a_long_wait_is_not(hub: Hub, tmp_path: Path, status: int, which: Any) -> None:
    hub.fault = answering(which, lambda handler: handler.send(status, Retry_After=str(10**9)))
    assert "refuses requests for 1000000000 seconds" in refusal(tmp_path)


def test_the_wait_of_a_rate_limit_is_bounded(hub: Hub, tmp_path: Path) -> None:
    hub.fault = answering(tree, lambda handler: handler.send(429, RateLimit='"api";r=0;t=4000'))
    assert "refuses requests for 4000 seconds" in refusal(tmp_path)


def test_a_hub_out_of_order_for_long_leaves_the_cache(hub: Hub, tmp_path: Path) -> None:
    load(tmp_path)
    hub.fault = answering(api, lambda handler: handler.send(503, Retry_After=str(10**9)))
    with pytest.warns(UserWarning, match="Taken from the cache") as caught:
        assert load(tmp_path) == WEIGHTS
    # The line outside of the zoo that asked for it.
    assert [Path(entry.filename).name for entry in caught] == ["hostile.py"]


@pytest.mark.parametrize(("which", "status"), [(api, 200), (api, 404), (api, 302), (weights, 404)])
def test_an_answer_is_bounded(hub: Hub, tmp_path: Path, which: Any, status: int) -> None:
    def endless(handler: Any) -> None:
        start(handler, status, Content_Type="application/json", Location=f"{hub.url}/elsewhere")
        forever(handler, b" " * MIB)

    hub.fault = answering(which, endless)
    assert f"answers with more than {worker.ANSWERS} bytes" in refusal(tmp_path)


def test_a_list_without_an_end_ends(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(size: int) -> Callable[[Any], None]:
        entries = [{"type": "file", "path": f"f{i}", "size": 1, "oid": "a" * 40} for i in range(size)]
        return lambda handler: handler.send(200, entries, Link=f'<{hub.url}{handler.path}>; rel="next"')

    hub.fault = answering(tree, page(20_000))
    assert f"answers with more than {worker.ANSWERS} bytes" in refusal(tmp_path)
    monkeypatch.setattr(downloading, "_PATIENCE", 1.5)
    hub.fault = answering(tree, page(0))
    assert "does not answer the list of files: no progress" in refusal(tmp_path)


@pytest.mark.parametrize("which", [api, lambda handler: "/resolve/" in handler.path, weights])
@pytest.mark.parametrize("relative", [False, True])
def test_redirects_end(hub: Hub, tmp_path: Path, which: Any, relative: bool) -> None:
    base = "" if relative else hub.url
    hub.fault = answering(which, lambda handler: handler.send(302, Location=base + handler.path))
    assert "TooManyRedirects" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("header", "value"), [("ETag", '"../../../evil"'), ("X_Linked_Etag", 'W/"/evil"'), ("X_Repo_Commit", "a\\evil")]
)
def test_headers_name_no_path(hub: Hub, tmp_path: Path, header: str, value: str) -> None:
    headers = {"ETag": '"e"', "X_Repo_Commit": "c", header: value}
    hub.fault = answering(lambda handler: handler.command == "HEAD", lambda h: h.send(200, b"{}", **headers))
    assert "and no path may be in it" in refusal(tmp_path)
    assert list(tmp_path.rglob("*evil*")) == []


@pytest.mark.parametrize("size", [None, -1, True])
def test_a_size_that_is_none_is_named(hub: Hub, tmp_path: Path, size: Any) -> None:
    entry = {"type": "file", "path": "config.json", "size": size, "oid": "a" * 40}
    hub.fault = answering(tree, lambda handler: handler.send(200, [entry]))
    assert f"the Hub lists config.json with size {size}, which is none" in refusal(tmp_path)


def xet(hub: Hub, tmp_path: Path, store: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Offers the weights by Xet, whose store, at the same address, does something."""
    commit = hub.commit(hub.root / "org" / "small")
    about = {"X_Xet_Hash": "b" * 64, "X_Xet_Refresh_Route": f"{hub.url}/api/models/org/small/xet-read-token/main"}
    digest = hub.entry(hub.root / "org" / "small" / "model.safetensors")["lfs"]["oid"]
    token = {"X_Xet_Cas_Url": f"{hub.url}/store", "X_Xet_Access_Token": "t", "X_Xet_Token_Expiration": str(2**40)}

    def fault(handler: Any) -> bool:
        if "/xet-read-token/" in handler.path:
            handler.send(200, {"casUrl": f"{hub.url}/store", "exp": 2**40, "accessToken": "t"}, **token)
        elif handler.command == "HEAD" and handler.path.endswith("/model.safetensors"):
            headers = {"X_Linked_Etag": f'"{digest}"', "X_Linked_Size": str(len(WEIGHTS)), "X_Repo_Commit": commit}
            handler.send(302, Location=hub.cdn + digest, **headers, **about)
        elif handler.path.startswith("/store"):
            with contextlib.suppress(OSError):
                store(handler)
        else:
            return False
        return True

    return fault


def test_xet_that_stands_still_ends(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hf_xet")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "0")
    monkeypatch.setattr(downloading, "_PATIENCE", 2.5)
    asked = threading.Event()

    def store(handler: Any) -> None:
        asked.set()
        start(handler)
        forever(handler, b" ", 0.05)

    hub.fault = xet(hub, tmp_path, store)
    assert "does not answer the download of config.json, model.safetensors" in refusal(tmp_path)
    assert asked.is_set()


def test_xet_that_has_nothing_is_an_error(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hf_xet")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "0")
    hub.fault = xet(hub, tmp_path, lambda handler: handler.send(404))
    assert "the download of config.json, model.safetensors failed" in refusal(tmp_path)


def test_without_xet_the_same_file_is_fetched_and_verified(hub: Hub, tmp_path: Path) -> None:
    hub.fault = xet(hub, tmp_path, lambda handler: handler.send(404))
    assert load(tmp_path) == WEIGHTS
