"""What counts as a count."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["is_count"]


def is_count(value: Any) -> bool:
    """Whether a value is an integer of at least 1; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
