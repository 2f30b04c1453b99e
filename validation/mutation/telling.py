"""A pytest plugin: notes which lines each test runs, or takes those tests that run the lines of a fault."""

import json
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

TOOL = sys.monitoring.COVERAGE_ID
MEMORY = 12 * 2**30
"""Bytes of address space, for a fault that asks for all there is."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note", type=Path, help="file to write seconds and lines of every test to")
    parser.addoption("--noted", type=Path, help="file that an earlier run has noted")
    parser.addoption("--fault", help="FILE:FIRST:LAST, the lines of a fault, inclusive")
    parser.addoption("--every", action="store_true", help="run all tests, those of the lines first")


def pytest_configure(config: pytest.Config) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if config.getoption("note"):
        config.pluginmanager.register(Notes(config.rootpath, config.getoption("note")))


class Notes:
    """What every test runs."""

    def __init__(self, root: Path, path: Path) -> None:
        self.packages = str(root / "packages")
        self.root = root
        self.path = path
        self.tests: dict[str, Any] = {}
        self.lines: dict[str, set[int]] = defaultdict(set)
        sys.monitoring.use_tool_id(TOOL, "telling")
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.PY_START, self._started)
        sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, self._ran)
        sys.monitoring.set_events(TOOL, sys.monitoring.events.PY_START)

    def _started(self, code: CodeType, _: int) -> Any:
        if code.co_filename.startswith(self.packages):
            sys.monitoring.set_local_events(TOOL, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE

    def _ran(self, code: CodeType, line: int) -> None:
        self.lines[code.co_filename].add(line)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines.clear()
        start = time.perf_counter()
        result = yield
        lines = {str(Path(file).relative_to(self.root)): sorted(found) for file, found in self.lines.items()}
        self.tests[item.nodeid] = {"seconds": time.perf_counter() - start, "lines": lines}
        return result

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.tests))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("fault"):
        return
    noted = json.loads(config.getoption("noted").read_text())
    file, first, last = config.getoption("fault").split(":")
    fault = set(range(int(first), int(last) + 1))
    running = {item for item in items if not fault.isdisjoint(noted[item.nodeid]["lines"].get(file, ()))}
    cases: Counter[str] = Counter()

    def order(item: pytest.Item) -> tuple[bool, int, float]:
        """Those that run the lines, that have told of faults before, and that are quick; one case of a test a turn."""
        test = noted[item.nodeid]
        function = item.nodeid.split("[")[0]
        cases[function] += 1
        return item not in running, -test.get("told", 0), test["seconds"] * cases[function]

    # Lines that no test runs are those of an import, which may matter to any.
    every = config.getoption("every") or not running
    items[:] = sorted((item for item in items if every or item in running), key=order)
