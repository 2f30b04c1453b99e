"""What the process runs that renders chat templates: jinja2 in its sandbox, with what transformers gives templates.

It is started as a script by `chat`, imports nothing of the package, and answers requests on its pipes until they close.
Each rendering has a time limit that it keeps by itself, so that it never outlives a killed parent by more than that.
"""

from __future__ import annotations

import datetime
import faulthandler
import functools
import json
import os
import signal
import struct
import sys
from typing import IO, Any, NoReturn

HEADER = struct.Struct(">Q")
OUT_OF_MEMORY = 77
_MAX_LENGTH = 2**24
_MAX_ERROR = 500


def main(memory: int) -> None:
    """Answer requests until the pipe ends, with at most `memory` bytes of address space where the system can say so."""
    # An interrupt of the terminal is for the parent alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit(memory)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        _environment()
        _send(sink, {})
        while header := source.read(HEADER.size):
            _send(sink, _answer(source.read(*HEADER.unpack(header))))
    except MemoryError:
        # What was left undone elsewhere by the failed allocation is not known.
        os._exit(OUT_OF_MEMORY)


def _limit(memory: int) -> None:
    try:
        import resource
    except ImportError:
        return
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # macOS refuses limits of the address space.
        if sys.platform != "darwin" or kind == resource.RLIMIT_CORE:
            resource.setrlimit(kind, (soft, soft))


def _send(sink: IO[bytes], answer: dict[str, str]) -> None:
    content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    sink.write(HEADER.pack(len(content)))
    sink.write(content)
    sink.flush()


def _answer(content: bytes) -> dict[str, str]:
    from jinja2 import TemplateError

    request = json.loads(content)
    # This thread needs no lock of the interpreter, which a long call of its own code would hold.
    faulthandler.dump_traceback_later(request["seconds"], exit=True)
    try:
        text = _compiled(request["template"]).render(request["variables"])
        if len(text) > _MAX_LENGTH:
            return {"error": f"it makes more than {_MAX_LENGTH} characters"}
        return {"text": text}
    except MemoryError:
        raise
    except Exception as error:
        # A template's mistakes surface as whatever Python makes of them.
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
        return {"error": kind + str(error)[:_MAX_ERROR]}
    finally:
        faulthandler.cancel_dump_traceback_later()


@functools.lru_cache(maxsize=4)
def _compiled(template: str) -> Any:
    return _environment().from_string(template)


@functools.cache
def _environment() -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The tag that marks what the assistant says, for training: here its body is rendered and no more."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> nodes.Node:
            next(parser.stream)
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True))

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    # jinja2's own escapes what HTML would read.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    sys.path += sys.argv[2:]
    main(int(sys.argv[1]))
