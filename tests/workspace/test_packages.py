"""What the packages say of themselves, against their sources and each other."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "shardes-core": "shardes",
    "shardes-nn": "shardes.nn",
    "shardes-zoo": "shardes.zoo",
    "shardes-tasks": "shardes.tasks",
}
DISTRIBUTIONS = packages_distributions()
each_package = pytest.mark.parametrize("package", MODULES)


def toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def project(package: str) -> Any:
    return toml(f"packages/{package}/pyproject.toml")["project"]


def needs(package: str) -> dict[str, Requirement]:
    return {need.name: need for need in map(Requirement, project(package)["dependencies"])}


def extras(package: str) -> set[str]:
    extra = project(package).get("optional-dependencies", {})
    return {Requirement(need).name for needs in extra.values() for need in needs}


def imports(package: str) -> set[str]:
    """Top-level names, and of shardes the subpackage, that the sources import from outside the standard library."""
    found = set()
    for source in (ROOT / "packages" / package / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{source}: imports are absolute"
                names = [node.module or ""]
                if node.module == "shardes":
                    names = [f"shardes.{alias.name}" for alias in node.names]
            else:
                continue
            found |= {owner(name) for name in names}
    return found - sys.stdlib_module_names - {package}


def owner(module: str) -> str:
    """The distribution that a module comes from."""
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names:
        return parts[0]
    if parts[0] != "shardes":
        return canonicalize_name(DISTRIBUTIONS.get(parts[0], parts)[0])
    return next((package for package, name in MODULES.items() if name == ".".join(parts[:2])), "shardes-core")


def test_the_root_is_virtual() -> None:
    assert "project" not in toml("pyproject.toml")
    assert "build-system" not in toml("pyproject.toml")
    assert {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")} == set(MODULES)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_no_python_is_pinned() -> None:
    git = ["git", "-c", "safe.directory=*", "ls-files", "--error-unmatch", ":(glob)**/.python-version"]
    result = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0, result.stdout


@each_package
def test_siblings_are_needed_by_a_range_that_holds_their_version(package: str) -> None:
    for name, need in needs(package).items():
        if name in MODULES:
            assert {clause.operator for clause in need.specifier} == {">=", "<"}
            assert need.specifier.contains(project(name)["version"])


@each_package
def test_what_is_imported_is_needed(package: str) -> None:
    declared = set(needs(package))
    for sibling in declared & set(MODULES):
        declared |= {sibling, *needs(sibling)}
    if "shardes-nn" in declared:
        declared |= {"shardes-core", *needs("shardes-core")}
    assert imports(package) <= declared | extras(package)


@pytest.mark.slow
@each_package
def test_what_an_extra_brings_is_imported_by_modules_that_nothing_else_imports(package: str) -> None:
    code = f"import sys, {MODULES[package]}; print(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = {owner(name) for name in result.stdout.split()} - {"shardes-core"}
    assert not loaded & extras(package)


@each_package
def test_what_is_needed_is_imported(package: str) -> None:
    # A sibling is needed for the namespace too.
    assert set(needs(package)) - set(MODULES) <= imports(package)


@each_package
def test_a_package_holds_its_own_subpackage_alone(package: str) -> None:
    source = ROOT / "packages" / package / "src"
    folder = source / MODULES[package].replace(".", "/")
    assert (folder / "__init__.py").is_file()
    assert (folder / "py.typed").is_file()
    assert all(path.is_relative_to(folder) for path in source.rglob("*") if path.suffix in {".py", ".typed"})


@each_package
def test_a_package_is_documented(package: str) -> None:
    folder = ROOT / "packages" / package
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert f"pip install {package}" in (folder / "README.md").read_text()


def test_bootstrap_takes_the_pythons_that_the_lock_has_wheels_for() -> None:
    script = (ROOT / "tools" / "bootstrap.sh").read_text()
    settings = dict(re.findall(r'^([A-Z]+)="?([^"\n]+)"?$', script, re.MULTILINE))
    oldest, newest = (int(settings[name]) // 100 % 100 for name in ("OLDEST", "NEWEST"))
    assert settings["SUPPORTED"] == f"3.{oldest} to 3.{newest}"
    assert {project(package)["requires-python"] for package in MODULES} == {f">=3.{oldest}"}
    wheels = next(package["wheels"] for package in toml("uv.lock")["package"] if package["name"] == "jaxlib")
    minors = {int(minor) for wheel in wheels for minor in re.findall(r"-cp3(\d+)-cp3\d+-", wheel["url"])}
    assert minors == set(range(oldest, newest + 1))
