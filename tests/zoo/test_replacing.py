"""A folder is replaced whole, by one system call or by two renames, and nothing is left beside it."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from shardes.zoo import replacing as module
from shardes.zoo.replacing import replacing

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs locks on folders")


@pytest.fixture(params=["one call", "two renames"], autouse=True)
def way(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Both ways of replacing, in every test."""
    if request.param == "two renames":
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    elif not module._exchange(tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")):
        pytest.skip("the file system of the tests cannot exchange two folders")
    return str(request.param)


def put(target: Path, content: str) -> None:
    with replacing(target) as new:
        for name in "ab":
            (new / name).write_text(content)


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("before", ["nothing", "an empty folder", "another"])
def test_what_was_there_is_replaced(before: str, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    if before != "nothing":
        target.mkdir(parents=True)
    if before == "another":
        (target / "old").write_text("old")
    put(target, "new")
    assert held(target) == {"a": "new", "b": "new"}
    assert names(target.parent) == ["target"]


def test_there_is_never_nothing(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rename touches a folder that is exchanged; two renames do."""
    target = tmp_path / "target"
    put(target, "old")
    renamed: list[Path] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: renamed.append(self) or rename(self, to))
    put(target, "new")
    assert (target in renamed) == (way == "two renames")
    assert held(target)["a"] == "new"


def test_an_error_in_the_block_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "target"
    put(target, "old")

    def fail() -> None:
        with replacing(target) as new:
            (new / "a").write_text("new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert held(target) == {"a": "old", "b": "old"}
    assert names(tmp_path) == ["target"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_an_error_between_the_renames_leaves_what_was_there(
    error: BaseException, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    put(target, "old")
    rename = Path.rename

    def failing(self: Path, to: Path) -> Path:
        if self.suffix == ".partial":
            raise error
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    if way == "one call":
        put(target, "new")
        assert held(target)["a"] == "new"
        return
    with pytest.raises(type(error)):
        put(target, "new")
    assert held(target) == {"a": "old", "b": "old"}
    assert names(tmp_path) == ["target"]


@POSIX
def test_what_a_kill_between_the_renames_left_is_put_back(tmp_path: Path) -> None:
    target, left = tmp_path / "target", tmp_path / ".target.01234567.old"
    put(left, "old")
    (tmp_path / ".target.01234567.partial").mkdir()
    with pytest.raises(KeyError), replacing(target):
        raise KeyError
    assert held(target) == {"a": "old", "b": "old"}
    assert names(tmp_path) == ["target"]


@POSIX
def test_strays_are_removed_unless_somebody_owns_them(tmp_path: Path) -> None:
    target = tmp_path / "target"
    put(target, "old")
    strays = [f".target.{n}{n}{n}{n}{n}{n}{n}{n}.{kind}" for n in "0af" for kind in ("partial", "old")]
    others = [".target.partial", ".target.0123456g.partial", ".other.01234567.partial", "target.01234567.partial"]
    for name in (*strays, *others):
        put(tmp_path / name, "left")
    with replacing(target) as owned:
        (owned / "a").write_text("first")
        put(target, "second")
        assert names(tmp_path) == sorted([owned.name, "target", *others])
        assert held(target)["a"] == "second"
    assert held(target) == {"a": "first"}
    assert names(tmp_path) == sorted(["target", *others])


def together(*functions: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def put_often(content: str) -> Callable[[], None]:
        return lambda: [put(target, content) for _ in range(20)] and None

    together(*(put_often(content) for content in "wxyz"))
    assert held(target) in [{"a": content, "b": content} for content in "wxyz"]
    assert names(tmp_path) == ["target"]


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is owned there, and nothing is taken for a stray."""

    def refuse(_: Path) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(module, "_own", refuse)
    (tmp_path / ".target.01234567.partial").mkdir()
    put(tmp_path / "target", "new")
    assert names(tmp_path) == [".target.01234567.partial", "target"]
