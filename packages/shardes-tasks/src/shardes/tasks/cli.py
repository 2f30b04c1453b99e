"""The entry point of the command `shardes-train`, which needs the extra `cli`."""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["main"]

_NEEDED = ("typer", "rich", "matplotlib", "optax", "orbax")


def main() -> None:
    """Run the command; exits with 0, with 1 for what went wrong, with 2 for wrong usage, with 130 after Ctrl-C."""
    if any(importlib.util.find_spec(name) is None for name in _NEEDED):
        print("shardes-train: it needs more: pip install 'shardes-tasks[cli]'", file=sys.stderr)
        sys.exit(2)
    from shardes.tasks.commands import run

    run(sys.argv[1:])
