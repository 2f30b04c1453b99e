"""tools/bootstrap.sh on machines made of a few scripts: what it finds, what it installs where, and what it says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What the script may count on. A machine's own Pythons and uv are left out.
TOOLS = ("cat", "dirname", "find", "ls", "mkdir", "mv", "rm", "sh", "sort")

PYTHON = """#!/bin/sh
[ {status} = 0 ] || exit {status}
case "$*" in
    -IS*) echo "{number} $0" ;;
    -V) echo "Python {version}" ;;
    "-m venv"*) mkdir -p "$3/bin" && [ {pip} = venv ] && cp "$0" "$3/bin/python" ;;
    "-m pip --version") [ {pip} != none ] ;;
    "-m pip install"*)
        echo "$@" >>"$LOG"
        case "$4" in
            --target) bin=$5/bin && [ ! -d "$bin" ] || exit 1 ;;
            *) bin=$(dirname "$0") ;;
        esac
        mkdir -p "$bin" && cp "$MACHINE/a working uv" "$bin/uv" ;;
esac
"""

# `uv venv ... FOLDER` makes FOLDER/bin/python of the Python it was given.
UV = """#!/bin/sh
if [ "$1" = --version ]; then
    echo "uv 0.13.0 (x86_64-unknown-linux-gnu)"
    exit
fi
if [ "$1 $2" = "cache dir" ]; then
    echo "$CACHE"
    exit
