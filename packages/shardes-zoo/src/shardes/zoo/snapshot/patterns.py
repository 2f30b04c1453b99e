"""How much a regular expression of a tokenizer.json may backtrack.

Oniguruma, which the tokenizers library uses, gives up after ten million steps at one place of a text, and a text has
many places. So the steps at one place of a text of a thousand characters are bounded by the structure of the pattern:
the ways in which all but the last part that can fail may match, multiplied. Those of real ones are a few thousand.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from shardes.zoo.errors import CheckpointError
from shardes.zoo.snapshot.files import shown

__all__ = ["check_pattern"]

_TEXT = 1000
_MAX_STEPS = 2**13
_MAX_LENGTH = 2**13

_CHARACTER = re.compile(
    r"\\(?:[pP]\{[^{}]*\}|x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[aefnrtvdDhHsSwWNORX0]|[^a-zA-Z0-9])"
    r"|[^\\\[()|^$*+?]",
    re.DOTALL,
)
_IN_CLASS = re.compile(r"[()|^$*+?]|\\b")
_ANCHOR = re.compile(r"[$^]|\\[bBAzZG]")
_GROUP = re.compile(r"\((?:\?(?:(?P<look><?[=!])|(?P<atomic>>)|(?P<rest>[im-]+\))|[im-]*:|<[A-Za-z]\w*>))?(?!\?)")
_REPEAT = re.compile(r"[*+?]|\{(\d+)\}|\{(\d*),(\d+)\}|\{(\d+),\}")


def check_pattern(pattern: str, where: str) -> None:
    """Check that a pattern backtracks within bounds.

    Args:
        pattern: a regular expression, in the syntax of Oniguruma.
        where: what errors call the place that holds it.

    Raises:
        CheckpointError: it may take more, or has what is not known here, such as a back reference.
    """
    try:
        if len(pattern) > _MAX_LENGTH:
            raise ValueError(f"has {len(pattern)} characters, and must have at most {_MAX_LENGTH}")
        steps = _Reader(pattern).whole().steps
        if steps > _MAX_STEPS:
            raise ValueError(f"may try {steps:.3g} ways at one place of a text, and must try at most {_MAX_STEPS}")
    except RecursionError:
        raise CheckpointError(f"{where}: the pattern {shown(pattern)} is nested too deeply.") from None
    except ValueError as error:
        raise CheckpointError(f"{where}: the pattern {shown(pattern)} {error}.") from None


class _Part(NamedTuple):
    """A part of a pattern.

    Attributes:
        ways: in how many ways it may match at one place, at most.
        steps: how many are tried until it matches or fails, at most.
        fails: whether it can fail.
    """

    ways: float = 1.0
    steps: float = 1.0
    fails: bool = True


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> _Part:
        part = self._alternatives()
        if self._at < len(self._pattern):
            raise self._unknown()
        return part

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        ways, steps, fails = zip(*parts, strict=True)
        return _Part(sum(ways), sum(steps), all(fails))

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._single()))
        last = max((i for i, part in enumerate(parts) if part.fails), default=0)
        before = math.prod(max(part.ways, part.steps) for part in parts[:last])
        # What comes after it matches in the first way that is tried.
        steps = sum(part.steps * (before if i == last else 1) for i, part in enumerate(parts[last:], last))
        return _Part(math.prod(part.ways for part in parts), max(1.0, steps), any(part.fails for part in parts))

    def _single(self) -> _Part:
        if self._match(_CHARACTER) or self._match(_ANCHOR):
            return _Part()
        if self._take("["):
            self._skip_class()
            return _Part()
        group = self._match(_GROUP)
        if group is None:
            raise self._unknown()
        inner = self._alternatives()
        if group["rest"]:
            # These options hold to the end of the group around, its alternatives included.
            return inner
        if not self._take(")"):
            raise self._unknown()
        if group["look"]:
            return _Part(1.0, inner.steps, True)
        return inner._replace(ways=1.0) if group["atomic"] else inner

    def _skip_class(self) -> None:
        self._take("^")
        if self._take("]"):
            raise ValueError("has a class that begins with ], which must be written \\]")
        while not self._take("]"):
            if self._take("["):
                self._skip_class()
            elif not self._match(_CHARACTER) and not self._match(_IN_CLASS):
                raise self._unknown()

    def _repeated(self, part: _Part) -> _Part:
        while found := self._match(_REPEAT):
            exact, least, most, least_only = found.groups()
            low = int(exact or least or least_only or found[0] == "+")
            low, high = sorted((low, int(exact or most or (1 if found[0] == "?" else _TEXT))))
            ways = _power(part.ways, high) if part.ways > 1 else 1.0 + min(high - low, _TEXT)
            part = _Part(ways, _power(part.ways, low - 1) * part.steps, part.fails and low > 0)
            if self._take("?"):
                # Some syntaxes read {n}? as optional.
                part = part._replace(ways=part.ways + 1)
            elif found[0] in "*+?" and self._take("+"):
                part = part._replace(ways=1.0)
        return part

    def _match(self, kind: re.Pattern[str]) -> re.Match[str] | None:
        found = kind.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _take(self, character: str) -> bool:
        found = self._pattern.startswith(character, self._at)
        self._at += found
        return found

    def _unknown(self) -> ValueError:
        rest = self._pattern[self._at : self._at + 20]
        return ValueError(f"has {rest!r}, which is not known here" if rest else "ends too early")


def _power(base: float, exponent: int) -> float:
    if base == 1 or exponent < 1:
        return 1.0
    return math.inf if exponent * math.log2(base) > 99 else base**exponent
