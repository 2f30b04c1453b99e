"""The command of one check or of some: `python -m validation.CHECK [PART ...] [--tiny] [--out FOLDER]`.

A check is a module. Its docstring begins with a line of what it shows, `WHAT` says what its figures are, and
`run(tiny)` measures them: a dict, with "sound" where they can be wrong, and with "environment" where there is more to
say of it, such as another device. `draw(found, figure)` plots it, and `PACKAGES` names those whose versions count
beside the core's and JAX's, where there are such.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib

from validation.circumstances import circumstances

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("shardes-core", "jax", "jaxlib", "numpy")


def name_of(check: ModuleType) -> str:
    """Such as "peers", or "scale.loop" where a package has several."""
    assert check.__spec__
    return check.__spec__.name.removeprefix("validation.").removesuffix(".__main__")


def draw(check: ModuleType, found: dict[str, Any], path: Path) -> None:
    """The plot of a check."""
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "shardes"})
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    check.draw(found, figure)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every command has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing, for a test; needs --out")
    parser.add_argument("--out", type=Path, help="folder of the results (default: validation/results)")
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options that are given, which tiny results do not go without a folder of their own."""
    args = parser.parse_args(arguments)
    if args.tiny and args.out is None:
        parser.error("--tiny needs --out, since its results are not to be kept")
    return args


def write(path: Path, check: ModuleType, found: dict[str, Any]) -> None:
    """The result of a check, and its plot beside it."""
    packages = dict.fromkeys((*PACKAGES, *getattr(check, "PACKAGES", ())))
    environment = circumstances(*packages) | found.get("environment", {})
    result = {"what": check.WHAT, "environment": environment} | {k: v for k, v in found.items() if k != "environment"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    draw(check, result, path.with_suffix(".svg"))


def command(*checks: ModuleType) -> None:
    """Measure, write and draw those that the command line asks for."""
    parts = {name_of(check).rpartition(".")[2]: check for check in checks}
    package = name_of(checks[0]).rpartition(".")[0]
    parser = options(sys.modules["__main__"].__doc__)
    if package:
        parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
    args = parsed(parser)
    chosen = getattr(args, "parts", None) or list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    unsound = []
    for name in chosen:
        start = time.perf_counter()
        found = parts[name].run(args.tiny)
        write((args.out or RESULTS / package) / f"{name}.json", parts[name], found)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        if not found.get("sound", True):
            unsound.append(name)
    if unsound:
        sys.exit(f"Not sound: {', '.join(unsound)}. The result files say where.")
