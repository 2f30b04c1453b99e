#!/bin/sh
# Brings what the Makefile's verbs need: a Python, uv, and a virtual environment with the packages of this checkout.
# All that it installs goes into .tools, .venv and .venv-lowest, but for the browser, which is the system's.
#
#   tools/bootstrap.sh sync      .venv as uv.lock says, on the highest Python found or the one that PYTHON names
#   tools/bootstrap.sh lowest    .venv-lowest, on Python 3.12 and the lowest versions that the packages allow
#   tools/bootstrap.sh browser   the Chromium that a test of the site drives: Debian's where it is missing and root asks
#   tools/bootstrap.sh python    print the path of the Python that sync would use
#   tools/bootstrap.sh uv        print the path of a uv that works

set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
# The Pythons that uv.lock has binary wheels for, as numbers and in words, and the one to download where there is none.
OLDEST=31200
NEWEST=31599
SUPPORTED="3.12 to 3.15"
DOWNLOAD=3.13
SYSTEM_PATH=${SYSTEM_PATH-/usr/local/bin:/usr/bin:/opt/homebrew/bin}

# What is activated or set for other projects must not decide what this one gets.
unset VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV UV_PYTHON \
    UV_SYSTEM_PYTHON UV_PYTHON_PREFERENCE UV_MANAGED_PYTHON UV_NO_MANAGED_PYTHON UV_PROJECT UV_PROJECT_ENVIRONMENT \
    UV_RESOLUTION
export PIP_USER=0

say() { echo "bootstrap: $*" >&2; }
die() { say "$*" && exit 1; }

# --- Python -----------------------------------------------------------------------------------------------------------

# Every place where a Python may be. A shim of pyenv's runs its default version alone; the folders beside it hold all.
candidates() {
    pyenv=${PYENV_ROOT:+$PYENV_ROOT:}${HOME:-}/.pyenv
    IFS=:
    for dir in $PATH $SYSTEM_PATH; do
        if [ -d "${dir%/shims}/versions" ]; then
            pyenv=$pyenv:${dir%/shims}
        else
            ls "$dir"/python3 "$dir"/python3.[0-9] "$dir"/python3.[0-9][0-9] || :
        fi
    done
    for root in $pyenv; do
        ls "$root"/versions/*/bin/python3 || :
    done
    ls "${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python}"/*/bin/python3 || :
}

# probe PYTHON: print its version as a number, and the path of the interpreter behind the shim or virtual environment.
# Fails for what does not run, and for what wheels are not made for: pre-releases, free-threaded builds, PyPy.
probe() {
    "$1" -IS -c '
import sys
if sys.implementation.name != "cpython" or sys.version_info[3] != "final" or sys.abiflags:
    sys.exit(1)
print("%d%02d%02d" % sys.version_info[:3], sys._base_executable)
' 2>/dev/null </dev/null
}

# Lines of version and path, the highest version first.
pythons() {
    candidates 2>/dev/null | while read -r candidate; do
        probe "$candidate" || :
    done | sort -rns -k1,1
}

supported() { [ "$1" -ge "$OLDEST" ] && [ "$1" -le "$NEWEST" ]; }

# Print the path of the Python to use, or nothing where there is none.
find_python() {
    if [ -z "${PYTHON:-}" ]; then
        pythons | while read -r version path; do
            if supported "$version"; then
                echo "$path"
                break
            fi
        done
        return
    fi
    found=$(probe "$PYTHON") ||
        die "PYTHON=$PYTHON is not a released CPython that runs. Name a Python $SUPPORTED, or none to have one found."
    supported "${found%% *}" ||
        die "PYTHON=$PYTHON is $("$PYTHON" -V). Name a Python $SUPPORTED, or none to have one found."
    echo "${found#* }"
}

# --- uv ---------------------------------------------------------------------------------------------------------------

# Fails for a uv that does not run, and for one older than 0.9.
works() {
    answer=$("$1" --version 2>/dev/null </dev/null) || return 1
    case $answer in
        "uv 0."[0-8].*) return 1 ;;
        "uv "*) return 0 ;;
        *) return 1 ;;
    esac
}

