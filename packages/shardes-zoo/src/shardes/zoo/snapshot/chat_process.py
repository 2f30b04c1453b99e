"""The process that renders chat templates: started when it is first asked, kept, and killed when it takes too long.

It runs `chat_worker` with this interpreter, isolated: no site, no environment, and of the packages only the folders of
jinja2 and markupsafe, which are found from here, so that a virtual environment needs no activation.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from shardes.zoo.errors import ZooError
from shardes.zoo.scripts import script_of
from shardes.zoo.snapshot import chat_worker
from shardes.zoo.snapshot.chat_worker import HEADER, OUT_OF_MEMORY

__all__ = ["ask"]

_MEMORY = 2**29
_START_SECONDS = 60.0
# That of the longest text with every character escaped.
_MAX_ANSWER = 2**27
_PIECE = 2**20
# Where the interpreter's own libraries lie, what Windows needs to start a process, and the zone of `strftime_now`.
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")


def ask(request: Mapping[str, Any], seconds: float) -> dict[str, str]:
    """What the process answers: a text, or an error, of which one is that it did not survive the request.

    Args:
        request: a template and its variables.
        seconds: how long it may take.

    Raises:
        ZooError: the process cannot be started.
    """
    global _worker
    content = json.dumps({**request, "seconds": seconds + 1}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with _lock:
        if _worker is None or not _worker.is_alive():
            _stop()
            _worker = _Worker()
        try:
            answer = _worker.ask(content, seconds)
        except _Ended as error:
            _stop()
            return {"error": str(error)}
        except BaseException:
            # The answer to what was interrupted must not be taken for that to the next request.
            _stop()
            raise
    return cast(dict[str, str], json.loads(answer))


class _Ended(Exception):
    """The process ended before it answered."""


class _Worker:
    def __init__(self) -> None:
        self._process = _started()
        self._stdin, self._stdout = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        try:
            self.ask(b"", _START_SECONDS)
        except _Ended as error:
            raise _not_startable(f"{sys.executable}: {error}") from None
        except BaseException:
            self.end()
            raise

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, content: bytes, seconds: float) -> bytes:
        """The answer to a request; to none, that it is ready. Raises _Ended."""
        late = threading.Event()

        def expire() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            answer = self._exchange(content)
        finally:
            timer.cancel()
            timer.join()
        if answer is not None and not late.is_set():
            return answer
        status = self.end()
        if late.is_set():
            raise _Ended(f"it takes more than {seconds:g} seconds")
        if status == OUT_OF_MEMORY:
            raise _Ended(f"it takes more memory than {_MEMORY >> 20} MiB")
        raise _Ended(f"its process ended with status {status}")

    def end(self) -> int:
        """End the process, if it has not ended, and the status with which it did."""
        self._process.kill()
        self._close()
        return self._process.wait()

    def disown(self) -> None:
        """Forget the process in a fork of its parent, which can neither ask it nor wait for it."""
        self._close()
        self._process.returncode = 0

    def _close(self) -> None:
        self._stdin.close()
        self._stdout.close()

    def _exchange(self, content: bytes) -> bytes | None:
        try:
            if content:
                self._write(HEADER.pack(len(content)))
                self._write(content)
            (size,) = HEADER.unpack(self._read(HEADER.size))
            return self._read(size) if size <= _MAX_ANSWER else None
        except (OSError, EOFError):
            return None

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[self._stdin.write(left) :]

    def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            piece = self._stdout.read(min(size - len(content), _PIECE))
            if not piece:
                raise EOFError
            content += piece
        return bytes(content)


def _started() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise _not_startable("sys.executable is empty")
    script = script_of(chat_worker)
    folders = dict.fromkeys(map(_folder, ("jinja2", "markupsafe")))
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(_MEMORY), *folders],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(script).parent,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except OSError as error:
        raise _not_startable(f"{sys.executable}: {error.strerror}") from None


def _not_startable(why: str) -> ZooError:
    return ZooError(
        f"The process that renders chat templates cannot be started: {why}. sys.executable must be the path of a "
        "Python. Set it, or encode a text of your own."
    )


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}, which chat templates need.", name=package)
    return str(Path(spec.origin).parents[1])


def _stop() -> None:
    global _worker
    if _worker is not None:
        _worker.end()
    _worker = None


def _after_fork() -> None:
    """A forked process has a worker of its own, and does not keep that of its parent alive."""
    global _worker, _lock
    if _worker is not None:
        _worker.disown()
    _worker, _lock = None, threading.Lock()


_lock = threading.Lock()
_worker: _Worker | None = None
atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
