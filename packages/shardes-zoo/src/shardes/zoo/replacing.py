"""A folder that is replaced whole: at every instant its path holds the old one or the new one, whatever is killed.

The new one is written beside it as `.NAME.HEX.partial`, and the two trade places in one system call. Where there is no
such call, the old one is renamed to `.NAME.HEX.old` first, and a kill between the two renames leaves it there: the next
replacement puts it back. What killed processes left beside the folder is removed by the next replacement.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["replacing"]

# renameat2 of Linux, renamex_np of macOS: the working directory, and the flag by which the two paths trade places.
_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """An empty folder to write files into, which takes the place of another, or of nothing, when the block ends well.

    Of threads and processes that replace one folder at once, the last one wins.

    Args:
        target: an absolute path, of a folder if of anything; missing parents are made.

    Raises:
        OSError: something cannot be written or renamed; what was there is still there.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_strays(target)
    new, owned = _make_owned(target)
    old = new.with_suffix(".old")
    try:
        yield new
        for path in (*new.iterdir(), new):
            _sync(path)
        _take_place(new, target, old)
        _sync(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        _restore_or_remove(old, target)
        if owned is not None:
            os.close(owned)


def _take_place(new: Path, target: Path, old: Path) -> None:
    while True:
        try:
            if _exchange(new, target):
                return
            target.rename(old)
        except FileNotFoundError:
            pass
        try:
            new.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        # Another one has come meanwhile, and is the one to be replaced.
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Whether two paths have traded places; False where the system or its file system cannot do it in one step."""
    paths = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "linux":
            rename = ctypes.CDLL(None, use_errno=True).renameat2
            failed = rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
        elif sys.platform == "darwin":
            failed = ctypes.CDLL(None, use_errno=True).renamex_np(*paths, _RENAME_SWAP)
        else:
            return False
    except AttributeError:
        return False
    if failed and ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(other))
    return not failed


def _make_owned(target: Path) -> tuple[Path, int | None]:
    while True:
        new = target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}.partial"
        new.mkdir()
        try:
            owned = _own(new)
        except OSError:
            # A file system without locks: nobody can take it for a stray.
            return new, None
        if owned is not None:
            return new, owned


def _own(folder: Path) -> int | None:
    """A descriptor by which this process owns a folder until it closes it or ends; None if another one does.

    Raises OSError where folders cannot be owned.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between the two calls its owner may have ended, and another process removed it.
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                stack.pop_all()
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
    return None


def _remove_strays(target: Path) -> None:
    """Remove what killed replacements of the target left, but for an old folder that has nothing in its place."""
    left = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    for path in [path for path in target.parent.iterdir() if left.fullmatch(path.name)]:
        with contextlib.suppress(OSError):
            owned = _own(path)
            if owned is None:
                continue
            if path.suffix == ".old":
                _restore_or_remove(path, target)
            else:
                shutil.rmtree(path, ignore_errors=True)
            os.close(owned)


def _restore_or_remove(old: Path, target: Path) -> None:
    if old.exists() and not target.exists():
        with contextlib.suppress(OSError):
            old.rename(target)
            return
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    if sys.platform == "win32" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
