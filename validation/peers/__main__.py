"""Measure both packages, alternating generation by generation, and write results/peers.json.

    python -m validation.peers [--repeats 9] [--quick]

The published package goes into a virtual environment of its own, with the JAX that runs here.
"""

import argparse
import itertools
import json
import math
import statistics
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from validation.circumstances import circumstances
from validation.workers import ROOT, Worker, environment

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
RESULTS = HERE.parent / "results" / "peers.json"
PUBLISHED = "0.1.1"
CELLS = ({"d": 128, "n": 256, "tokens": 256}, {"d": 512, "n": 64, "tokens": 64}, {"d": 64, "n": 1024, "tokens": 64})
PROGRAMS = ("LowRank(1)", "LowRank(4)", "SeedRegenerated", "IIDGaussian")
WHOLE = 2**30
BLOCKED = {128: 2, 512: 2, 64: 16}
"""Batches of plain inference that keep a CPU's caches, by d: as many as the core evaluates at once on these."""


def published_python() -> Path:
    """The interpreter of an environment that holds the published package, made when it is not there."""
    same = (f"{name}=={version(name)}" for name in ("jax", "jaxlib", "numpy", "scipy"))
    return environment(ROOT / ".tools" / "peers", f"shardes=={PUBLISHED}", *same)


def measure(cell: dict[str, Any], program: str, published: Path, repeats: int) -> dict[str, Any]:
    """One row: both packages and the two floors at one setting, a run of each in turn."""
    request = cell | {"program": program}
    floors = {"floor": WHOLE, "floor_blocked": BLOCKED[cell["d"]]}
    with ExitStack() as stack:
        workers = {
            "ours": stack.enter_context(Worker(Path(sys.executable), WORKER, request)),
            "published": stack.enter_context(Worker(published, WORKER, request)),
        } | {
            name: stack.enter_context(Worker(Path(sys.executable), WORKER, cell | {"program": "floor", "chunk": chunk}))
            for name, chunk in floors.items()
        }
        for _ in range(repeats):
            for worker in workers.values():
                worker.run()
    row = request | {name: worker.summary() for name, worker in workers.items()}
    ours, theirs = row["ours"], row["published"]
    row["ratios"] = {
        "throughput": theirs["seconds"] / ours["seconds"],
        "of_floor": row["floor"]["seconds"] / ours["seconds"],
        "of_floor_blocked": row["floor_blocked"]["seconds"] / ours["seconds"],
        "compile": theirs["compile_s"] / ours["compile_s"],
        "memory": theirs["temporary_bytes"] / ours["temporary_bytes"],
    }
    return row


def geometric_means(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric mean of each ratio, by program and over both ranks of LowRank."""
    groups = {program: [row for row in rows if row["program"] == program] for program in PROGRAMS}
    groups["LowRank"] = groups["LowRank(1)"] + groups["LowRank(4)"]
    groups["all"] = rows
    return {
        name: {
            ratio: math.exp(statistics.fmean(math.log(row["ratios"][ratio]) for row in group))
            for ratio in group[0]["ratios"]
        }
        for name, group in groups.items()
        if group
    }


def layers_ratio(repeats: int) -> dict[str, float]:
    """Compile seconds of a byte_transformer's generation with 2 and with 24 layers, in turn."""
    seconds: dict[int, list[float]] = {2: [], 24: []}
    for _ in range(repeats):
        for layers, found in seconds.items():
            with Worker(Path(sys.executable), WORKER, {"devices": 1, "program": "layers", "layers": layers}) as worker:
                found.append(worker.report["compile_s"])
    two, many = (statistics.median(seconds[layers]) for layers in (2, 24))
    return {"layers_2_s": two, "layers_24_s": many, "ratio": many / two}


def main() -> None:
    """Run the grid and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="generations of each side, alternating")
    parser.add_argument("--quick", action="store_true", help="one cell and placement B alone; nothing is written")
    args = parser.parse_args()
    published = published_python()
    found_on = {"published": PUBLISHED, **circumstances("shardes-core", "jax", "jaxlib", "numpy")}
    cells = CELLS[:1] if args.quick else CELLS
    rows = []
    for cell, devices, how, program in itertools.product(cells, (1, 8), "B" if args.quick else "AB", PROGRAMS):
        row = measure(cell | {"devices": devices, "how": how}, program, published, args.repeats)
        rows.append(row)
        print(
            f"d={row['d']:<4} n={row['n']:<5} devices={devices} {how} {program:16s} {row['ours']['seconds']:.3f} s",
            *(f"{name} {ratio:.2f}" for name, ratio in row["ratios"].items()),
            flush=True,
        )
    result = {
        "what": "seconds of a generation, mirrored; ratios are theirs over ours, so above 1 is in our favour",
        "environment": found_on,
        "repeats": args.repeats,
        "geometric_means": geometric_means(rows),
        "compile_by_layers": layers_ratio(1 if args.quick else 3),
        "rows": rows,
    }
    print(json.dumps({"geometric_means": result["geometric_means"], "layers": result["compile_by_layers"]}, indent=2))
    if not args.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
