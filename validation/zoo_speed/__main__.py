"""The zoo's speed on SmolLM2-135M beside transformers on torch, both on this CPU: results/zoo_speed.json.

    python -m validation.zoo_speed [--tiny] [--out FOLDER]

The snapshot is that of validation.smollm2. Float32 compute, the same weights, prompts and threads, a run of each in
turn. TRANSFORMERS_PYTHON may name an interpreter that has torch and transformers.
"""

import os
import statistics
import sys
from pathlib import Path
from typing import Any

from validation.command import command
from validation.smollm2.__main__ import snapshot
from validation.workers import Worker, transformers_python

HERE = Path(__file__).parent
WHAT = "SmolLM2-135M, float32 compute; speed is their seconds over ours, so above 1 is in our favour"
PACKAGES = ("shardes-zoo",)
REPEATS = 7
OURS = Path(sys.executable), HERE / "ours.py"
TASKS = {
    "prefill 8x128": {"task": "prefill", "batch": 8, "prompt": 128, "new_tokens": 0},
    "decode 32, batch 1": {"task": "decode", "batch": 1, "prompt": 16, "new_tokens": 32},
    "decode 32, batch 8": {"task": "decode", "batch": 8, "prompt": 16, "new_tokens": 32},
}


def beside(request: dict[str, Any], torch: Path, repeats: int) -> dict[str, Any]:
    """Both sides of a task, a run of each in turn."""
    with Worker(*OURS, request) as ours, Worker(torch, HERE / "theirs.py", request) as theirs:
        for _ in range(repeats):
            ours.run()
            theirs.run()
    ratio = theirs.summary()["seconds"] / ours.summary()["seconds"]
    return {"ours": ours.summary(), "transformers": theirs.summary(), "speed": ratio}


def population(request: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Eight perturbed members that decode a prompt each, beside the unperturbed model on the eight prompts."""
    batch = TASKS["decode 32, batch 8"]
    with (
        Worker(*OURS, request | batch | {"task": "population"}) as members,
        Worker(*OURS, request | batch) as plain,
    ):
        for _ in range(repeats):
            members.run()
            plain.run()
    ratio = plain.summary()["seconds"] / members.summary()["seconds"]
    return {"members": members.summary(), "unperturbed": plain.summary(), "speed": ratio}


def once(request: dict[str, Any], repeats: int) -> dict[str, float]:
    """Medians of what a fresh process reports."""
    reports = []
    for _ in range(repeats):
        with Worker(*OURS, request) as worker:
            reports.append(worker.report)
    return {name: statistics.median(report[name] for report in reports) for name in reports[0]}


def run(tiny: bool) -> dict[str, Any]:
    """Every task; of a tiny checkpoint, and the first alone, if tiny."""
    theirs, folder, repeats = transformers_python(), snapshot(tiny), 1 if tiny else REPEATS
    request = {"folder": str(folder), "threads": os.cpu_count(), "ids": 400 if tiny else 10_000}
    tasks = list(TASKS.items())[: 1 if tiny else None]
    found: dict[str, Any] = {
        "repeats": repeats,
        "beside_transformers": {name: beside(request | task, theirs, repeats) for name, task in tasks},
    }
    if tiny:
        return found
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return found | {
        "population_decode": population(request, repeats),
        "load": once(request | {"task": "load"}, 3) | {"file_bytes": size},
        "compile_24_layers": once(request | {"task": "compile", "layers": 24}, 3),
    }


def draw(found: dict[str, Any], figure: Any) -> None:
    """Speeds, a bar a task."""
    speeds = {name: row["speed"] for name, row in found["beside_transformers"].items()}
    if population := found.get("population_decode"):
        speeds["8 members beside\nthe unperturbed model"] = population["speed"]
    axes = figure.subplots()
    axes.bar_label(axes.bar(list(speeds), list(speeds.values()), 0.6), fmt="%.2f")
    axes.axhline(1, color="gray", linestyle="--")
    axes.set(ylabel="speed, of transformers' or of the unperturbed model's")


if __name__ == "__main__":
    command(sys.modules["__main__"])
