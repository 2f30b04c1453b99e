"""Programs in processes and environments of their own, so that one run can alternate between them."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def uv() -> str:
    """The path of a uv that works."""
    found = subprocess.run([ROOT / "tools" / "bootstrap.sh", "uv"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def environment(folder: Path, *packages: str) -> Path:
    """The interpreter of a virtual environment that holds the packages, made when it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([uv(), "venv", "--quiet", "--no-project", "--python", sys.executable, folder], check=True)
    subprocess.run([uv(), "pip", "install", "--quiet", "--python", python, *packages], check=True)
    return python


def transformers_python() -> Path:
    """An interpreter with torch and transformers: that of TRANSFORMERS_PYTHON, or one made here."""
    if given := os.environ.get("TRANSFORMERS_PYTHON"):
        return Path(given)
    return environment(ROOT / ".tools" / "transformers", "torch", "transformers", "numpy")


class Worker:
    """A script under some Python: given a request, it prints a report, then the seconds of a run for every line."""

    def __init__(self, python: Path, script: Path, request: dict[str, Any]) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JAX_COMPILATION_CACHE_DIR")}
        self.process = subprocess.Popen(
            [str(python), str(script), json.dumps(request)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=script.parent,
        )
        self.report = json.loads(self._line())
        self.seconds: list[float] = []

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)

    def run(self) -> None:
        """Time one run."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.seconds.append(float(self._line()))

    def summary(self) -> dict[str, Any]:
        """What was measured, the times as their median."""
        return {**self.report, "seconds": statistics.median(self.seconds)} if self.seconds else self.report

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args!r} ended with {self.process.wait()}.")
        return line
