"""The page: lines of a name, a number and a sentence, those that call for action marked."""

from __future__ import annotations

import dataclasses
import textwrap

__all__ = ["Line", "page"]

_WIDTH = 100
_NAME, _NUMBER = 20, 20


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the page; `alarm` where it calls for action."""

    name: str
    number: str
    advice: str
    alarm: bool = False


def page(title: str, lines: list[Line]) -> str:
    """The lines as text of at most 100 columns, alarms marked."""
    alarms = sum(line.alarm for line in lines)
    verdict = f"{alarms} alarm{'s' * (alarms > 1)}, marked !" if alarms else "nothing is wrong that this can see"
    text = [textwrap.shorten(title, _WIDTH - len(verdict) - 2) + ": " + verdict, ""]
    for line in lines:
        head = f"{'!' if line.alarm else ' '} {line.name:<{_NAME}}{line.number:<{_NUMBER}}"
        text += textwrap.wrap(line.advice, _WIDTH, initial_indent=head, subsequent_indent=" " * (2 + _NAME + _NUMBER))
    return "\n".join(text)
