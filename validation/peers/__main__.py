"""This code beside the published shardes 0.1.1, alternating generation by generation: results/peers.json.

    python -m validation.peers [--tiny] [--out FOLDER]

The published package goes into a virtual environment of its own, with the JAX that runs here.
"""

import itertools
import math
import statistics
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from validation.command import command
from validation.workers import ROOT, Worker, environment

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"
WHAT = "seconds of a generation, mirrored; ratios are theirs over ours, so above 1 is in our favour"
PUBLISHED = "0.1.1"
REPEATS = 9
"""Generations of each side, alternating."""
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
    floors = {"floor": WHOLE, "floor_blocked": BLOCKED.get(cell["d"], 2)}
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


def run(tiny: bool) -> dict[str, Any]:
    """The grid; one cell, program and placement if tiny."""
    published = published_python()
    cells: Any = itertools.product(CELLS, (1, 8), "AB", PROGRAMS)
    if tiny:
        cells = [({"d": 16, "n": 8, "tokens": 32}, 1, "B", PROGRAMS[0])]
    repeats, rows = 1 if tiny else REPEATS, []
    for cell, devices, how, program in cells:
        row = measure(cell | {"devices": devices, "how": how}, program, published, repeats)
        rows.append(row)
        print(
            f"d={row['d']:<4} n={row['n']:<5} devices={devices} {how} {program:16s} {row['ours']['seconds']:.3f} s",
            *(f"{name} {ratio:.2f}" for name, ratio in row["ratios"].items()),
            flush=True,
        )
    return {
        "environment": {"published": PUBLISHED},
        "repeats": repeats,
        "geometric_means": geometric_means(rows),
        "compile_by_layers": None if tiny else layers_ratio(3),
        "rows": rows,
    }


def draw(found: dict[str, Any], figure: Any) -> None:
    """Every row's ratio of throughput, with the geometric means, a column a strategy."""
    rows = found["rows"]
    axes = figure.subplots()
    programs = [program for program in PROGRAMS if program in found["geometric_means"]]
    cells = dict.fromkeys((row["d"], row["n"]) for row in rows)
    for color, (d, n) in enumerate(cells):
        own = [row for row in rows if (row["d"], row["n"]) == (d, n)]
        at = [programs.index(row["program"]) + 0.15 * (color - (len(cells) - 1) / 2) for row in own]
        axes.plot(at, [row["ratios"]["throughput"] for row in own], "o", color=f"C{color}", label=f"d={d}, n={n}")
    for x, program in enumerate(programs):
        mean = found["geometric_means"][program]["throughput"]
        axes.plot([x - 0.35, x + 0.35], [mean] * 2, color="black")
        axes.annotate(f"{mean:.2f}", (x + 0.36, mean), va="center")
    axes.axhline(1, color="gray", linestyle="--")
    axes.set_xticks(range(len(programs)), programs)
    axes.set(yscale="log", ylabel=f"generations a second, over those of {found['environment']['published']}")
    axes.set_yticks(ticks := [0.5, 1, 2, 5, 10], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, loc="upper left")


if __name__ == "__main__":
    command(sys.modules["__main__"])
