"""Measurements in processes of their own, and times of what is done in turn.

    python -m validation.measuring MODULE FUNCTION REQUEST FILE

writes the rows that a function of a module finds, in one process of a run or by itself.
"""

import importlib
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

import shardes
from validation.circumstances import processor
from validation.workers import ROOT


class Run(NamedTuple):
    """One measurement: what its function is given, and where it runs.

    Of so many simulated devices of a CPU, in each of so many processes; on what devices there are for None.
    """

    request: dict[str, Any]
    devices: int | None = 1
    processes: int = 1


def in_processes(
    measure: Callable[..., list[dict[str, Any]]], *runs: Run, timeout: float = 1200
) -> list[dict[str, Any]]:
    """The rows that a function of a module finds in fresh processes, one run after another."""
    module = sys.modules[measure.__module__].__spec__
    assert module
    rows = []
    for run in runs:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.json"
            arguments = ["validation.measuring", module.name, measure.__name__, json.dumps(run.request), str(out)]
            launcher = ["shardes.distributed", f"--processes={run.processes}", f"--devices={run.devices}", "-m"]
            environment = os.environ | {
                # A program that is compiled twice is measured no differently.
                "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "compiled"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            if run.devices is not None:
                flags = f"--xla_force_host_platform_device_count={run.devices}"
                environment |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
            command = [sys.executable, "-m", *(launcher if run.processes > 1 else []), *arguments]
            subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=timeout)
            for row in json.loads(out.read_text()):
                rows.append(row)
                print(module.name.removeprefix("validation."), json.dumps(row), flush=True)
    return rows


def device() -> str:
    """What JAX computes on in this process."""
    first = jax.devices()[0]
    return processor() if first.platform == "cpu" else first.device_kind


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


def main() -> None:
    """Measure, and let the first process write the rows."""
    module, function, request, out = sys.argv[1:]
    if "SHARDES_PROCESSES" in os.environ:
        shardes.distributed.initialize()
    rows = getattr(importlib.import_module(module), function)(**json.loads(request))
    if jax.process_index() == 0:
        Path(out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
