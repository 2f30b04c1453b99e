"""Reading programs: the arrays of a traced one, the collectives of a compiled one."""

import re
from collections import Counter
from math import prod


def programs_in(program):
    """A traced program and all its inner ones."""
    program = getattr(program, "jaxpr", program)
    yield program
    for equation in program.eqns:
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from programs_in(inner)


def arrays_in(traced):
    """Shape and dtype of everything that a traced program computes or holds as a constant."""
    for program in programs_in(traced):
        for variable in [*program.constvars, *(out for equation in program.eqns for out in equation.outvars)]:
            yield variable.aval


def equations_in(traced):
    """Number of equations of a traced program."""
    return sum(len(program.eqns) for program in programs_in(traced))


_COLLECTIVE = re.compile(
    r" = (.*?) (all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute|collective-broadcast)(?:-start)?\("
)


def collectives_in(compiled):
    """Elements that every kind of collective of a compiled program gives each device."""
    found = Counter()
    for types, kind in _COLLECTIVE.findall(compiled.as_text()):
        for dimensions in re.findall(r"\w+\[([\d,]*)\]", types):
            found[kind] += prod(int(d) for d in dimensions.split(",") if d)
    return found


def temporary_bytes(function, *args):
    """Peak temporary memory of a jitted function's compiled program, a device's share."""
    return function.lower(*args).compile().memory_analysis().temp_size_in_bytes