fi
echo "uv $@ [cache=$UV_CACHE_DIR misled by=$UV_PYTHON$VIRTUAL_ENV$CONDA_PREFIX]" >>"$LOG"
if [ "$1" = venv ]; then
    while [ $# -gt 1 ]; do
        [ "$1" = --python ] && python=$2
        shift
    done
    python=${DOWNLOADED:-$python}
    [ -x "$python" ] && mkdir -p "$1/bin" && cp "$python" "$1/bin/python"
fi
"""


class Machine:
    """A home folder, a PATH, a system path and a checkout. Every path has a space in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a machine"
        self.home = self.folder / "home"
        self.path = self.folder / "path"
        self.system = self.folder / "system"
        self.checkout = self.folder / "checkout"
        self.log = self.folder / "log"
        for made in (self.home, self.path, self.system, self.checkout / "tools", self.checkout / "packages" / "one"):
            made.mkdir(parents=True)
        tools = self.folder / "tools"
        tools.mkdir()
        for name in (*TOOLS, "cp"):
            (tools / name).symlink_to(shutil.which(name) or name)
        for name in ("pyproject.toml", "uv.lock", "packages/one/pyproject.toml"):
            (self.checkout / name).touch()
        shutil.copy(ROOT / "tools" / "bootstrap.sh", self.checkout / "tools")
        self.script(self.folder / "a working uv", UV)
        self.variables = {
            "PATH": f"{self.path}:{tools}",
            "HOME": str(self.home),
            "SYSTEM_PATH": str(self.system),
            "MACHINE": str(self.folder),
            "LOG": str(self.log),
            "CACHE": str(self.home / "cache"),
        }

    def script(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, path: Path, version: str, *, status: int = 0, pip: str = "venv") -> Path:
        major, minor, micro = map(int, version.split("."))
        number = major * 10000 + minor * 100 + micro
        return self.script(path, PYTHON.format(number=number, version=version, status=status, pip=pip))

    def uv(self, text: str = UV) -> Path:
        return self.script(self.path / "uv", text)

    def run(self, verb: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "checkout/tools/bootstrap.sh", verb],
            cwd=self.folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
        )

    def prints(self, verb: str, **variables: str) -> str:
        result = self.run(verb, **variables)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def fails(self, verb: str, **variables: str) -> str:
        result = self.run(verb, **variables)
        assert result.returncode != 0, result.stdout
        return result.stderr.strip().splitlines()[-1]

    def calls(self) -> list[str]:
        """What was asked of uv and pip since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- which Python -----------------------------------------------------------------------------------------------------


def test_finds_the_highest_python_on_path(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.12.9")
    wanted = machine.python(machine.path / "python3.14", "3.14.0")
    machine.python(machine.path / "python3.9", "3.9.20")
    assert machine.prints("python") == str(wanted)


def test_finds_the_system_python_that_path_leaves_out(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.11.7")
    wanted = machine.python(machine.system / "python3", "3.13.5")
    assert machine.prints("python") == str(wanted)


@pytest.mark.parametrize("place", ["home", "PYENV_ROOT", "shim"])
def test_finds_pyenvs_versions_behind_an_older_default(machine: Machine, place: str) -> None:
    root = machine.home / ".pyenv" if place == "home" else machine.folder / "opt" / "pyenv"
    machine.python(root / "versions" / "3.11.7" / "bin" / "python3", "3.11.7")
    wanted = machine.python(root / "versions" / "3.13.0" / "bin" / "python3", "3.13.0")
    machine.python(root / "versions" / "3.12.1" / "bin" / "python3", "3.12.1")
    machine.python(root / "shims" / "python3", "3.11.7")
    machine.script(root / "shims" / "python3.13", "#!/bin/sh\nexit 127\n")
    variables = {}
    if place == "PYENV_ROOT":
        variables["PYENV_ROOT"] = str(root)
    if place == "shim":
        variables["PATH"] = f"{root / 'shims'}:{machine.variables['PATH']}"
    assert machine.prints("python", **variables) == str(wanted)


def test_passes_over_a_broken_shim(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.13.0", status=127)
    wanted = machine.python(machine.system / "python3", "3.12.0")
    assert machine.prints("python") == str(wanted)


def test_passes_over_what_the_lock_has_no_wheels_for(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.99.0")
    machine.python(machine.system / "python3", "3.11.9")
    assert machine.prints("python") == ""


def test_takes_the_python_that_is_named(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.14.0")
    named = machine.python(machine.folder / "elsewhere" / "python", "3.12.0")
    assert machine.prints("python", PYTHON=str(named)) == str(named)


def test_refuses_a_named_python_that_is_too_old(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.11.7")
    assert machine.fails("python", PYTHON="python3") == (
        "bootstrap: PYTHON=python3 is Python 3.11.7. Name a Python 3.12 to 3.15, or none to have one found."
    )


def test_refuses_a_named_python_that_does_not_run(machine: Machine) -> None:
    assert machine.fails("python", PYTHON="/no/such/python") == (
        "bootstrap: PYTHON=/no/such/python is not a released CPython that runs. "
        "Name a Python 3.12 to 3.15, or none to have one found."
    )


def test_sees_through_a_virtual_environment(machine: Machine) -> None:
    libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    found = machine.prints("python", PYTHON=sys.executable, **libraries)
    assert found == sys._base_executable  # type: ignore[attr-defined]


# --- which uv ---------------------------------------------------------------------------------------------------------


def test_takes_the_uv_on_path(machine: Machine) -> None:
    wanted = machine.uv()
    assert machine.prints("uv") == str(wanted)
    assert not (machine.checkout / ".tools").exists()


@pytest.mark.parametrize("there", [None, "exit 1", "echo uv 0.5.0", "echo uv 0.13.0; exit 1"])
def test_installs_uv_into_the_checkout(machine: Machine, there: str | None) -> None:
    if there is not None:
        machine.uv(f"#!/bin/sh\n{there}\n")
    machine.python(machine.path / "python3", "3.8.0")
    own = machine.checkout / ".tools" / "uv" / "bin" / "uv"
    assert machine.prints("uv") == str(own)
    assert len(machine.calls()) == 1
    assert machine.prints("uv") == str(own)
    assert machine.calls() == []
    assert sorted(path.name for path in machine.checkout.joinpath(".tools").iterdir()) == ["uv"]
    assert list(machine.home.iterdir()) == []


def test_installs_uv_with_a_pip_that_cannot_make_environments(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.13.0", pip="none")
    machine.python(machine.system / "python3", "3.12.0", pip="only")
    assert machine.prints("uv") == str(machine.checkout / ".tools" / "uv" / "bin" / "uv")
    assert "--target" in machine.calls()[0]


def test_says_what_to_install_for_want_of_uv(machine: Machine) -> None:
    machine.python(machine.path / "python3", "3.13.0", pip="none")
    assert machine.fails("sync") == (
        "bootstrap: found no uv that works, and no Python 3.8 or newer whose pip could install one. "
        "Install uv, or your system's pip and venv (on Debian: apt install python3-venv), and run this again."
    )


# --- the environment --------------------------------------------------------------------------------------------------


def test_sync_makes_the_environment_once(machine: Machine) -> None:
    machine.uv()
    python = machine.python(machine.path / "python3", "3.12.1")
    machine.prints("sync")
    made, synced = machine.calls()
    assert made.startswith(f"uv venv --quiet --clear --no-project --python {python} .venv")
    assert synced.startswith("uv sync [")
    machine.prints("sync")
    assert machine.calls() == []


def test_sync_again_when_a_project_file_changes(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.12.1")
    machine.prints("sync")
    machine.calls()
    later = (machine.checkout / ".venv" / ".filled").stat().st_mtime + 10
    os.utime(machine.checkout / "packages" / "one" / "pyproject.toml", (later, later))
    machine.prints("sync")
    assert [call.split(" [")[0] for call in machine.calls()] == ["uv sync"]


def test_sync_keeps_an_environment_made_by_hand(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.13.0")
    machine.python(machine.checkout / ".venv" / "bin" / "python", "3.12.0")
    machine.prints("sync")
    assert [call.split(" [")[0] for call in machine.calls()] == ["uv sync"]


@pytest.mark.parametrize(("version", "status"), [("3.11.0", 0), ("3.13.0", 1)])
def test_sync_remakes_an_environment_that_is_too_old_or_broken(machine: Machine, version: str, status: int) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.13.0")
    machine.python(machine.checkout / ".venv" / "bin" / "python", version, status=status)
    machine.prints("sync")
    assert [call.split()[1] for call in machine.calls()] == ["venv", "sync"]


def test_sync_is_locked_in_ci(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.12.1")
    machine.prints("sync", CI="true")
    assert machine.calls()[-1].startswith("uv sync --locked [")


def test_sync_is_not_misled_by_what_is_activated(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.12.1")
    machine.prints("sync", UV_PYTHON="3.9", VIRTUAL_ENV="/another", CONDA_PREFIX="/opt/conda")
    assert all("misled by=]" in call for call in machine.calls())


def test_sync_caches_in_the_checkout_where_home_cannot_be_written(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.12.1")
    machine.prints("sync", CACHE="/dev/null/cache")
    assert all(f"cache={machine.checkout}/.tools/cache " in call for call in machine.calls())


def test_sync_has_uv_download_a_python(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.11.7")
    downloaded = machine.python(machine.folder / "downloaded", "3.13.1")
    machine.prints("sync", DOWNLOADED=str(downloaded))
    assert machine.calls()[0].startswith("uv venv --clear --no-project --managed-python --python 3.13 .venv")


def test_sync_says_what_to_install_for_want_of_a_python(machine: Machine) -> None:
    machine.uv()
    assert machine.fails("sync") == (
        "bootstrap: found no Python 3.12 to 3.15 and could not download one. "
        "Install Python 3.13, or name one with PYTHON=/path/to/python, and run this again."
    )


def test_lowest_is_python_3_12(machine: Machine) -> None:
    machine.uv()
    machine.python(machine.path / "python3", "3.13.0")
    wanted = machine.python(machine.system / "python3", "3.12.4")
    machine.prints("lowest")
    made, installed = machine.calls()
    assert f"--python {wanted} .venv-lowest" in made
    assert installed.startswith("uv pip install --python .venv-lowest")
    assert "--resolution lowest-direct" in installed


def test_the_verbs_are_named(machine: Machine) -> None:
    assert machine.fails("install") == "bootstrap: given 'install', needs one of: sync, lowest, browser, python, uv"


# --- browser ----------------------------------------------------------------------------------------------------------


def test_a_browser_that_is_there_is_left_alone(machine: Machine) -> None:
    machine.script(machine.path / "chromium", "#!/bin/sh\n")
    machine.script(machine.path / "apt-get", '#!/bin/sh\necho apt-get "$@" >>"$LOG"\n')
    machine.script(machine.path / "id", "#!/bin/sh\necho 0\n")
    assert machine.run("browser").stderr == ""
    assert machine.calls() == []


def test_root_gets_a_browser(machine: Machine) -> None:
    machine.script(machine.path / "apt-get", '#!/bin/sh\necho apt-get "$@" >>"$LOG"\n')
    machine.script(machine.path / "id", "#!/bin/sh\necho 0\n")
    assert machine.run("browser").returncode == 0
    assert machine.calls()[-1] == "apt-get -qq install -y --no-install-recommends chromium"


@pytest.mark.parametrize(("user", "status"), [(1000, 0), (0, 100)])
def test_who_gets_none_is_told_how(machine: Machine, user: int, status: int) -> None:
    machine.script(machine.path / "apt-get", f"#!/bin/sh\nexit {status}\n")
    machine.script(machine.path / "id", f"#!/bin/sh\necho {user}\n")
    result = machine.run("browser")
    assert result.returncode == 0
    assert "on Debian: apt-get install chromium; anywhere: .venv/bin/playwright install chromium" in result.stderr
