"""The entry point of the command `shardes-train`, which needs the extra `cli`."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich", "matplotlib", "optax", "orbax")


def main() -> None:
    """Run the command; exits with 0, with 1 for what went wrong, with 2 for wrong usage, with 130 after Ctrl-C."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"shardes-train: it needs {', '.join(missing)}: pip install 'shardes-tasks[cli]'", file=sys.stderr)
        sys.exit(2)
    from shardes.tasks.commands import run

    run(sys.argv[1:])
