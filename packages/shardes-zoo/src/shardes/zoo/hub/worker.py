"""The process that talks with the Hub, run by its path: what hangs in it can be killed, what is global is its own.

A line of JSON that it reads names an operation and its arguments; lines that it writes hold the value or the error,
and until then the files that it makes and that bytes have moved. It ends when its input does, and never by Ctrl-C,
which is its parent's. It needs huggingface_hub alone, so that it starts without waiting for jax.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["causes"]

STEP = 2**17
"""Bytes that must move between two signs of progress."""
ANSWERS = 2**26
"""Bytes that the answers to one operation may have, beside the content of files."""
WAIT = 60.0
"""Seconds that the Hub may ask to wait."""


class Refused(Exception):
    """The Hub does what it must not."""


def causes(error: BaseException | None) -> list[dict[str, Any]]:
    """What there is to know of an error and its causes, as JSON can hold it."""
    found = []
    while error is not None:
        filename = getattr(error, "filename", None)
        fact = {
            "kinds": [kind.__name__ for kind in type(error).__mro__],
            "text": str(error)[:10_000],
            "status": getattr(getattr(error, "response", None), "status_code", None),
            "said": getattr(error, "server_message", None),
            "errno": getattr(error, "errno", None),
            "filename": None if filename is None else str(filename),
        }
        found.append(fact)
        error = error.__cause__
    return found


class Worker:
    """The state of the process: where it writes, what it has made, and what the Hub has sent."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.lock = threading.Lock()
        self.made: list[str] = []
        self.answered = self.moved = 0
        self.told = 0.0

    def send(self, **message: Any) -> None:
        with self.lock:
            self.channel.write(json.dumps(message) + "\n")
            self.channel.flush()

    def refuse(self, text: str, status: int | None = None) -> None:
        # Sent at once, since some of those who call this swallow what is raised.
        error = Refused(text)
        self.send(error=[causes(error)[0] | {"status": status}])
        raise error

    def move(self, count: int) -> None:
        """Bytes of a file have moved."""
        self.moved += max(count, 0)
        if self.moved >= STEP and time.monotonic() >= self.told + 0.2:
            self.moved, self.told = 0, time.monotonic()
            self.send(moved=True)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The client gives its unfinished files names of its own choice, which those who remove them must know."""
        if event == "open" and str(arguments[0]).endswith(".incomplete"):
            self.made.append(str(arguments[0]))
            self.send(made=str(arguments[0]))

    def check(self, response: Any) -> None:
        """Bound what a response makes the client do: wait, hold it in memory, and name files."""
        from huggingface_hub.utils._http import parse_ratelimit_headers

        headers, status = response.headers, response.status_code
        if status in (429, 503):
            limit = parse_ratelimit_headers(headers) if status == 429 else None
            after = headers.get("retry-after", "").strip()
            wait = int(after[:18]) if re.fullmatch("[0-9]+", after) else 0
            if limit and limit.remaining == 0:
                wait = limit.reset_in_seconds
            if wait > WAIT:
                self.refuse(f"refuses requests for {wait} seconds", status)
        # Names of files: what the client makes of them may have no path in it.
        for name in ("etag", "x-linked-etag", "x-repo-commit"):
            if response.request.method == "HEAD" and re.search(r"\.\.|[/\\]", headers.get(name, "").removeprefix("W/")):
                self.refuse(f"sends {name} {headers[name][:100]!r}, and no path may be in it")
        read = response.read

        def bounded() -> bytes:
            encoding = headers.get("content-encoding", "identity")
            if encoding != "identity":
                self.refuse(f"sends an answer in {encoding[:100]!r}, and was asked for none")
            raw = response.iter_raw
            response.iter_raw = lambda chunk_size=None: self.counted(raw(chunk_size))
            return read()  # type: ignore[no-any-return]

        # The content of files is not read so, but bit by bit.
        response.read = bounded

    def counted(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.answered += len(part)
            if self.answered > ANSWERS:
                self.refuse(f"answers with more than {ANSWERS} bytes")
            yield part

    def watch(self) -> None:
        """Set this in the client, all of which is this process's own."""
        from huggingface_hub import constants, set_client_factory
        from huggingface_hub.utils._http import default_client_factory

        def client() -> Any:
            made = default_client_factory()
            made.event_hooks["response"].append(self.check)
            made.headers["Accept-Encoding"] = "identity"
            return made

        def update(bar: Any, n: Any = 1) -> Any:
            self.move(int(n or 0))
            return shown(bar, n)

        tqdm = _tqdm()
        shown, tqdm.update = tqdm.update, update
        constants.DOWNLOAD_CHUNK_SIZE = STEP
        set_client_factory(client)
        sys.addaudithook(self.audit)

    def run(self, operation: str, token: Any, arguments: dict[str, Any]) -> None:
        from huggingface_hub import HfApi

        self.answered = 0
        try:
            api = HfApi(token=token, library_name="shardes-zoo")
            value = getattr(self, operation)(api, **arguments)
        except BaseException as error:
            self.send(error=causes(error))
        else:
            self.send(value=value)

    def commit(self, api: Any, repo_id: str, revision: str | None) -> Any:
        return api.model_info(repo_id, revision=revision, timeout=10).sha

    def remember(self, api: Any, repo_id: str, revision: str | None, cache_dir: str) -> None:
        """Write into the cache what a revision stands for."""
        api.resolve_revision(repo_id, revision=revision, cache_dir=cache_dir)

    def files(self, api: Any, repo_id: str, commit: str) -> Any:
        entries = [entry for entry in api.list_repo_tree(repo_id, revision=commit) if hasattr(entry, "blob_id")]
        return [(entry.path, entry.lfs.sha256 if entry.lfs else entry.blob_id, entry.size) for entry in entries]

    def download(self, api: Any, repo_id: str, commit: str, cache_dir: str, names: list[str], size: int) -> None:
        refuse = self.refuse

        class Bar(_tqdm()):  # type: ignore[misc]
            """Also a limit, which is told of bytes before they are written."""

            def __init__(self, *values: Any, name: str | None = None, **options: Any) -> None:
                self.written = 0 if name == "huggingface_hub.snapshot_download" else None
                super().__init__(*values, name=name, **options)

            def update(self, n: Any = 1) -> Any:
                if self.written is not None:
                    self.written += n
                    if self.written > size:
                        refuse(f"sends more than the {size} bytes that it lists for {', '.join(names)}")
                return super().update(n)

        api.snapshot_download(repo_id, revision=commit, cache_dir=cache_dir, allow_patterns=names, tqdm_class=Bar)

    def create(self, api: Any, repo_id: str, private: bool | None) -> None:
        api.create_repo(repo_id, private=private, exist_ok=True)

    def branch(self, api: Any, repo_id: str, revision: str) -> None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)

    def upload(self, api: Any, **arguments: Any) -> str:
        return str(api.upload_folder(**arguments).oid)


def _tqdm() -> Any:
    """The class of all progress bars of the client."""
    from huggingface_hub.utils.tqdm import tqdm

    return tqdm


def main() -> None:
    """Answer requests until the pipe ends, and leave no file that is not finished."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(os.fdopen(os.dup(1), "w", encoding="ascii"))
    # What others print must not come among the lines.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    sys.path[:] = json.loads(sys.stdin.buffer.readline())
    try:
        worker.watch()
        worker.send(value=None)
    except BaseException as error:
        worker.send(error=causes(error))
    for line in sys.stdin.buffer:
        threading.Thread(target=worker.run, kwargs=json.loads(line), daemon=True).start()
    for path in worker.made:
        with contextlib.suppress(OSError):
            os.unlink(path)
    os._exit(0)


if __name__ == "__main__":
    main()
