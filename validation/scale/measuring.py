"""Measurements in processes of their own, and times of what is done in turn."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from validation.workers import ROOT


class Run(NamedTuple):
    """One measurement: what `measure` of its part is given, and where it runs."""

    request: dict[str, Any]
    devices: int = 1
    processes: int = 1


def in_processes(part: str, run: Run) -> list[dict[str, Any]]:
    """The rows that a part measures in fresh processes, each of so many simulated devices."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        arguments = ["validation.scale.worker", part, json.dumps(run.request), str(out)]
        launcher = ["shardes.distributed", f"--processes={run.processes}", f"--devices={run.devices}", "-m"]
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={run.devices}",
            # A program that is compiled twice is measured no differently.
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        command = [sys.executable, "-m", *(launcher if run.processes > 1 else []), *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=1200)
        rows: list[dict[str, Any]] = json.loads(out.read_text())
    return rows


def in_turn(sides: Mapping[str, Callable[[], Any]], repeats: int, at_least_s: float = 0) -> dict[str, float]:
    """Median seconds of each side, a call of each in turn, so often and for about so long, after two that do not count.

    Processes of one run agree on how often.
    """
    for _ in range(2):
        begun = time.perf_counter()
        for side in sides.values():
            side()
    rounds = max(repeats, round(at_least_s / (time.perf_counter() - begun)))
    if jax.process_count() > 1:
        rounds = int(multihost_utils.broadcast_one_to_all(np.int32(rounds)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}
