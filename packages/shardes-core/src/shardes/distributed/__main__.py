"""`python -m shardes.distributed --processes 2 --devices 4 script.py`."""

from __future__ import annotations

import argparse
import sys

from shardes.distributed.launching import launch

__all__ = ["main"]


def main() -> None:
    """Read the command line, run the script, and exit with its code."""
    parser = argparse.ArgumentParser(
        prog="python -m shardes.distributed",
        description="Run a script as several processes of one run on this machine's CPU, for tests and debugging. The "
        "script calls shardes.distributed.initialize(), as it would on a cluster.",
    )
    parser.add_argument("--processes", type=_count, default=2, help="how many (default: %(default)s)")
    parser.add_argument("--devices", type=_count, default=1, help="devices of each process (default: %(default)s)")
    parser.add_argument("-m", action="store_true", dest="module", help="the script is the name of a module")
    parser.add_argument("script", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is given")
    given = parser.parse_args()
    command = [sys.executable, *(["-m"] if given.module else []), given.script, *given.arguments]
    sys.exit(launch(command, given.processes, given.devices))


def _count(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 1024:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 1024")
    return count


if __name__ == "__main__":
    main()
