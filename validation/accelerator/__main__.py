"""One GPU or TPU, in ten minutes and one file: results/accelerator.json.

    python -m validation.accelerator [--budget SECONDS] [--tiny] [--out FOLDER]

Whether its results are the CPU's; EGGROLL's table at the paper's size; speed and memory of generations of a small
transformer and of Qwen2.5-0.5B's shape. Each section has a process of its own, which is ended when the budget is: what
did not fit is "skipped" in the file, which is written after every section.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from validation.accelerator import generations
from validation.command import RESULTS, options, parsed, write
from validation.invariance import __main__ as invariance
from validation.measuring import Run, device, in_processes
from validation.papers import throughput

WHAT = (
    "invariance, throughput: as the checks of these names. generations: seconds of es.step and of plain inference of "
    "as many sequences, in turn, bfloat16 compute over a float32 master; speed is in per cent of inference; memory: "
    "bytes of the state, of the program's temporaries, and at most in use in the process. skipped: what the budget had "
    "no room for, or what failed"
)
PACKAGES = ("shardes-zoo",)
LEAST = 30
"""Seconds that a section takes at least on an accelerator: to start, to compile, to measure."""
BUDGET = 540.0


class Section(NamedTuple):
    """Rows of a file, measured together."""

    name: str
    measure: Callable[..., list[dict[str, Any]]]
    request: dict[str, Any]


def sections(tiny: bool) -> list[Section]:
    """What matters most first."""
    small = {"n": 1024, "sequences": 1, "seq": 128, "repeats": 7}
    large = {"n": 64, "sequences": 1, "seq": 128, "repeats": 5}
    strategies = list(invariance.STRATEGIES)
    alike = {"strategies": strategies, "modes": invariance.MODES, "d": 32, "layers": 2, "tokens": 16, "n": 30}
    alike["beside_cpu"] = True
    if tiny:
        small = large = {"n": 4, "sequences": 1, "seq": 8, "repeats": 1}
        alike |= {"strategies": strategies[:1], "modes": invariance.MODES[2:], "d": 8}
    speed = [
        Section("generations", generations.measure, {"model": model, "strategy": strategy, "tiny": tiny, **sizes})
        for model, sizes in (("byte transformer", small), ("qwen2 0.5B", large))
        for strategy in generations.STRATEGIES
    ]
    table = [
        Section("throughput", throughput.measure, {"strategies": [name], "tiny": tiny})
        for name in throughput.STRATEGIES
    ]
    ordered = [Section("invariance", invariance.measure, alike), *table, *speed]
    return ordered[::4] if tiny else ordered


def measured(section: Section, left: float) -> list[dict[str, Any]]:
    """The rows of a section, or one that says why there are none."""
    asked = {name: value for name, value in section.request.items() if name in ("model", "strategy", "strategies")}
    if left < LEAST:
        return [asked | {"skipped": f"{max(left, 0):.0f} s of the budget were left, and {LEAST} s are needed"}]
    try:
        return in_processes(section.measure, Run(section.request, None), timeout=left)
    except subprocess.TimeoutExpired:
        return [asked | {"skipped": f"it had not ended when the budget had, after {left:.0f} s"}]
    except subprocess.CalledProcessError as error:
        return [asked | {"skipped": f"its process failed with {error.returncode}; what it printed says why"}]


def look() -> list[dict[str, Any]]:
    """The device, and its platform."""
    return [{"device": device(), "platform": jax.devices()[0].platform}]


def main() -> None:
    """Measure for as long as the budget lasts."""
    start = time.perf_counter()
    parser = options(__doc__)
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds in all (default: %(default)s)")
    args = parsed(parser)
    (found,) = in_processes(look, Run({}, None))
    if found["platform"] == "cpu" and not args.tiny:
        print("Nothing is measured: JAX finds no accelerator here, and --tiny tries this on a CPU.", file=sys.stderr)
        return
    rows: dict[str, list[dict[str, Any]]] = {}
    for section in sections(args.tiny):
        left = args.budget - (time.perf_counter() - start)
        rows.setdefault(section.name, []).extend(measured(section, left))
        result = {"budget": args.budget, "seconds": time.perf_counter() - start, **rows}
        result["environment"] = {"device": found["device"]}
        write((args.out or RESULTS) / "accelerator.json", sys.modules["__main__"], result)


def draw(found: dict[str, Any], figure: Any) -> None:
    """Speeds of what was not skipped, beside inference."""
    axes = figure.subplots()
    speeds = {
        f"linear layer,\n{row['strategy']}": row["speed"]["generation"]
        for row in found.get("throughput", [])
        if "speed" in row
    } | {f"{row['model']},\n{row['strategy']}": row["speed"] for row in found.get("generations", []) if "speed" in row}
    axes.bar_label(axes.barh(list(speeds), list(speeds.values())), fmt="%.3g", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="speed of a generation, in per cent of plain inference", title=found["environment"]["device"])


if __name__ == "__main__":
    main()
