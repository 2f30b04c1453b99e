"""tools/release.py on a scratch repository of the real packages' metadata, which need nothing of any registry."""

import datetime
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir())
TODAY = datetime.date.today().isoformat()
STANDS_IN_FOR_THE_CHECKS = """
lint types fast:
	@echo $@ >>.git/checked
	@case "$(FAILS)" in "$@") exit 1 ;; "interrupt $@") kill -INT 0 && sleep 60 ;; esac
"""


class Repository:
    """A checkout with the versions of the real one, clean, and with nothing tagged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("tools/release.py", "tools/check_wheels.py", "tools/bootstrap.sh", "LICENSE", "CITATION.cff"):
            self.write(name, (ROOT / name).read_text())
            shutil.copymode(ROOT / name, folder / name)
        needs: set[str] = set()
        for package in PACKAGES:
            for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
                self.write(f"packages/{package}/{name}", (ROOT / "packages" / package / name).read_text())
            project = tomllib.loads(self.read(f"packages/{package}/pyproject.toml"))["project"]
            for some in (project["dependencies"], *project.get("optional-dependencies", {}).values()):
                needs |= {Requirement(need).name for need in some}
            module = "shardes" if package == "shardes-core" else package.replace("-", "/", 1)
            for name in ("__init__.py", "py.typed"):
                self.write(f"packages/{package}/src/{module}/{name}", "")
        sources = "".join(f"{name} = {{ workspace = true }}\n" for name in PACKAGES)
        nothing = [f"{name}; python_version < '3'" for name in sorted(needs - set(PACKAGES))]
        self.write(
            "pyproject.toml",
            f"[tool.uv]\npackage = false\noverride-dependencies = {nothing}\n"
            f'[tool.uv.workspace]\nmembers = ["packages/*"]\n[tool.uv.sources]\n{sources}',
        )
        self.write("Makefile", STANDS_IN_FOR_THE_CHECKS)
        self.write(".gitignore", "/dist/\n__pycache__/\n")
        uv = subprocess.run([ROOT / "tools" / "bootstrap.sh", "uv"], capture_output=True, text=True, check=True)
        # Those of a make or of a git hook that runs the tests must not reach this repository's.
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "MAKE", "MFLAGS"))
        }
        self.environment = inherited | {
            "PATH": f"{Path(uv.stdout).parent}:{inherited['PATH']}",
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(folder / ".git" / "cache"),
            "GIT_CONFIG_GLOBAL": str(folder / ".git" / "global"),
        }
        self.git("init", "--quiet", "--initial-branch=main")
        self.write(".git/global", "[user]\nname = a\nemail = a@example.invalid\n")
        self.run("uv", "lock", "--quiet", "--python", sys.executable, check=True)
        self.commit()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def run(self, *command: str, check: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | variables
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=check,
            timeout=120,
            start_new_session=True,
        )

    def git(self, *arguments: str) -> str:
        return self.run("git", *arguments, check=True).stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "a change")

    def release(self, package: str, version: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "tools/release.py", package, version, **variables)

    def note(self, package: str, version: str, text: str = "- Something is new.\n") -> None:
        """Commit an entry of today at the top of a changelog."""
        path = f"packages/{package}/CHANGELOG.md"
        intro, heading, rest = self.read(path).partition("\n## ")
        self.write(path, f"{intro}\n## [{version}] - {TODAY}\n\n### Added\n\n{text}{heading}{rest}")
        self.commit()

    def version(self, package: str) -> str:
        version: str = tomllib.loads(self.read(f"packages/{package}/pyproject.toml"))["project"]["version"]
        return version

    def state(self) -> tuple[object, ...]:
        """All that a release may change."""
        files = {
            path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file() and ".git" not in path.parts
        }
        files = {path: text for path, text in files.items() if "__pycache__" not in path.parts}
        return files, self.git("status", "--porcelain"), self.git("for-each-ref"), self.git("symbolic-ref", "HEAD")

    def refuses(self, package: str, version: str, **variables: str) -> str:
        """What is said, nothing having changed."""
        before = self.state()
        refused = self.release(package, version, **variables)
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr
        assert self.state() == before
        return refused.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def higher(version: str, part: int) -> str:
    numbers = [int(number) for number in version.split(".")]
    return ".".join(map(str, [*numbers[:part], numbers[part] + 1, *[0] * (2 - part)]))


@pytest.mark.parametrize("package", PACKAGES)
def test_bumps_checks_builds_commits_and_tags_one_package(repository: Repository, package: str) -> None:
    before = {name: repository.version(name) for name in PACKAGES}
    version = higher(before[package], 2)
    repository.note(package, version)
    start = repository.git("rev-parse", "HEAD")
    done = repository.release(package, version)
    assert done.returncode == 0, done.stderr
    assert {name: repository.version(name) for name in PACKAGES} == before | {package: version}
    locked = {found["name"]: found["version"] for found in tomllib.loads(repository.read("uv.lock"))["package"]}
    assert locked[package] == version
    repository.run("uv", "lock", "--check", "--python", sys.executable, check=True)
    cited = version if package == "shardes-core" else before["shardes-core"]
    assert f"\nversion: {cited}\n" in repository.read("CITATION.cff")
    assert repository.read(".git/checked").split() == ["lint", "types", "fast"]
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("rev-parse", "HEAD~1") == start
    tag = f"{package}-v{version}"
    assert repository.git("tag", "--list").split() == [tag]
    assert repository.git("rev-parse", f"{tag}^{{commit}}") == repository.git("rev-parse", "HEAD")
    stem = f"{package.replace('-', '_')}-{version}"
    built = sorted(path.name for path in (repository.folder / "dist").iterdir())
    assert built == [f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"]
    with tarfile.open(repository.folder / "dist" / f"{stem}.tar.gz") as archive:
        packed = archive.extractfile(f"{stem}/pyproject.toml")
        assert packed is not None
        assert tomllib.loads(packed.read().decode())["project"]["version"] == version
    assert f"git push --atomic REMOTE HEAD {tag}" in done.stdout


def test_a_version_that_stands_already_is_tagged_without_a_commit(repository: Repository) -> None:
    version = repository.version("shardes-nn")
    repository.write("packages/shardes-nn/CHANGELOG.md", f"# Changelog\n\n## [{version}] - {TODAY}\n\n- All is new.\n")
    repository.commit()
    start = repository.git("rev-parse", "HEAD")
    assert repository.release("shardes-nn", version).returncode == 0
    assert repository.git("rev-parse", f"shardes-nn-v{version}^{{commit}}", "HEAD") == start * 2


# --- refused before anything is touched -------------------------------------------------------------------------------


def test_a_dirty_tree(repository: Repository) -> None:
    repository.note("shardes-nn", "0.9.0")
    repository.write("packages/shardes-nn/src/shardes/nn/forgotten.py", "")
    said = repository.refuses("shardes-nn", "0.9.0")
    assert "dirty: 1 files, such as packages/shardes-nn/src/shardes/nn/forgotten.py. Commit or remove them." in said


def test_a_tag_that_exists(repository: Repository) -> None:
    version = higher(repository.version("shardes-tasks"), 2)
    repository.note("shardes-tasks", version)
    repository.git("tag", f"shardes-tasks-v{version}")
    assert f"The tag shardes-tasks-v{version} exists." in repository.refuses("shardes-tasks", version)


def test_a_version_that_does_not_go_up(repository: Repository) -> None:
    now = repository.version("shardes-tasks")
    assert f"0.1.9 does not go up: shardes-tasks is at {now}." in repository.refuses("shardes-tasks", "0.1.9")
    lower, tagged = higher(now, 2), higher(higher(now, 2), 2)
    repository.git("tag", f"shardes-tasks-v{tagged}")
    repository.git("tag", "shardes-tasks-v-old")
    said = repository.refuses("shardes-tasks", lower)
    assert f"{lower} does not go up: shardes-tasks is at {tagged}." in said


def test_a_changelog_without_the_version(repository: Repository) -> None:
    version = higher(repository.version("shardes-zoo"), 2)
    wanted = f"## [{version}] - {TODAY}"
    said = repository.refuses("shardes-zoo", version)
    assert f"packages/shardes-zoo/CHANGELOG.md begins with '[{repository.version('shardes-zoo')}]" in said
    assert f"Write what has changed under '{wanted}' at its top." in said
    repository.note("shardes-zoo", version, text="")
    assert f"says nothing under '{wanted}'" in repository.refuses("shardes-zoo", version)
    path = "packages/shardes-zoo/CHANGELOG.md"
    repository.write(path, repository.read(path).replace(wanted, "## [Unreleased]"))
    repository.commit()
    assert "begins with '[Unreleased]'" in repository.refuses("shardes-zoo", version)


def test_a_range_of_a_sibling_that_does_not_admit_it(repository: Repository) -> None:
    version = higher(repository.version("shardes-core"), 1)
    repository.note("shardes-core", version)
    said = repository.refuses("shardes-core", version)
    for sibling in ("shardes-nn", "shardes-tasks"):
        assert f"{sibling} needs shardes-core<" in said
        assert f"does not admit {version}. Widen the range in packages/{sibling}/pyproject.toml." in said
    assert "shardes-tasks needs shardes-core[checkpoint,progress]" in said
    assert "shardes-zoo needs" not in said


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("", "1.0", "PACKAGE=: there is no such package. Name one of shardes-core, shardes-nn,"),
        ("shardes", "1.0", "PACKAGE=shardes: there is no such package."),
        ("shardes-nn", "", "VERSION= is no version. Give one such as 0."),
        ("shardes-nn", "next", "VERSION=next is no version."),
        ("shardes-nn", "v1.0", "VERSION=v1.0 is not how PyPI writes it. Give 1.0."),
        ("shardes-nn", "1.0+local", "VERSION=1.0+local is not how PyPI writes it. Give 1.0."),
    ],
)
def test_what_is_no_package_and_no_version(repository: Repository, package: str, version: str, said: str) -> None:
    assert said in repository.refuses(package, version)


# --- undone -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["lint", "fast", "interrupt types"])
def test_a_check_that_fails_undoes_the_bump(repository: Repository, fails: str) -> None:
    version = higher(repository.version("shardes-core"), 2)
    repository.note("shardes-core", version)
    assert "so nothing is released" in repository.refuses("shardes-core", version, FAILS=fails)
    assert repository.read(".git/checked").split()[-1] == fails.split()[-1]


def test_a_wheel_with_another_licence_undoes_the_bump(repository: Repository) -> None:
    version = higher(repository.version("shardes-core"), 2)
    repository.write("packages/shardes-core/LICENSE", "none")
    repository.note("shardes-core", version)
    assert "holds another licence than the repository" in repository.refuses("shardes-core", version)


def test_a_tag_that_cannot_be_made_undoes_all(repository: Repository) -> None:
    version = higher(repository.version("shardes-core"), 2)
    repository.note("shardes-core", version)
    repository.git("tag", f"shardes-core-v{version}/taken")
    (repository.folder / "dist").mkdir()
    assert f"shardes-core-v{version}" in repository.refuses("shardes-core", version)
