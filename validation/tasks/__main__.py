"""Measure the tasks: results/tasks/PART.json, with a plot of each beside it.

    python -m validation.tasks [PART ...] [--only TEXT ...] [--tiny] [--out FOLDER]

`learning` trains by every command of docs/examples/tasks.sh, `speed` times generations. A result is written as soon as
it is there, and those that --only leaves out stay as they are.
"""

import json
import sys
import time

from validation.circumstances import circumstances
from validation.command import RESULTS, draw, options, parsed
from validation.tasks import learning, speed

PARTS = {part.__name__.split(".")[-1]: part for part in (learning, speed)}


def main() -> None:
    """Measure, write and draw what is asked for."""
    parser = options(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="those whose name has one of these in it")
    args = parsed(parser)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    out = args.out or RESULTS / "tasks"
    out.mkdir(parents=True, exist_ok=True)
    for name in args.parts or PARTS:
        part, path = PARTS[name], out / f"{name}.json"
        found = json.loads(path.read_text())["found"] if path.exists() else {}
        for label, measure in part.measurements(args.tiny):
            if args.only and not any(text in label for text in args.only):
                continue
            start = time.perf_counter()
            environment = circumstances("shardes-core", "shardes-tasks", *part.PACKAGES)
            found[label] = {"environment": environment, "rows": measure()}
            path.write_text(json.dumps({"what": part.WHAT, "found": found}, indent=1) + "\n")
            print(f"{name} {label}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
            draw(part, found, path.with_suffix(".svg"))


if __name__ == "__main__":
    main()
