"""Several processes of one run on this machine: started together, heard together, ended together."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from shardes.distributed.joining import PROCESS_ID, PROCESSES
from shardes.distributed.loss import ADVICE, EXIT_CODE
from shardes.interruption import end_signals

__all__ = ["launch"]

# Seconds that processes have to end after they were told to, before they are killed.
_GRACE = 5.0


def launch(command: Sequence[str], processes: int, devices: int) -> int:
    """Run a command as `processes` processes of `devices` simulated devices each, on the CPU and loopback.

    Their output is forwarded line by line, each with the number of its process. When one fails the others are ended.
    Ctrl-C, SIGTERM and SIGHUP are handed on, a second one kills.

    Returns:
        0 when all ended well, else the exit code of the first that failed: 128 and the signal's number for a signal.
        One that only ended because it lost another (75, or JAX's SIGABRT) does not count while there is a first.
    """
    address = f"127.0.0.1:{_free_port()}"
    started: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []
    threads: list[threading.Thread] = []
    before = {number: signal.signal(number, lambda received, _: signals.append(received)) for number in end_signals()}
    try:
        for i in range(processes):
            environment = _environment(address, processes, i, devices)
            started.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            )
        for i, process in enumerate(started):
            for pipe, out in ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer)):
                threads.append(threading.Thread(target=_forward, args=(i, pipe, out), daemon=True))
                threads[-1].start()
        return _wait(started, signals)
    finally:
        for process in started:
            _signal(process, signal.SIGKILL)
            process.wait()
        for thread in threads:
            thread.join(1.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(processes: Sequence[subprocess.Popen[bytes]], signals: list[int]) -> int:
    """The exit code of all, once none runs."""
    handed_on = 0
    patience = deadline = math.inf
    failed: tuple[int, int] | None = None
    while any(process.poll() is None for process in processes):
        now = time.monotonic()
        for number in signals[handed_on:]:
            handed_on += 1
            for process in processes:
                _signal(process, number if handed_on == 1 else signal.SIGKILL)
        found = _failed(processes)
        if found is not None and failed is None:
            patience = min(patience, now + _GRACE)
            if _is_cause(found[1]) or now >= patience:
                failed, deadline = found, now + _GRACE
                if not signals:
                    print(
                        f"shardes.distributed: process {failed[0]} ended with {_meaning(failed[1])}, and the others "
                        f"are ended. {ADVICE}",
                        file=sys.stderr,
                        flush=True,
                    )
                    for process in processes:
                        _signal(process, signal.SIGTERM)
        if now > deadline:
            for process in processes:
                _signal(process, signal.SIGKILL)
        time.sleep(0.02)
    failed = failed or _failed(processes)
    return 0 if failed is None else _exit_code(failed[1])


def _failed(processes: Sequence[subprocess.Popen[bytes]]) -> tuple[int, int] | None:
    """The number and the exit code of a process that failed, one that died of itself before one that was left."""
    codes = [(i, code) for i, process in enumerate(processes) if (code := process.poll())]
    return min(codes, key=lambda found: not _is_cause(found[1]), default=None)


def _is_cause(code: int) -> bool:
    """Whether an exit code is not that of a process that has lost another."""
    return code not in (EXIT_CODE, -signal.SIGABRT)


def _forward(process: int, pipe: BinaryIO, out: BinaryIO) -> None:
    """Lines of one process, each written whole."""
    prefix = f"[{process}] ".encode()
    # A line without an end comes in pieces.
    while line := pipe.readline(2**16):
        with contextlib.suppress(OSError, ValueError):
            out.write(prefix + line + (b"" if line.endswith(b"\n") else b"\n"))
            out.flush()


def _environment(address: str, processes: int, process_id: int, devices: int) -> dict[str, str]:
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device_count" not in flag]
    flags.append(f"--xla_force_host_platform_device_count={devices}")
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": " ".join(flags),
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        PROCESSES: str(processes),
        PROCESS_ID: str(process_id),
        "PYTHONUNBUFFERED": "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _exit_code(code: int) -> int:
    return 128 - code if code < 0 else code


def _meaning(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _end_with_parent() -> Any:
    """Have the kernel end this process when the launcher is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
