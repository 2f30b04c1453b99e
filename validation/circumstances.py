"""What a result was measured on."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from validation.workers import ROOT


def processor() -> str:
    """What this machine's processor calls itself, or its architecture."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def circumstances(*packages: str) -> dict[str, object]:
    """Date, commit, machine, and versions of Python and of packages, for the file of a result."""
    commit = _git("describe", "--always")
    if _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)validation/results"):
        commit += "-dirty"
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "device": processor(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
