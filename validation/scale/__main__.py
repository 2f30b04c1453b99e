"""Measure how the library scales: results/scale/PART.json, with a plot of each beside it.

    python -m validation.scale [PART ...] [--tiny] [--out FOLDER]

Every measurement has fresh processes of its own, one after another.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib

from validation.circumstances import circumstances
from validation.scale import checkpoints, determinism, loop, memory, placements, replays
from validation.scale.measuring import in_processes

RESULTS = Path(__file__).parents[1] / "results" / "scale"
PARTS = {part.__name__.split(".")[-1]: part for part in (memory, loop, checkpoints, replays, determinism, placements)}


def measured(name: str, part: ModuleType, tiny: bool) -> dict[str, Any]:
    """The result of a part, printed row by row."""
    rows = []
    for run in part.runs(tiny):
        for row in in_processes(name, run):
            rows.append(row)
            print(name, json.dumps(row), flush=True)
    return {
        "what": part.WHAT,
        "environment": circumstances("shardes-core", "jax", "jaxlib", "numpy", "orbax-checkpoint"),
        "rows": rows,
    }


def draw(part: ModuleType, rows: list[dict[str, Any]], path: Path) -> None:
    """The plot of a part."""
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "shardes"})
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    part.draw(rows, figure)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, write and draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing, for a test; needs --out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default: %(default)s)")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if args.tiny and args.out == RESULTS:
        parser.error("--tiny needs --out, since its results are not to be kept")
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.parts or PARTS:
        start = time.perf_counter()
        result = measured(name, PARTS[name], args.tiny)
        (args.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        draw(PARTS[name], result["rows"], args.out / f"{name}.svg")
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
