"""The replay log: the fitness of every generation, from which trained params are rebuilt without evaluating anything.

A file is a line of JSON, which says what the run is, and then a record a generation: CRC-32 of the rest, the number of
the generation, the fitness. All numbers are little-endian.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardes.callbacks.base import Run, is_writer
from shardes.callbacks.watching import Watcher
from shardes.configuration import checksum, configuration, difference
from shardes.es import ShardedES
from shardes.generation import Generation
from shardes.locking import lock
from shardes.state import ESState

__all__ = ["ReplayError", "ReplayLog", "replay"]

_FORMAT = "shardes replay 1"
_MARK = json.dumps({"format": _FORMAT}).encode()[:-1]
_LARGEST_HEADER = 2**20
_HEAD = struct.Struct("<II")


class ReplayError(Exception):
    """A replay log cannot be read, or is not one of this run."""


class ReplayLog(Watcher):
    """A run's fitness on disk, a few bytes a member: appended generation by generation, read by `replay`.

    Opened by a run's state, a log is begun or gone on with. Records of generations that a resumed run does again stay
    as long as they come out the same; from the first that does not they are dropped, as is what a killed process left
    half-written. Opened without a state it is only read. It is a callback of `shardes.fit`, which closes it. In a run
    of many processes process 0 writes.

    Args:
        path: the file; its folder is made.
        es: the evolution strategy of the run.
        state: of a run that is to append. At generation 0 it begins a log, unless there is one of the same run.

    Raises:
        ReplayError: the file is not sound, is of another configuration, key or params, or lacks generations before
            the state's.
    """

    def __init__(self, path: str | os.PathLike[str], es: ShardedES, state: ESState | None = None) -> None:
        self.path = Path(path).absolute()
        self.es = es
        self._file: Any = None
        self._records_follow = False
        if state is not None and not is_writer():
            return
        if state is not None and int(state.generation) == 0 and not self._holds_records():
            self._begin(state)
        else:
            self._read_header()
            if state is not None:
                self._go_on(state)

    def append(self, generation: int, fitness: Any) -> None:
        """Write the fitness that generation `generation` was told; it is in the file when this returns.

        In a process that does not write it does nothing.

        Raises:
            ReplayError: the log was opened to be read, or the generation is not its next one.
        """
        if not is_writer():
            return
        if self._file is None:
            raise ReplayError(f"{self.path} was opened to be read. Give ReplayLog the state of the run to append.")
        values = np.asarray(fitness, np.float32)
        if generation != self._next:
            raise ReplayError(f"{self.path} goes on with generation {self._next}, got {generation}.")
        if self._next == 0 and not self._records_follow:
            self._write_header(values.shape)
        if values.shape != self._shape:
            raise ReplayError(f"{self.path} has fitness of shape {self._shape}, got {values.shape}.")
        rest = struct.pack("<I", generation) + values.astype("<f4").tobytes()
        self._write(struct.pack("<I", zlib.crc32(rest)) + rest)
        self._next += 1

    def _write(self, record: bytes) -> None:
        if self._records_follow:
            at = self._file.tell()
            if self._file.read(len(record)) == record:
                return
            self._file.seek(at)
            self._file.truncate()
            self._records_follow = False
        self._file.write(record)
        self._file.flush()

    def begin(self, run: Run) -> None:
        """Refuse a run that the log does not go on with."""
        if self._file is None or int(run.state.generation) != self._next:
            at = "was opened to be read" if self._file is None else f"goes on with generation {self._next}"
            self.close()
            raise ReplayError(f"{self.path} {at}, and the run is at {int(run.state.generation)}. Give it that state.")
        try:
            lock(self._file.fileno(), self.path)
        except ValueError:
            self.close()
            raise

    def watch(self, generation: Generation) -> None:
        """Append a generation's fitness."""
        self.append(generation.number, generation.fitness)

    def finish(self, run: Run) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file, its bytes on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def __enter__(self) -> ReplayLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """The fitness of every whole record, from generation 0 on, float32."""
        with open(self.path, "rb") as file:
            file.seek(self._start)
            size = _HEAD.size + 4 * int(np.prod(self._shape))
            generation = 0
            while len(record := file.read(size)) == size:
                if not self._sound(record, generation):
                    if file.read(1):
                        raise ReplayError(
                            f"{self.path} is damaged at generation {generation}, and records follow. Restore the file."
                        )
                    return  # half-written when the process ended
                yield np.frombuffer(record, "<f4", offset=_HEAD.size).reshape(self._shape).astype(np.float32)
                generation += 1

    @staticmethod
    def _sound(record: bytes, generation: int) -> bool:
        crc, number = _HEAD.unpack_from(record)
        return bool(crc == zlib.crc32(record[4:]) and number == generation)

    def _begin(self, state: ESState) -> None:
        self._header = {
            "format": _FORMAT,
            "configuration": configuration(self.es),
            "key": np.asarray(state.key).tolist(),
            "params": checksum(state.params),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # What it may hold goes when there is something to write, since another run may have it.
        self._file = open(self.path, "ab")  # noqa: SIM115
        self._next = 0

    def _holds_records(self) -> bool:
        """Whether the path holds more than a process leaves that is killed before its first generation is told."""
        try:
            with open(self.path, "rb") as file:
                begun = file.read(_LARGEST_HEADER)
        except FileNotFoundError:
            return False
        header, newline, rest = begun.partition(b"\n")
        ours = header.startswith(_MARK) or _MARK.startswith(header)
        return not ours or bool(newline and len(rest) >= _HEAD.size + 4 * self.es.n)

    def _write_header(self, shape: tuple[int, ...]) -> None:
        line = json.dumps({**self._header, "shape": shape}).encode() + b"\n"
        self._file.truncate(0)
        self._file.write(line)
        self._start, self._shape = len(line), shape

    def _read_header(self) -> None:
        try:
            with open(self.path, "rb") as file:
                line = file.readline(_LARGEST_HEADER)
        except OSError as error:
            raise ReplayError(f"{self.path} cannot be read: {error.strerror}.") from error
        try:
            header = json.loads(line)
            required = header["configuration"]
            self._shape = tuple(int(size) for size in header["shape"])
            sound = header["format"] == _FORMAT and self._shape[:1] == (self.es.n,) and len(self._shape) <= 2
            sound = sound and all(0 < size < 2**31 for size in self._shape) and isinstance(required, dict)
            self._key, self._params = [int(word) for word in header["key"]], str(header["params"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound or not line.endswith(b"\n"):
            raise ReplayError(f"{self.path} does not begin as a replay log of {self.es.n} members does.")
        self._start = len(line)
        found = difference(configuration(self.es), required)
        if found:
            raise ReplayError(
                f"{self.path} is of another configuration: {found}. Go on with the run's own, or give another file."
            )

    def _go_on(self, state: ESState) -> None:
        generation = int(state.generation)
        if generation == 0 and checksum(state.params) != self._params:
            raise ReplayError(f"{self.path} is of a run from other params. Move it away.")
        if np.asarray(state.key).tolist() != self._key:
            raise ReplayError(f"{self.path} is of a run with another key. Move it away.")
        held = sum(1 for _ in zip(range(generation), self, strict=False))
        if held < generation:
            raise ReplayError(f"{self.path} has {held} generations, and the state is at generation {generation}.")
        self._file = open(self.path, "rb+")  # noqa: SIM115
        self._file.seek(self._start + generation * (_HEAD.size + 4 * int(np.prod(self._shape))))
        self._next, self._records_follow = generation, True


def replay(params: Any, log: ReplayLog) -> ESState:
    """The state of a run after all generations of its log, from the params that it began with.

    Nothing is evaluated. Bitwise the run's own state where `es` is deterministic, on any devices; else to rounding.

    Raises:
        ReplayError: the params are not those that the run began with.
    """
    es = log.es
    state = es.init(jax.random.key(0), params)
    if checksum(state.params) != log._params:
        raise ReplayError(f"The params are not those that the run of {log.path} began with.")
    state = state._replace(key=jax.device_put(jnp.asarray(log._key, jnp.uint32), state.key.sharding))
    for fitness in log:
        pert, state = es.ask(state)
        state = es.tell(state, pert, jnp.asarray(fitness))
    return state
