"""Releases one package: bumps its version, checks the workspace, builds, commits and tags. Publishes nothing.

    make release PACKAGE=shardes-nn VERSION=0.2.1

Whatever fails, Ctrl-C included, leaves the checkout as it was. A version that stands in pyproject.toml already and has
no tag is released as it stands.
"""

import argparse
import contextlib
import datetime
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check_wheels import MODULES, ROOT, UV, check_contents, run
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

CHECKS = ("make", "lint", "types", "fast")
CITED = "shardes-core"


def project(package: str) -> Any:
    return tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]


def git(*arguments: str | Path) -> str:
    return run("git", *arguments).rstrip()


# --- what must be so before anything is touched -----------------------------------------------------------------------


def parse(package: str, version: str) -> Version:
    """The version. Exits where there is no such package, or where PyPI would write the version otherwise."""
    if package not in MODULES:
        sys.exit(f"PACKAGE={package}: there is no such package. Name one of {', '.join(MODULES)}.")
    try:
        parsed = Version(version)
    except InvalidVersion:
        sys.exit(f"VERSION={version} is no version. Give one such as {project(package)['version']}.")
    if str(parsed) != version or parsed.local:
        sys.exit(f"VERSION={version} is not how PyPI writes it. Give {parsed.public}.")
    return parsed


def tag_of(package: str, version: str) -> str:
    return f"{package}-v{version}"


def obstacles(package: str, version: Version) -> Iterator[str]:
    """Sentences on what stands in the way of a release, each with what to do."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        yield f"The tree is dirty: {len(changed)} files, such as {changed[0][3:]}. Commit or remove them."
    yield from version_obstacles(package, version)
    yield from changelog_obstacles(package, version)
    for sibling in MODULES:
        for need in sibling_needs(sibling):
            if need.name == package and not need.specifier.contains(version, prereleases=True):
                path = f"packages/{sibling}/pyproject.toml"
                yield f"{sibling} needs {need}, which does not admit {version}. Widen the range in {path}."


def version_obstacles(package: str, version: Version) -> Iterator[str]:
    tagged = list(tagged_versions(package))
    if version in tagged:
        yield f"The tag {tag_of(package, str(version))} exists. Choose a higher version: a release is never changed."
    highest = max([Version(project(package)["version"]), *tagged])
    if version < highest:
        yield f"{version} does not go up: {package} is at {highest}. Choose a higher version."


def tagged_versions(package: str) -> Iterator[Version]:
    for tag in git("tag", "--list", tag_of(package, "*")).splitlines():
        with contextlib.suppress(InvalidVersion):
            yield Version(tag.removeprefix(tag_of(package, "")))


def changelog_obstacles(package: str, version: Version) -> Iterator[str]:
    path, today = f"packages/{package}/CHANGELOG.md", datetime.date.today().isoformat()
    wanted = f"## [{version}] - {today}"
    heading, _, body = f"{(ROOT / path).read_text()}\n## ".partition("\n## ")[2].partition("\n## ")[0].partition("\n")
    if f"## {heading}" != wanted:
        yield f"{path} begins with {heading or 'no version'!r}. Write what has changed under '{wanted}' at its top."
    elif not re.search(r"^- \S", body, re.MULTILINE):
        yield f"{path} says nothing under '{wanted}'. Write what has changed."


def sibling_needs(package: str) -> Iterator[Requirement]:
    found = project(package)
    for needs in (found["dependencies"], *found.get("optional-dependencies", {}).values()):
        yield from (need for need in map(Requirement, needs) if need.name in MODULES)


# --- the release ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def undone_on_failure(files: list[str]) -> Iterator[list[Path]]:
    """Put back HEAD and these files, which are as HEAD has them, and remove what was added to the list it gives."""
    start, made = git("rev-parse", "HEAD"), list[Path]()
    try:
        yield made
    except BaseException:
        git("reset", "--quiet", "--soft", start)
        git("restore", f"--source={start}", "--staged", "--worktree", "--", *files)
        for path in made:
            path.unlink(missing_ok=True)
        raise


def bump(package: str, version: str) -> None:
    run(UV, "version", "--quiet", "--frozen", "--package", package, version)
    run(UV, "lock", "--quiet", "--python", sys.executable)
    if package == CITED:
        citation = ROOT / "CITATION.cff"
        citation.write_text(re.sub(r"^version: .*$", f"version: {version}", citation.read_text(), flags=re.MULTILINE))


def build(package: str, folder: Path) -> list[Path]:
    """The sdist, and the wheel that is built from it."""
    options = ("--quiet", "--no-create-gitignore", "--python", sys.executable, "--package", package)
    run(UV, "build", *options, "--out-dir", folder)
    built = sorted(folder.iterdir())
    check_contents(next(path for path in built if path.suffix == ".whl"), package)
    return built


def release(package: str, version: str) -> list[Path]:
    """Everything from the bump to the tag, which comes last. Gives what was built."""
    files = [f"packages/{package}/pyproject.toml", "uv.lock", *(["CITATION.cff"] if package == CITED else [])]
    with undone_on_failure(files) as made, tempfile.TemporaryDirectory(prefix="shardes-release-") as temporary:
        bump(package, version)
        if subprocess.run(CHECKS, cwd=ROOT).returncode:
            sys.exit(f"failed, so nothing is released: {' '.join(CHECKS)}")
        built = build(package, Path(temporary))
        if git("status", "--porcelain", "--", *files):
            git("commit", "--quiet", "-m", f"Release {package} {version}", "--", *files)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        for path in built:
            made.append(dist / path.name)
            shutil.copy(path, dist)
        git("tag", "--annotate", tag_of(package, version), "-m", f"{package} {version}")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", usage="make release PACKAGE=shardes-nn VERSION=0.2.1")
    parser.add_argument("package")
    parser.add_argument("version")
    given = parser.parse_args()
    version = parse(given.package, given.version)
    found = list(obstacles(given.package, version))
    if found:
        sys.exit("\n".join([f"{given.package} {version} is not released:", *(f"  {one}" for one in found)]))
    built = release(given.package, str(version))
    tag = tag_of(given.package, str(version))
    print(f"tagged {tag}, and built {' and '.join(str(path.relative_to(ROOT)) for path in built)}")
    print(f"Nothing is published yet. To publish: git push --atomic REMOTE HEAD {tag}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted, so nothing is released")
