"""Environments stepped by processes of their own, one message a step and process."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from shardes.tasks.errors import TaskError
from shardes.tasks.gymnasium import stepping

__all__ = ["Workers"]

Array = np.ndarray[Any, Any]

_PATIENCE = 300.0
"""Seconds in which a process must answer."""

_GRACE = 5.0
"""Seconds in which it must close its environments."""


class Workers:
    """`count` equal environments, dealt out to `processes` workers, which end when this does.

    A worker is this Python on `stepping.py`, so that it imports neither the script that runs here nor JAX, and it
    ends with its connection, whatever ends this process. After an error all are gone.
    """

    def __init__(self, spec: Any, options: dict[str, Any], wrappers: Sequence[Any], count: int, processes: int) -> None:
        self._name = spec.id
        self._numbers = np.array_split(np.arange(count), processes)
        self._workers: list[_Worker] = []
        self._end = weakref.finalize(self, _end, self._workers, _GRACE)
        with self._gone_after_an_error():
            for numbers in self._numbers:
                self._workers.append(_Worker())
                made: Any = (spec, options, wrappers, len(numbers))
                self._workers[-1].connection.send((sys.path, pickle.dumps(CloudpickleWrapper(made))))
            for worker in range(processes):
                self._answer(worker)

    def reset(self, seeds: Array) -> Array:
        """As `Group.reset`."""
        answers = self._ask("reset", {w: (seeds[numbers],) for w, numbers in enumerate(self._numbers)})
        return np.concatenate(list(answers))

    def step(self, which: Array, actions: Any) -> tuple[Array, Array, Array]:
        """As `Group.step`; `which` ascends."""
        edges = np.searchsorted(which, [numbers[0] for numbers in self._numbers] + [self._numbers[-1][-1] + 1])
        asked = {
            worker: (which[start:end] - self._numbers[worker][0], stepping.part(actions, slice(start, end)))
            for worker, (start, end) in enumerate(itertools.pairwise(edges))
            if end > start
        }
        observations, rewards, ended = zip(*self._ask("step", asked), strict=True)
        return np.concatenate(observations), np.concatenate(rewards), np.concatenate(ended)

    def close(self) -> None:
        """Have every worker close its environments and end."""
        self._end()

    def _ask(self, method: str, arguments: dict[int, tuple[Any, ...]]) -> Iterable[Any]:
        with self._gone_after_an_error():
            for worker, given in arguments.items():
                try:
                    self._workers[worker].connection.send((method, given))
                except OSError:
                    raise self._died(worker) from None
            return [self._answer(worker) for worker in arguments]

    def _answer(self, worker: int) -> Any:
        connection = self._workers[worker].connection
        try:
            if not connection.poll(_PATIENCE):
                raise TaskError(
                    f"{self._who(worker)} has not answered for {_PATIENCE:g} seconds: an environment hangs. All "
                    "workers were ended."
                )
            sound, answer = connection.recv()
        except (EOFError, OSError):
            raise self._died(worker) from None
        if not sound:
            raise TaskError(f"{self._who(worker)} has failed:\n{answer}")
        return answer

    def _died(self, worker: int) -> TaskError:
        process = self._workers[worker].process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        code = process.returncode
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with status {code}"
        return TaskError(f"{self._who(worker)} ended {how}. What it wrote, if anything, is on the standard error.")

    def _who(self, worker: int) -> str:
        return f"Worker {worker} of {len(self._numbers)}, which steps {len(self._numbers[worker])} of {self._name},"

    @contextlib.contextmanager
    def _gone_after_an_error(self) -> Any:
        try:
            yield
        except BaseException:
            # Even after an interruption, since an answer to what was asked then would be taken for that to the next.
            self._end.detach()
            _end(self._workers, 0.0)
            raise


class _Worker:
    """A process, and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", stepping.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # An environment of JAX's must not take the accelerator, nor Ctrl-C end the workers of a run that saves.
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())


def _end(workers: list[_Worker], grace: float) -> None:
    """End processes; those that have not closed their environments after some seconds are killed."""
    for worker in workers:
        with contextlib.suppress(OSError):
            if grace:
                worker.connection.send(("close", ()))
    for worker in workers:
        try:
            worker.process.wait(grace)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.connection.close()
    workers.clear()
