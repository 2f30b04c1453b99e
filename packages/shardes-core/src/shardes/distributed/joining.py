"""A process joins the others of its run."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import jax

from shardes.distributed.loss import EXIT_CODE, is_loss, say_when_cut_off

__all__ = ["PROCESSES", "PROCESS_ID", "initialize"]

PROCESSES = "SHARDES_PROCESSES"
PROCESS_ID = "SHARDES_PROCESS_ID"
"""Environment variables by which a launcher tells a process its place; JAX reads the coordinator's address itself."""


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    *,
    heartbeat_timeout_seconds: int = 20,
    **options: Any,
) -> None:
    """Join the run's other processes; call it first of all, before anything asks JAX for its devices.

    `jax.distributed.initialize`, with a heartbeat by which all end within a minute when one dies: with 75 those that
    raise for it, the others as JAX aborts them. What is not given comes from `python -m shardes.distributed`, from
    SLURM, Open MPI or Cloud TPU, or from Kubernetes, as JAX detects them.

    Args:
        coordinator_address: "host:port" of process 0.
        num_processes: how many there are.
        process_id: which this is, from 0.
        local_device_ids: devices of this machine that this process is to use; all by default.
        heartbeat_timeout_seconds: after which a process that is not heard of counts as dead.
        **options: others of `jax.distributed.initialize`.

    Raises:
        ValueError: an argument is not given and no cluster is detected.
        RuntimeError: called twice, or after JAX was used.
    """
    if PROCESSES in os.environ:
        num_processes = int(os.environ[PROCESSES]) if num_processes is None else num_processes
        process_id = int(os.environ[PROCESS_ID]) if process_id is None else process_id
        options = {"cluster_detection_method": "deactivate", **options}
    # It would keep SIGTERM for itself, so that a process could not be ended.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator_address,
            num_processes,
            process_id,
            local_device_ids,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
            **options,
        )
    except ValueError as error:
        if "defined" not in str(error):
            raise
        raise ValueError(
            "No cluster is detected that would say what the run's processes are. Give coordinator_address, "
            "num_processes and process_id, start the script with `python -m shardes.distributed --processes 2 "
            "script.py`, or do not call initialize in a run of one process."
        ) from error
    _end_others_when_this_fails()


def _end_others_when_this_fails() -> None:
    """Have an exception that nobody catches end the process, so that the others notice.

    JAX would make it wait at the end for the others, which wait for it.
    """
    shown = sys.excepthook
    well = say_when_cut_off()
    code: int | None = None

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        nonlocal code
        code = EXIT_CODE if is_loss(error) else 1
        shown(kind, error, trace)

    def leave() -> None:
        well()
        if code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    sys.excepthook = show
    # Called after what is registered later, and before JAX waits.
    atexit.register(leave)
