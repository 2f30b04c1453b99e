"""How the command `shardes-zoo` prints its results: for people, in lines that fit their terminal, and for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

__all__ = ["print_fields", "print_json", "print_table"]


def print_json(value: Any) -> None:
    """A value, for a program to read."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_fields(fields: Mapping[str, Any]) -> None:
    """A field a line; those that are None are left out."""
    for name, value in fields.items():
        if value is not None:
            typer.echo(f"{name:<14}{f'{value:,}' if isinstance(value, int) else value}")


def print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: str) -> None:
    """As many columns as the terminal has room for; all of them where there is none, so that programs miss nothing."""
    room = shutil.get_terminal_size().columns if _is_a_terminal() else None
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    fitting = [i for i in range(len(titles)) if i == 0 or room is None or sum(widths[: i + 1]) + 2 * i <= room]
    for row in (titles, *rows):
        cells = [row[i].rjust(widths[i]) if titles[i] == right else row[i].ljust(widths[i]) for i in fitting]
        typer.echo("  ".join(cells).rstrip())
    if left_out := titles[len(fitting) :]:
        typer.echo(f"The terminal is too narrow for: {', '.join(left_out)}.", err=True)


def _is_a_terminal() -> bool:
    # There is none at all where it was closed.
    return sys.stdout is not None and sys.stdout.isatty()
