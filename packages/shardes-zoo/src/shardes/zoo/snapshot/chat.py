"""Chat templates, rendered in jinja2's sandbox with what transformers gives them, and bounded in time and size."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shardes.zoo.errors import CheckpointError

__all__ = ["render"]

_MAX_LENGTH = 2**24
_MAX_STEPS = 2**17


def render(template: str, where: str, variables: Mapping[str, Any]) -> str:
    """The text of a template.

    Args:
        template: its source.
        where: what errors call it.
        variables: what it sees.

    Raises:
        CheckpointError: the template is not sound, refuses the variables, does what the sandbox forbids, takes more
            than a hundred thousand steps, or makes more than 16 million characters.
    """
    environment = _Environment()
    parts: list[str] = []
    length = 0
    try:
        for part in environment.from_string(template).generate(variables):
            length += len(part)
            if length > _MAX_LENGTH:
                raise _TooMuch(f"it makes more than {_MAX_LENGTH} characters")
            parts.append(part)
    except (TemplateError, _TooMuch) as error:
        raise CheckpointError(f"{where} cannot be rendered: {str(error)[:500]}") from None
    except Exception as error:
        # A template's mistakes surface as whatever Python makes of them.
        raise CheckpointError(f"{where} cannot be rendered: {type(error).__name__}: {str(error)[:500]}") from None
    return "".join(parts)


class _TooMuch(Exception):
    """A template would take too long or too much memory."""


class _Generation(Extension):
    """The tag that marks what the assistant says, for training: here its body is rendered and no more."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise _TooMuch(f"it takes more than {_MAX_STEPS} steps")

    def _generate(self, source: nodes.Template, *args: Any, **named: Any) -> str:
        for node in source.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
            call = nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)
            body: list[nodes.Node] = node.body  # type: ignore[attr-defined]
            body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))
        return super()._generate(source, *args, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not all(isinstance(x, int | float) and abs(x) < 2**16 for x in (left, right)):
            raise _TooMuch(f"{operator} has too large an operand")
        sizes = [len(x) for x in (left, right) if isinstance(x, str | list | tuple)]
        if operator == "*" and sizes:
            sizes = [sizes[0] * (right if isinstance(right, int) else left if isinstance(left, int) else 1)]
        if operator == "%" and isinstance(left, str) and re.search(r"\d{5}|\*", left):
            raise _TooMuch("a format is too wide")
        if sum(sizes) > _MAX_LENGTH:
            raise _TooMuch(f"{operator} makes more than {_MAX_LENGTH} characters")
        return super().call_binop(context, operator, left, right)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # jinja2's own escapes what HTML would read.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
