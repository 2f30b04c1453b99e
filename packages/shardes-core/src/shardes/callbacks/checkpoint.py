"""Checkpoints of a run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import jax

from shardes.callbacks.base import Callback, Run, is_writer
from shardes.callbacks.storage import CheckpointError, Storage
from shardes.counts import is_count
from shardes.es import ShardedES
from shardes.generation import Generation
from shardes.processes import from_first, replicate
from shardes.state import ESState

__all__ = ["Checkpoint"]


class Checkpoint(Callback):
    """Saves the state of a run every few generations and at its end, and restores it.

        checkpoint = shardes.callbacks.Checkpoint("run/checkpoints", every=50)
        state = checkpoint.restore(es, es.init(key, params))
        state, history = shardes.fit(es, state, loss, data=data, generations=1000, callbacks=[checkpoint])

    A checkpoint holds params, optimizer state, key, generation and counters, with their checksum and what the evolution
    strategy is made of. It is written while the run goes on, and takes its place when it is whole. By orbax, the extra
    `checkpoint`. In a run of many processes process 0 writes and reads, and the others need not see the folder.

    Args:
        folder: holds a folder a checkpoint, named by the number of generations done.
        every: generations between checkpoints; each waits for its generation and copies the state to the host.
        keep_last: how many of the latest are kept.
        keep_best: how many of those with the lowest mean fitness of their last generation are kept besides.

    Raises:
        ImportError: the extra is missing.
        ValueError: a number is not a count.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, every: int = 100, keep_last: int = 3, keep_best: int = 0
    ) -> None:
        if importlib.util.find_spec("orbax") is None:
            raise ImportError("Checkpoint needs more: pip install 'shardes-core[checkpoint]'")
        for name, value in (("every", every), ("keep_last", keep_last)):
            if not is_count(value):
                raise ValueError(f"{name} is {value!r}, and must be an integer of at least 1.")
        if keep_best != 0 and not is_count(keep_best):
            raise ValueError(f"keep_best is {keep_best!r}, and must be an integer of at least 0.")
        self.folder = Path(folder).absolute()
        self.every = every
        self.keep_last = keep_last
        self.keep_best = keep_best
        self._storage: Storage | None = None

    def restore(self, es: ShardedES, state: ESState, generation: int | None = None) -> ESState:
        """The state of a checkpoint; the given one where the folder has none.

        Args:
            es: the evolution strategy, on any mesh.
            state: of `es.init` with the run's key, and with params like the run's.
            generation: generations done in the checkpoint; by default the latest.

        Raises:
            CheckpointError: the checkpoint is damaged or of another run, or there is none of this generation.
        """
        leaves, failure = None, None
        if is_writer():
            try:
                leaves = self._read(es, state, generation)
            except CheckpointError as error:
                failure = error
        if jax.process_count() > 1:
            leaves, told = from_first(leaves, "" if failure is None else str(failure), jax.tree.leaves(state))
            failure = failure or (CheckpointError(told) if told else None)
        if failure is not None:
            raise failure
        if leaves is None:
            return state
        restored: ESState = replicate(jax.tree.unflatten(jax.tree.structure(state), leaves), es._replicated)
        return restored

    def _read(self, es: ShardedES, state: ESState, generation: int | None) -> list[Any] | None:
        done = None
        if self.folder.is_dir():
            storage = Storage(self.folder, self.keep_last, self.keep_best, writes=False)
            try:
                done = storage.latest() if generation is None else generation
                if done in storage.all():
                    return storage.read(es, state, done)
            finally:
                storage.close()
        if generation is not None:
            raise CheckpointError(f"{self.folder} has no checkpoint of generation {generation}.")
        return None

    def start(self, run: Run) -> None:
        """Make the folder, and remove what a killed process left half-written."""
        if not is_writer():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._storage = Storage(self.folder, self.keep_last, self.keep_best, writes=True)
        self._latest: Generation | None = None
        self._saved = int(run.state.generation)
        latest = self._storage.latest()
        if latest is not None and latest > self._saved:
            raise ValueError(
                f"{self.folder} has a checkpoint of generation {latest}, and the run is at {self._saved}. Begin with "
                "the state that restore gives, or choose another folder."
            )
        self._run = run

    def generation(self, generation: Generation) -> None:
        """Save, if it is time."""
        if self._storage is not None:
            self._latest = generation
            if (generation.number + 1) % self.every == 0:
                self._save(self._storage, generation)

    def end(self, run: Run) -> None:
        """Save the last state, unless something raised, and wait until all is on the disk."""
        if self._storage is None:
            return
        storage, self._storage = self._storage, None
        try:
            latest = self._latest
            if run.ended != "error" and latest is not None and latest.number >= self._saved:
                self._save(storage, latest)
        finally:
            storage.close()

    def _save(self, storage: Storage, generation: Generation) -> None:
        # A log must not lack what a run that is resumed from here will not do again.
        for callback in self._run.callbacks:
            callback.flush()
        storage.save(self._run.es, generation.state, generation.number + 1, generation.summary.mean)
        self._saved = generation.number + 1
