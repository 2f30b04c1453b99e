"""Every Python block of the pages, the cards and the READMEs runs, those of a page in one namespace."""

import os
import re
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import pytest
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

import shardes
from shardes import zoo

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "packages/*/README.md", "zoo/*/README.md", "docs/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
# Code of another library is only compiled. An example's file has a test, or runs as a block does.
PYTHON = re.compile(r"^ *```+ *(?:py\w*|{[^}\n]*\.py\w*[^}\n]*}).*$", re.MULTILINE)
THEIRS = re.compile(r"^( *)``` { \.python \.theirs }\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
EXAMPLE = " { .python .example }"
INCLUDED = re.compile(r'--8<-- "(docs/examples/(\w+)\.py)"\s*')

# What a page takes for granted, because it is no program but shows how something is called.
ARRAYS = {"x": jnp.ones((2, 3)), "w": jnp.ones((4, 3)), "table": jnp.ones((5, 3)), "ids": jnp.arange(2)}
GIVEN = {
    "packages/shardes-nn/README.md": ARRAYS
    | {"model": lambda params, x: x @ params["w"].T, "params": {"w": ARRAYS["w"]}, "batch": (ARRAYS["x"],)},
}

# Models of the Hub are stood in for by tiny ones of their architecture, and runs are short.
CHECKPOINTS = ROOT / "tests" / "zoo" / "checkpoints"
TINY = {"qwen2": "qwen2-tiny-tied", "llama": "llama-tiny", "qwen3": "qwen3-tiny"}
GENERATIONS = 3


def load(name, *args, real=zoo.load, **options):
    hub = name in zoo.names() and zoo.info(name).repo_id is not None
    return real(CHECKPOINTS / TINY[zoo.info(name).architecture] if hub else name, *args, **options)


def fit(es, state, *args, generations, real=shardes.fit, **options):
    return real(es, state, *args, generations=min(generations, int(state.generation) + GENERATIONS), **options)


def evaluate_example(example: Example) -> None:
    included = INCLUDED.fullmatch(example.parsed)
    assert included is not None, "a block that is marked as an example includes one of docs/examples"
    path, name = included.groups()
    source = (ROOT / path).read_text()
    if "__main__" in source:
        assert f"{name}.py" in (ROOT / f"tests/docs/test_{name}.py").read_text()
    else:
        exec(compile(source, path, "exec"), example.namespace)


SYBIL = Sybil([CodeBlockParser("python", PythonEvaluator()), CodeBlockParser(EXAMPLE, evaluate_example)])


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(zoo, "load", load)
    monkeypatch.setattr(shardes, "fit", fit)
    document = SYBIL.parse(ROOT / page)
    document.namespace.update(GIVEN.get(page, {}))
    examples = list(document.examples())
    theirs = THEIRS.findall(document.text)
    assert len(examples) + len(theirs) == len(PYTHON.findall(document.text)), "a block is opened in an unknown way"
    for indent, code in theirs:
        compile(re.sub(f"^{indent}", "", code, flags=re.MULTILINE), page, "exec")
    # As users have it: the tests' strictness is for the library.
    with mock.patch.dict(os.environ), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for example in examples:
            example.evaluate()


def test_runs_are_short_here_alone() -> None:
    es = shardes.ShardedES(shardes.IIDGaussian(), n=2, sigma=0.1, lr=0.1)
    state = es.init(jax.random.key(0), {"w": jnp.zeros(1)})
    assert len(fit(es, state, lambda params: params["w"][0], generations=100)[1]) == GENERATIONS
