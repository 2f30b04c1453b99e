"""Faults in source files, one at a place, sampled by a seed. Runs where cosmic-ray is installed.

    python faults.py '{"root": FOLDER, "files": [FILE, ...], "sample": N, "seed": S}'

Prints how many places there are, and the faults: file, line, operator of cosmic-ray, and the lines before and after.
What is no arithmetic of the program is left alone: annotations, messages, assertions, and identity for equality.
"""

import ast
import difflib
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

Place = tuple[int, int]
OPERATORS = {name: get_operator(name)() for name in operator_names() if not get_operator(name).arguments()}


def left_alone(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """Where types, words and assertions are, first and last."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name="__str__" | "__repr__") | ast.Raise() | ast.Assert() | ast.JoinedStr()
                | ast.Call(func=ast.Attribute(value=ast.Name("_logger")) | ast.Attribute(attr="add_note"))
                | ast.keyword(arg="strict")
            ) as part:  # fmt: skip
                pass
            case (
                ast.arg(annotation=ast.expr() as part)
                | ast.AnnAssign(annotation=part)
                | ast.FunctionDef(returns=ast.expr() as part)
            ):
                pass
            case _:
                continue
        yield (part.lineno, part.col_offset), (part.end_lineno or 0, part.end_col_offset or 0)


def places(source: str) -> dict[Place, list[tuple[str, int]]]:
    """Operators and their occurrences, by the place of which they make a fault."""
    spans = list(left_alone(ast.parse(source)))
    found: dict[Place, list[tuple[str, int]]] = defaultdict(list)
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in OPERATORS.items():
        swaps_identity = len({"Is", "IsNot"} & set(name.split("_")[1:])) == 1
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            if not swaps_identity and not any(first <= start < last for first, last in spans):
                found[start].append((name, occurrence))
    return dict(sorted(found.items()))


def fault(source: str, operator: str, occurrence: int) -> dict[str, Any] | None:
    """What the operator makes of it; None where that is no program, or the same one."""
    mutated = mutate_code(source, OPERATORS[operator], occurrence)
    try:
        if ast.dump(ast.parse(mutated)) == ast.dump(ast.parse(source)):
            return None
        compile(mutated, "", "exec")
    except SyntaxError:
        return None
    old, new = source.splitlines(), mutated.splitlines()
    changes = [c for c in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if c[0] != "equal"]
    (_, first, last, start, end), *more = changes
    assert not more
    return {"line": first + 1, "operator": operator, "before": old[first:last], "after": new[start:end]}


def main() -> None:
    """Print the faults that are asked for."""
    asked = json.loads(sys.argv[1])
    sources = {name: (Path(asked["root"]) / name).read_text() for name in asked["files"]}
    every = [(name, options) for name, source in sources.items() for options in places(source).values()]
    rng = random.Random(asked["seed"])
    faults: list[dict[str, Any]] = []
    for name, options in rng.sample(every, len(every)):
        if len(faults) == asked["sample"]:
            break
        tried = (fault(sources[name], *option) for option in rng.sample(options, len(options)))
        if made := next(filter(None, tried), None):
            faults.append({"file": name, **made})
    print(json.dumps({"places": len(every), "faults": faults}))


if __name__ == "__main__":
    main()
