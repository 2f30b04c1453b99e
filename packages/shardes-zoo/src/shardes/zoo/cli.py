"""The entry point of the command `shardes-zoo`, which needs the extra `cli`."""

from __future__ import annotations

import importlib.util
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; exits with 0, with 1 for an error, with 2 for wrong usage, and with 130 after Ctrl-C."""
    if any(importlib.util.find_spec(name) is None for name in ("typer", "rich")):
        print("shardes-zoo: its command line needs more: pip install 'shardes-zoo[cli]'", file=sys.stderr)
        sys.exit(2)
    try:
        from shardes.zoo.commands import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # Where the results go may be full.
        print(f"shardes-zoo: {error.strerror or error}", file=sys.stderr)
        os._exit(1)
