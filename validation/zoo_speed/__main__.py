"""The zoo's speed on SmolLM2-135M beside transformers on torch, both on this CPU: results/zoo_speed.json.

    python -m validation.zoo_speed PYTHON [--repeats 7]

PYTHON is an interpreter that has torch and transformers. The snapshot is that of validation.smollm2. Float32 compute,
the same weights, prompts and threads, a run of each in turn.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from validation.circumstances import circumstances
from validation.smollm2.__main__ import snapshot
from validation.workers import Worker

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "zoo_speed.json"
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


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torch", type=Path, metavar="PYTHON", help="interpreter with torch and transformers")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each side (default: %(default)s)")
    args = parser.parse_args()
    folder = snapshot()
    request = {"folder": str(folder), "threads": os.cpu_count()}
    result = {
        "what": "SmolLM2-135M, float32 compute; speed is their seconds over ours, so above 1 is in our favour",
        "environment": circumstances("jax", "jaxlib", "shardes-zoo"),
        "repeats": args.repeats,
        "beside_transformers": {name: beside(request | task, args.torch, args.repeats) for name, task in TASKS.items()},
        "population_decode": population(request, args.repeats),
        "load": once(request | {"task": "load"}, 3)
        | {"file_bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors"))},
        "compile_24_layers": once(request | {"task": "compile", "layers": 24}, 3),
    }
    print(json.dumps(result, indent=1))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