find_uv() {
    mine=$PWD/.tools/uv/bin/uv
    if works "$mine"; then
        echo "$mine"
    elif works uv; then
        command -v uv
    else
        install_uv >&2
        works "$mine" || die "found no uv that works, and no Python 3.8 or newer whose pip could install one." \
            "Install uv, or your system's pip and venv (on Debian: apt install python3-venv), and run this again."
        echo "$mine"
    fi
}

install_uv() {
    say "installing uv $UV_VERSION into .tools/uv"
    mkdir -p .tools
    new=.tools/uv.$$
    pythons | while read -r _ python; do
        rm -rf "$new"
        if "$python" -m venv "$new" >/dev/null 2>&1; then
            set -- "$new/bin/python" -m pip install
        elif "$python" -m pip --version >/dev/null 2>&1; then
            # Debian packages ensurepip apart: without it venv leaves half an environment.
            rm -rf "$new"
            set -- "$python" -m pip install --target "$new"
        else
            continue
        fi
        "$@" --quiet --disable-pip-version-check --retries 2 "uv==$UV_VERSION" </dev/null || continue
        rm -rf .tools/uv
        mv "$new" .tools/uv
        break
    done
    rm -rf "$new"
}

# --- environments -----------------------------------------------------------------------------------------------------

# usable FOLDER: whether it is a virtual environment on a supported Python, and on the one that PYTHON names.
usable() {
    has=$(probe "$1/bin/python") && supported "${has%% *}" && { [ -z "${PYTHON:-}" ] || [ "${has#* }" = "$python" ]; }
}

# fill FOLDER COMMAND...: make the virtual environment, unless it is there, and run the command that fills it. Does
# nothing when all is as the last run left it.
fill() {
    folder=$1 state="$PWD ${PYTHON:-}"
    shift
    if [ "$(cat "$folder/.filled" 2>/dev/null)" = "$state" ] && "$folder/bin/python" -c "" 2>/dev/null &&
        [ -z "$(find pyproject.toml uv.lock packages/*/pyproject.toml tools/bootstrap.sh -newer "$folder/.filled")" ]; then
        return
    fi
    uv=$(find_uv)
    cache=$("$uv" cache dir)
    { mkdir -p "$cache" && [ -w "$cache" ]; } 2>/dev/null || export UV_CACHE_DIR="$PWD/.tools/cache"
    python=$(find_python)
    if ! usable "$folder"; then
        make_environment "$folder"
    fi
    echo "$state" >"$folder/.filling"
    UV_PROJECT_ENVIRONMENT=$folder "$uv" "$@"
    mv "$folder/.filling" "$folder/.filled"
}

make_environment() {
    if [ -n "$python" ]; then
        "$uv" venv --quiet --clear --no-project --python "$python" "$1"
    else
        say "found no Python $SUPPORTED, so uv downloads $DOWNLOAD into .tools/python"
        UV_PYTHON_INSTALL_DIR="$PWD/.tools/python" "$uv" venv --clear --no-project --managed-python --python $DOWNLOAD "$1" ||
            die "found no Python $SUPPORTED and could not download one." \
                "Install Python $DOWNLOAD, or name one with PYTHON=/path/to/python, and run this again."
    fi
}

# --- browser ----------------------------------------------------------------------------------------------------------

install_browser() {
    for name in chromium chromium-browser google-chrome; do
        if command -v $name >/dev/null; then
            return
        fi
    done
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing chromium"
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } >&2 && return
    fi
    say "found no Chromium, without which the test of the site in a browser fails." \
        "Install one (on Debian: apt-get install chromium; anywhere: .venv/bin/playwright install chromium)."
}

case ${1:-} in
    sync) fill .venv sync ${CI:+--locked} ;;
    lowest)
        NEWEST=31299 SUPPORTED=3.12 DOWNLOAD=3.12
        fill .venv-lowest pip install --python .venv-lowest --exact --upgrade --resolution lowest-direct --group test --group examples --group docs \
            -e "packages/shardes-core[checkpoint,progress,tensorboard]" -e packages/shardes-nn -e "packages/shardes-zoo[cli]" -e "packages/shardes-tasks[brax,cli,gymnasium,box2d,mujoco,phys2d,playground,render]"
        ;;
    browser) install_browser ;;
    python) find_python ;;
    uv) find_uv ;;
    *) die "given '${1:-}', needs one of: sync, lowest, browser, python, uv" ;;
esac
