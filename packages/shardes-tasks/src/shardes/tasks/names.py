"""The name that someone may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, names: Iterable[str]) -> str | None:
    """That of some names which is most like a given one, whatever the case; None where none is like it."""
    known = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return known[near[0]] if near else None
