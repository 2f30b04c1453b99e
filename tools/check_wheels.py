"""Builds all packages into dist/ and checks what their wheels hold, and what works where nothing else is installed.

The clean environments lie outside the checkout. The versions in them are those of uv.lock.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    "shardes-core": "shardes",
    "shardes-nn": "shardes/nn",
    "shardes-zoo": "shardes/zoo",
    "shardes-tasks": "shardes/tasks",
}
NEEDS = {
    "shardes-core": ("jax", "numpy", "scipy"),
    "shardes-nn": (),
    "shardes-zoo": ("huggingface-hub", "jinja2", "safetensors", "tokenizers"),
    "shardes-tasks": (),
}

CORE_ALONE = """
import importlib.util
import shardes

assert importlib.util.find_spec("shardes.nn") is None, "shardes-core brings shardes.nn along"
"""

ALL = """
import shardes.tasks
from shardes import LowRank, Mirrored, SeedRegenerated, ShardedES, make_mesh
from shardes.nn import check_model, dense, embed
from shardes.zoo import byte_transformer, load, names, transformer_block

load("byte-transformer")
"""

NOTHING_OF_THE_CHECKOUT = f"""
import sys

files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
found = [path for path in sys.path + files if path.startswith({str(ROOT)!r})]
assert not found, f"the checkout was on the path: {{found}}"
"""


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    result = subprocess.run(command, cwd=cwd, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"{result.stdout}\nfailed with status {result.returncode}: {' '.join(map(str, command))}")
    return result.stdout


UV = run("tools/bootstrap.sh", "uv").strip()


def check_contents(wheel: Path, package: str) -> None:
    """The wheel holds the files of its own subpackage and the licence, and nothing else."""
    source = ROOT / "packages" / package / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / MODULES[package]).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
    wanted |= {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")}
    wanted.add(f"{MODULES[package]}/py.typed")
    if "scripts" in tomllib.loads((source.parent / "pyproject.toml").read_text())["project"]:
        wanted.add(f"{info}/entry_points.txt")
    with zipfile.ZipFile(wheel) as archive:
        held = [name for name in archive.namelist() if not name.endswith("/")]
        licence = archive.read(f"{info}/licenses/LICENSE")
    if sorted(held) != sorted(wanted):
        sys.exit(f"{wheel.name} holds {sorted(held)}, and must hold {sorted(wanted)}")
    if licence != (ROOT / "LICENSE").read_bytes():
        sys.exit(f"{wheel.name} holds another licence than the repository")


class Environment:
    """A virtual environment in which nothing but the given wheels and what they need is installed."""

    def __init__(self, folder: Path, wheels: list[Path], constraints: Path) -> None:
        self.folder = folder
        run(UV, "venv", "--quiet", "--no-project", "--python", sys.executable, folder)
        run(UV, "pip", "install", "--quiet", "--python", folder, "--constraints", constraints, *wheels, cwd=folder)

    def python(self, code: str) -> str:
        script = self.folder / "script.py"
        script.write_text(code + NOTHING_OF_THE_CHECKOUT)
        return run(self.folder / "bin" / "python", script, cwd=self.folder)

    def check_command_line(self) -> None:
        """Without the extra `cli` the command says in one line how to get it."""
        command = self.folder / "bin" / "shardes-zoo"
        found = subprocess.run([command, "list"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        if found.returncode != 2 or found.stderr.count("\n") != 1 or "'shardes-zoo[cli]'" not in found.stderr:
            sys.exit(f"shardes-zoo list exits with {found.returncode} and says {found.stderr!r}")

    def check_installed(self, *packages: str) -> None:
        """Installed are the packages, their NEEDS, and what those need going by their metadata."""
        site = next(self.folder.glob("lib/python3*/site-packages"))
        installed = {canonicalize_name(found.name): found for found in metadata.distributions(path=[str(site)])}
        wanted = set(packages)
        queue = [need for package in packages for need in NEEDS[package]]
        while queue:
            name = canonicalize_name(queue.pop())
            if name not in wanted:
                wanted.add(name)
                needs = map(Requirement, installed[name].requires or [])
                queue += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        if wanted != set(installed):
            sys.exit(f"installed are {sorted(installed)}, where {packages} must need {sorted(wanted)}")


def first_python_block(page: Path) -> str:
    found = re.search(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    if found is None:
        sys.exit(f"{page} has no block of Python")
    return found.group(1)


def build() -> dict[str, Path]:
    """Builds the wheels, each from its sdist, so that an sdist that lacks a file is noticed."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(UV, "build", "--quiet", "--all-packages", "--out-dir", dist)
    wheels = {package: list(dist.glob(f"{package.replace('-', '_')}-*.whl")) for package in MODULES}
    for package, found in wheels.items():
        if len(found) != 1:
            sys.exit(f"{package} gave {len(found)} wheels")
    return {package: found[0] for package, found in wheels.items()}


def main() -> None:
    wheels = build()
    for package, wheel in wheels.items():
        check_contents(wheel, package)
    print(f"built {', '.join(wheel.name for wheel in wheels.values())}")

    with tempfile.TemporaryDirectory(prefix="shardes-wheels-") as temporary:
        folder = Path(temporary)
        constraints = folder / "constraints.txt"
        constraints.write_text(
            run(UV, "export", "--quiet", "--frozen", "--all-packages", "--no-emit-workspace", "--no-hashes")
        )

        core = Environment(folder / "core", [wheels["shardes-core"]], constraints)
        core.check_installed("shardes-core")
        core.python(CORE_ALONE)
        print("shardes-core alone: imports, with jax, numpy, scipy and what they need")

        everything = Environment(folder / "all", list(wheels.values()), constraints)
        everything.check_installed(*wheels)
        everything.python(ALL)
        print(everything.python(first_python_block(ROOT / "README.md")), end="")
        print("all packages: import, and the README's quickstart runs")
        everything.check_command_line()
        print("shardes-zoo: its command names the extra that it needs")

        # The package that brings its own Node.js: the others download one when they first run.
        pyright = folder / "pyright"
        run(
            *(UV, "sync", "--quiet", "--frozen", "--only-group", "pyright", "--python", sys.executable),
            UV_PROJECT_ENVIRONMENT=str(pyright),
        )
        page = folder / "page" / "uses_shardes.py"
        page.parent.mkdir()
        page.write_text(ALL)
        run(
            *(pyright / "bin" / "basedpyright", "--level", "error"),
            *("--pythonpath", everything.folder / "bin" / "python", page),
            cwd=page.parent,
        )
        print("pyright: resolves shardes, shardes.nn, shardes.zoo and shardes.tasks")


if __name__ == "__main__":
    main()
