"""States on the disk, by orbax: written aside and then put in place, read back only when they are whole."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from shardes.configuration import checksum, configuration, difference
from shardes.es import ShardedES
from shardes.locking import lock
from shardes.state import ESState

__all__ = ["CheckpointError", "Storage"]

_FORMAT = "shardes checkpoint 1"


class CheckpointError(Exception):
    """A checkpoint cannot be written or read, or is not one of this run."""


class Storage:
    """The checkpoints in a folder, which exists.

    Args:
        folder: an absolute path.
        keep_last: how many of the latest are kept.
        keep_best: how many of the lowest mean are kept besides.
        writes: whether to write, and to remove what a killed process left half-written.

    Raises:
        CheckpointError: what it holds cannot be read.
        ValueError: another run writes to it.
    """

    def __init__(self, folder: Path, keep_last: int, keep_best: int, *, writes: bool) -> None:
        import orbax.checkpoint as ocp
        from orbax.checkpoint import checkpoint_managers

        latest = checkpoint_managers.LatestN(keep_last)
        best = checkpoint_managers.BestN(get_metric_fn=lambda metrics: -metrics["mean"], n=keep_best)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=checkpoint_managers.AnyPreservationPolicy([latest, best] if keep_best else [latest]),
            best_fn=lambda metrics: metrics["mean"],
            best_mode="min",
            create=False,
            cleanup_tmp_directories=writes,
            # Every process has the whole state: one writes, and waits for no other.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=0, active_processes={0} if jax.process_count() > 1 else None
            ),
        )
        handlers = {"state": ocp.StandardCheckpointHandler(), "run": ocp.JsonCheckpointHandler()}
        self.folder = folder
        self._locked = self._lock() if writes and sys.platform != "win32" else None
        try:
            self._manager: Any = ocp.CheckpointManager(folder, item_handlers=handlers, options=options)
        except Exception as error:
            self._unlock()
            raise self._unreadable(folder, error) from error

    def latest(self) -> int | None:
        """Generations done in the latest checkpoint."""
        latest: int | None = self._manager.latest_step()
        return latest

    def all(self) -> list[int]:
        """Generations done in every checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, es: ShardedES, state: ESState, done: int, mean: float) -> None:
        """Begin to write the state after `done` generations; it may be donated when this returns.

        Raises:
            CheckpointError: this or an earlier one cannot be written.
        """
        import orbax.checkpoint as ocp

        # Orbax copies them before it returns.
        arrays = {name: np.asarray(leaf.addressable_data(0)) for name, leaf in _named(state).items()}
        run = {
            "format": _FORMAT,
            "configuration": configuration(es),
            "key_implementation": "threefry2x32",
            "leaves": _described(arrays),
            "checksum": checksum(arrays),
        }
        # An array without entries cannot be saved, and need not be.
        state_to_save = ocp.args.StandardSave({name: array for name, array in arrays.items() if array.size})
        with self._writing():
            self._manager.save(
                done,
                args=ocp.args.Composite(state=state_to_save, run=ocp.args.JsonSave(run)),
                metrics={"mean": mean if math.isfinite(mean) else sys.float_info.max},
            )

    def read(self, es: ShardedES, state: ESState, done: int) -> list[np.ndarray[Any, Any]]:
        """The leaves of a checkpoint of a run, whose structure and key are those of `state`.

        Raises:
            CheckpointError: it is damaged, or of another run.
        """
        where = self.folder / str(done)
        try:
            arrays = self._read(es, _named(state), done, where)
        except CheckpointError:
            raise
        except Exception as error:
            raise self._unreadable(where, error) from error
        if arrays[".key"].tolist() != np.asarray(state.key).tolist():
            raise CheckpointError(f"{where} is of a run with another key.")
        return list(arrays.values())

    def _read(self, es: ShardedES, named: Mapping[str, Any], done: int, where: Path) -> dict[str, np.ndarray[Any, Any]]:
        import orbax.checkpoint as ocp

        run = self._manager.restore(done, args=ocp.args.Composite(run=ocp.args.JsonRestore())).run
        if not isinstance(run, dict) or run.get("format") != _FORMAT:
            raise CheckpointError(f"{where} is no checkpoint of shardes.")
        found = difference(configuration(es), run["configuration"])
        if found:
            raise CheckpointError(
                f"{where} is of another configuration: {found}. Go on with the run's own, or give another folder."
            )
        required = _described(named)
        if run["leaves"] != required:
            raise CheckpointError(
                f"{where} is of other params or another optimizer: {_first(run['leaves'], required)}."
            )
        kept = {name: leaf for name, leaf in named.items() if leaf.size}
        stored = self._manager.item_metadata(done).state
        shapes = [[name, np.dtype(entry.dtype).name, list(entry.shape)] for name, entry in stored.items()]
        if sorted(shapes) != sorted(_described(kept)):
            raise CheckpointError(f"{where} is damaged: its arrays are not those that it lists.")
        targets = {name: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) for name, leaf in kept.items()}
        restored = self._manager.restore(done, args=ocp.args.Composite(state=ocp.args.StandardRestore(targets))).state
        arrays = {
            name: restored[name] if leaf.size else np.zeros(leaf.shape, leaf.dtype) for name, leaf in named.items()
        }
        if checksum(arrays) != run["checksum"]:
            raise CheckpointError(
                f"{where} is damaged: its checksum is another. Delete it to go on from the one before."
            )
        return arrays

    @staticmethod
    def _unreadable(where: Path, error: Exception) -> CheckpointError:
        """What a damaged file makes of orbax and its storage can be any error."""
        return CheckpointError(
            f"{where} cannot be read: {type(error).__name__}: {str(error)[:300]}. If another run writes to it, "
            "end it first; if the checkpoint is damaged, delete it to go on from the one before."
        )

    def close(self) -> None:
        """Wait until all that was saved is on the disk. Raises CheckpointError where it cannot be."""
        try:
            with self._writing():
                self._manager.wait_until_finished()
        finally:
            with contextlib.suppress(Exception):
                self._manager.close()
            self._unlock()

    def _lock(self) -> int:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            lock(descriptor, self.folder)
        except ValueError:
            os.close(descriptor)
            raise
        return descriptor

    def _unlock(self) -> None:
        if self._locked is not None:
            os.close(self._locked)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What a full disk makes of orbax and its storage can be any error."""
        try:
            yield
        except Exception as error:
            raise CheckpointError(
                f"A checkpoint cannot be written to {self.folder}: {type(error).__name__}: {str(error)[:300]}. Those "
                "that are whole are kept: make room, and start again from them."
            ) from error


def _named(state: ESState) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}


def _described(leaves: Mapping[str, Any]) -> list[list[Any]]:
    return [[name, np.dtype(leaf.dtype).name, list(leaf.shape)] for name, leaf in leaves.items()]


def _first(found: Sequence[Any], required: Sequence[Any]) -> str:
    """The first difference of two lists of leaves."""
    for entry, wanted in zip(found, required, strict=False):
        if entry != wanted:
            return f"it has {entry}, and {wanted} is required"
    return f"it has {len(found)} leaves, and {len(required)} are required"
