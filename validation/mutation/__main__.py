"""Faults in the arithmetic of the core and of nn, and the share that the fast tests see: results/mutation.json.

    python -m validation.mutation [--sample N] [--seed S] [--tiny] [--out FOLDER]
    python -m validation.mutation --again [--out FOLDER]

The second goes on with the faults of the file that are not killed yet: after an interruption, or with better tests.
Each fault is one change that cosmic-ray makes, in a copy of the sources.
"""

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from validation import command
from validation.circumstances import circumstances
from validation.command import RESULTS, options, parsed
from validation.mutation.sandbox import Sandbox
from validation.workers import ROOT, environment

SOURCES = [ROOT / "packages/shardes-core/src/shardes", ROOT / "packages/shardes-nn/src/shardes/nn"]
ELSEWHERE = {"advice", "callbacks", "configuration", "distributed", "fit", "interruption", "locking", "page", "replay",
             "report", "state"}  # fmt: skip
"""Modules that hold, write, read and print, and compute nothing."""
COMPUTES = [
    str(path.relative_to(ROOT))
    for source in SOURCES
    for path in sorted(source.rglob("*.py"))
    if ELSEWHERE.isdisjoint(path.with_suffix("").relative_to(source).parts)
]
FAST = ["tests/core", "tests/nn", "--fast"]
TINY = ["tests/nn/test_seams.py"]


def sampled(files: list[str], sample: int, seed: int) -> dict[str, Any]:
    """Faults of the files, and how many places there are for one."""
    python = environment(ROOT / ".tools" / "mutation" / "tool", "cosmic-ray==8.7.0")
    request = json.dumps({"root": str(ROOT), "files": files, "sample": sample, "seed": seed})
    finder = [str(python), str(Path(__file__).with_name("faults.py")), request]
    found: dict[str, Any] = json.loads(subprocess.run(finder, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return found


def shares(faults: list[dict[str, Any]], which: str) -> dict[str, Any]:
    """How many were killed, of all and of those that are no equivalent program."""
    outcomes = Counter(fault[which] for fault in faults if which in fault)
    caught = outcomes["killed"] + outcomes["timeout"]
    equivalent = sum(fault[which] == "survived" and "equivalent" in fault for fault in faults if which in fault)
    total = outcomes.total()
    return {
        **outcomes,
        "share": caught / total if total else None,
        "share_without_equivalent": caught / (total - equivalent) if total > equivalent else None,
    }


def main() -> None:
    """Sample faults, or take those that are left, and look for each."""
    parser = options(__doc__)
    parser.add_argument("--sample", type=int, default=100, help="faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="those faults of the file that are not killed yet")
    args = parsed(parser)
    path = (args.out or RESULTS) / "mutation.json"
    if args.again:
        result = json.loads(path.read_text())
    else:
        files, sample = (COMPUTES[-1:], 2) if args.tiny else (COMPUTES, args.sample)
        result = {
            "what": "faults that cosmic-ray makes in the arithmetic of core and nn; killed is what the fast tests see",
            "left_out": "annotations, messages, assertions, and identity in place of equality; one fault a place",
            "seed": args.seed,
            **sampled(files, sample, args.seed),
        }
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder), TINY if args.tiny else FAST)
        for fault in result["faults"]:
            if fault.get("last") != "killed" and "equivalent" not in fault:
                fault["last"], fault["by"] = sandbox.verdict(fault, *(["--every"] if args.again else []))
                fault.setdefault("first", fault["last"])
                print(fault["last"], f"{fault['file']}:{fault['line']}", fault["operator"], fault["by"], flush=True)
                result["environment"] = circumstances("shardes-core", "shardes-nn", "jax", "jaxlib", "numpy", "pytest")
                result["first"], result["last"] = (shares(result["faults"], which) for which in ("first", "last"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(result, indent=1) + "\n")
    command.draw(sys.modules[__name__], result, path.with_suffix(".svg"))


def draw(found: dict[str, Any], figure: Any) -> None:
    """How many faults of each module were seen at first, were seen at last, and change no result."""
    fates = {
        "seen": lambda fault: fault["first"] != "survived",
        "seen by tests since added": lambda fault: fault["first"] == "survived" and fault["last"] != "survived",
        "changes no result": lambda fault: fault["last"] == "survived" and "equivalent" in fault,
        "unseen": lambda fault: fault["last"] == "survived" and "equivalent" not in fault,
    }
    faults = [fault for fault in found["faults"] if "last" in fault]
    modules = sorted({fault["file"].partition("/shardes/")[2] for fault in faults}, reverse=True)
    figure.set_size_inches(8, 1 + 0.25 * len(modules))
    axes, left = figure.subplots(), [0] * len(modules)
    for name, of in fates.items():
        counts = Counter(fault["file"].partition("/shardes/")[2] for fault in faults if of(fault))
        axes.barh(modules, [counts[module] for module in modules], left=left, label=name)
        left = [a + counts[module] for a, module in zip(left, modules, strict=True)]
    axes.set(xlabel="faults")
    figure.legend(loc="outside upper center", ncols=4)


if __name__ == "__main__":
    main()
