"""The parent's side of the process that talks with the Hub: it waits while there is progress, then kills it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

from shardes.zoo.errors import HubError
from shardes.zoo.hub import worker
from shardes.zoo.scripts import script_of

__all__ = ["Client", "Failure", "resolve_token"]

# Seconds for the start of the process, whose imports may come from a slow network disk.
_START = 600.0


class Failure(Exception):
    """An operation failed, by `causes` as `worker.causes` has them, which `shardes.zoo.hub.errors` explains."""

    def __init__(self, causes: list[dict[str, Any]]) -> None:
        super().__init__(causes[0]["text"])
        self.causes = causes


class Client:
    """A process of huggingface_hub, within `with`. None of it is left then, nor any file that it did not finish.

    The environment is that of this process, with the Hub's address and the state of progress bars as they are here.
    What else was set in huggingface_hub by code, such as `set_client_factory`, does not reach it.
    """

    def __init__(self) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils.tqdm import are_progress_bars_disabled

        environment = os.environ | {"HF_ENDPOINT": constants.ENDPOINT}
        if are_progress_bars_disabled():
            environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        # As this process was started: names of files are read alike, and what it ignores is ignored.
        flags = ["-P", "-X", f"utf8={sys.flags.utf8_mode}", *["-E"] * sys.flags.ignore_environment]
        command = [sys.executable, *flags, script_of(worker)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "ascii"}
        try:
            self._process = subprocess.Popen(command, env=environment, **pipes)
        except OSError as error:
            raise HubError(
                f"{sys.executable} cannot be started to talk with the Hub: {error.strerror}. Check sys.executable and "
                "the limits on processes, or download in another process and use offline=True."
            ) from error
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._made: list[str] = []
        self._started = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        self._write(sys.path)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for path in self._made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def call(
        self,
        operation: str,
        token: str | bool | None,
        patience: float,
        measure: Callable[[], object] = lambda: None,
        **arguments: Any,
    ) -> Any:
        """The value of an operation of `worker.Worker`.

        Args:
            operation: its name.
            token: of the Hub, by `resolve_token`.
            patience: seconds without progress after which it has failed.
            measure: what shows progress that the process does not know of, by a change of its value.
            arguments: of the operation.

        Raises:
            Failure: it failed, or there is no progress.
        """
        if not self._started:
            self._answer(_START)
            self._started = True
        self._write({"operation": operation, "token": token, "arguments": arguments})
        return self._answer(patience, measure)

    def _write(self, message: Any) -> None:
        assert self._process.stdin is not None
        # A process that has ended is found by its missing answer.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _answer(self, patience: float, measure: Callable[[], object] = lambda: None) -> Any:
        measured = measure()
        while True:
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                before, measured = measured, measure()
                if measured == before:
                    raise Failure(worker.causes(TimeoutError(f"no progress in {patience:g} seconds"))) from None
                continue
            if line is None:
                raise Failure(worker.causes(RuntimeError(f"its process ended with {self._process.wait()}")))
            if "error" in line:
                raise Failure(line["error"])
            if "value" in line:
                return line["value"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "made" in line:
                self._made.append(line["made"])
            else:
                self._lines.put(line)
        self._lines.put(None)


def resolve_token(token: str | bool | None) -> str | bool | None:
    """The token to send, that of the environment for None, as far as a header can hold it."""
    from huggingface_hub import constants, get_token

    if not isinstance(token, str | bool | None):
        raise TypeError(f"token is a {type(token).__name__}, and must be a str, False for none, or None.")
    if token is True or (token is None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN):
        try:
            token = get_token() or token
        except (OSError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise HubError(
                f"The token of the login, in {constants.HF_TOKEN_PATH}, cannot be read: {why}. Log in again with `hf "
                "auth login`, or pass token=, False for none."
            ) from error
    if isinstance(token, str) and not re.fullmatch("[!-~]*", token):
        raise HubError(
            "The token holds a space, a line break or another character that no header can hold, and must be of "
            f"letters, digits and punctuation. Copy it again from {constants.ENDPOINT}/settings/tokens."
        )
    return token
