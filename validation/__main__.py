"""The checks of this library: what each shows, about how long it takes on two idle cores, and its result.

    python -m validation                            lists them
    python -m validation scale.loop papers          measures one of a package, and all of another
    python -m validation --all [--tiny] [--out FOLDER]

Each is a command of its own, `python -m validation.CHECK`, which some have more options for, and runs in a process of
its own. Timings need a machine that does nothing else.
"""

import subprocess
import sys
import time
from types import ModuleType
from typing import NamedTuple

from validation import mutation
from validation.accelerator import __main__ as accelerator
from validation.byte_transformer import __main__ as byte_transformer
from validation.command import name_of, options, parsed
from validation.invariance import __main__ as invariance
from validation.papers import alignment, throughput
from validation.peers import __main__ as peers
from validation.scale import checkpoints, determinism, loop, memory, placements, replays
from validation.smollm2 import __main__ as smollm2
from validation.tasks import learning, speed
from validation.transformers_roundtrip import __main__ as transformers_roundtrip
from validation.workers import ROOT
from validation.zoo_speed import __main__ as zoo_speed


class Check(NamedTuple):
    """A module, and about how many minutes it takes."""

    module: ModuleType
    minutes: int

    @property
    def name(self) -> str:
        """Of the package, and of its part where it has several."""
        return name_of(self.module)

    @property
    def shows(self) -> str:
        """The first sentence of its docstring."""
        return (self.module.__doc__ or "").split("\n\n")[0].replace("\n", " ").split(": results/")[0].rstrip(".")

    @property
    def result(self) -> str:
        """The file that it writes, in the folder of results."""
        return f"{self.name.replace('.', '/')}.json"


CHECKS = [
    Check(invariance, 6),
    Check(accelerator, 10),
    Check(throughput, 2),
    Check(alignment, 3),
    Check(peers, 20),
    Check(memory, 2),
    Check(loop, 2),
    Check(checkpoints, 2),
    Check(replays, 2),
    Check(determinism, 3),
    Check(placements, 6),
    Check(byte_transformer, 1),
    Check(transformers_roundtrip, 2),
    Check(zoo_speed, 4),
    Check(smollm2, 3),
    Check(learning, 60),
    Check(speed, 10),
    Check(mutation, 120),
]


def chosen(names: list[str]) -> list[Check]:
    """The checks of these names, and those of these packages."""
    every = {check.name for check in CHECKS} | {check.name.partition(".")[0] for check in CHECKS}
    if unknown := [name for name in names if name not in every]:
        raise SystemExit(f"No check is called {', '.join(unknown)}. python -m validation lists them.")
    return [check for check in CHECKS if {check.name, check.name.partition(".")[0]} & set(names)]


def main() -> None:
    """List, or run what is asked for."""
    parser = options(__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="names of checks, or of packages of them")
    parser.add_argument("--all", action="store_true", help="every check")
    args = parsed(parser)
    if not args.checks and not args.all:
        for check in CHECKS:
            print(f"{check.name:23} {check.minutes:4} min  {check.shows}: results/{check.result}")
        return
    failed = []
    for check in CHECKS if args.all else chosen(args.checks):
        package, *part = check.name.split(".")
        command = [sys.executable, "-m", f"validation.{package}", *part, *["--tiny"] * args.tiny]
        if args.out:
            command.append(f"--out={(args.out.resolve() / check.result).parent}")
        start = time.perf_counter()
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        minutes = (time.perf_counter() - start) / 60
        print(f"{check.name}: {'done' if code == 0 else f'FAILED with {code}'} in {minutes:.1f} min", flush=True)
        failed += [check.name] * (code != 0)
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
