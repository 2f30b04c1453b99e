"""The fields of a JSON object that came from outside, each checked as it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardes.zoo.errors import CheckpointError

__all__ = ["REQUIRED", "Fields"]

REQUIRED: Any = object()
"""The default of a field that has none."""

_LARGEST = 2**31 - 1


class Fields:
    """A JSON object whose fields are read with their kind and bounds. Every method raises CheckpointError.

    A field that is missing or null has the default; without one, that is an error.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = dict(values)
        self.where = where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(self, name: str, default: Any = REQUIRED, least: int = 1, most: int = _LARGEST) -> Any:
        """An integer of `least` to `most`."""
        value = self._get(name, default)
        if value is default:
            return value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(name, f"an integer from {least} to {most}")
        return value

    def number(self, name: str, default: Any = REQUIRED, above: float = 0.0, most: float = 1e30) -> Any:
        """A number above `above` and at most `most`, as a float."""
        value = self._get(name, default)
        if value is default:
            return value
        # An integer may be too large for a float.
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value <= most:
            raise self.error(name, f"a number above {above:g} and at most {most:g}")
        return float(value)

    def boolean(self, name: str, default: Any = REQUIRED) -> Any:
        """True or false."""
        value = self._get(name, default)
        if value is default or isinstance(value, bool):
            return value
        raise self.error(name, "true or false")

    def text(self, name: str, default: Any = REQUIRED, among: Sequence[str] = ()) -> Any:
        """A string, one of `among` if any are given."""
        value = self._get(name, default)
        if value is default or (isinstance(value, str) and (not among or value in among)):
            return value
        raise self.error(name, f"one of {', '.join(among)}" if among else "a string")

    def items(self, name: str, default: Any = REQUIRED, length: int | None = None) -> Any:
        """A list, of `length` entries if that is given; the entries are not checked."""
        value = self._get(name, default)
        if value is default or (isinstance(value, list) and length in (None, len(value))):
            return value
        raise self.error(name, "a list" if length is None else f"a list of {length}")

    def section(self, name: str) -> Fields | None:
        """The object in a field, None when there is none."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return Fields(value, f"{self.where}: {name}")

    def error(self, name: str, required: str) -> CheckpointError:
        """The error of a field whose value is not what is required."""
        value = self.values.get(name)
        shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
        return CheckpointError(f"{self.where}: {name} is {shown[:200]}, and must be {required}.")

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise CheckpointError(f"{self.where}: {name} is missing, and is required.")
        return default
