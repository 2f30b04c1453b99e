"""A copy of the packages and their tests, in which faults are made and looked for."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from validation.workers import ROOT

ONE_TEST = 120
"""Seconds that a test may take: ten times the longest and more."""

WHOLE = 1800
"""Seconds that all of them may take."""


class Sandbox:
    """Packages and tests in a folder; `tests` are those to run, as arguments of pytest."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        self.folder = folder.resolve()
        self.tests = tests
        skip = shutil.ignore_patterns("__pycache__")
        for name in ("packages", "tests", "docs"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=skip)
        shutil.copy(ROOT / "pyproject.toml", self.folder)
        self.notes = self.folder / "notes.json"
        outcome = self._run("--note", str(self.notes))
        if outcome.returncode:
            raise RuntimeError(f"The tests fail without a fault:\n{outcome.stdout}")

    def verdict(self, fault: dict[str, Any], *arguments: str) -> tuple[str, str]:
        """Whether a fault is "killed" or "survived", or has met a "timeout"; and the first test to tell."""
        at = f"{fault['file']}:{fault['line']}:{fault['line'] + max(len(fault['before']), 1) - 1}"
        with self._with(fault):
            try:
                outcome = self._run("--exitfirst", "--noted", str(self.notes), "--fault", at, *arguments)
            except subprocess.TimeoutExpired:
                return "timeout", ""
        if not outcome.returncode:
            return "survived", ""
        if outcome.returncode in (3, 4, 5):
            raise RuntimeError(f"pytest could not look for {fault}:\n{outcome.stdout}")
        told = [line for line in outcome.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not told:
            return "timeout" if "Timeout (" in outcome.stdout else "killed", f"exit with {outcome.returncode}"
        test = told[0].split(" ", 1)[1].split(" - ")[0]
        noted = json.loads(self.notes.read_text())
        if test in noted:
            noted[test]["told"] = noted[test].get("told", 0) + 1
            self.notes.write_text(json.dumps(noted))
        return "killed", test

    @contextmanager
    def _with(self, fault: dict[str, Any]) -> Iterator[None]:
        path = self.folder / fault["file"]
        source = path.read_text()
        lines = source.splitlines()
        first = fault["line"] - 1
        last = first + len(fault["before"])
        if lines[first:last] != fault["before"]:
            raise ValueError(f"{fault['file']}, line {fault['line']} is no longer {fault['before']}. Sample anew.")
        path.write_text("\n".join(lines[:first] + fault["after"] + lines[last:]) + "\n")
        try:
            yield
        finally:
            path.write_text(source)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # The copy comes before what is installed; the plugin is read from here.
        sources = [str(path) for path in sorted(self.folder.glob("packages/*/src"))]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*sources, str(ROOT)]),
            # The run without a fault alone writes bytecode, so that none holds a fault.
            "PYTHONDONTWRITEBYTECODE": "" if "--note" in arguments else "1",
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".tools" / "mutation" / "compiled"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "validation.mutation.telling"]
        bounds = ["-o", f"faulthandler_timeout={ONE_TEST}", "-o", "faulthandler_exit_on_timeout=true"]
        process = subprocess.Popen(
            [*command, *bounds, *arguments, *self.tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=WHOLE)
        finally:
            # What tests have started does not outlive them.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(command, process.returncode, output)
