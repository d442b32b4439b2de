"""Files and folders that appear under their names complete or not at all, whenever the process or the machine stops.

A file is written under another name, flushed to the disk, and renamed; the folder that holds its name is flushed after
that. A reader therefore sees the old contents or the new ones, and what is left of a write that did not come to its end
has a name that starts with a dot, and that `remove_leftovers` finds.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress

_LEFTOVER = re.compile(r"\.(?:new|old|gone)-(\d+)-[0-9a-f]{8}-.")
"""Names of files and folders in work: the process that works on them, something random, and the name to come."""
_CHUNK = 1 << 26
"""Bytes of one write: a large one that a signal interrupts is repeated from its start."""


def _beside(path: str, what: str) -> str:
    """A name for work in progress, in the same folder, as a rename does not cross file systems."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{what}-{os.getpid()}-{os.urandom(4).hex()}-{name}")


def sync_folder(path: str) -> None:
    """Flush the names in a folder to the disk: what was renamed there stays renamed."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_flushed(path: str, parts: Iterable[bytes | memoryview], finish: Callable[[int], None] | None = None) -> None:
    """Write a new file and flush it to the disk; `finish` gets its descriptor when all parts are written."""
    with open(path, "xb", buffering=0) as file:
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), _CHUNK):
                _write_all(file.fileno(), view[start : start + _CHUNK])
        if finish is not None:
            finish(file.fileno())
        os.fsync(file.fileno())


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


def write_durable(path: str, parts: Iterable[bytes | memoryview], finish: Callable[[int], None] | None = None) -> None:
    """Write a file in one step: another reader sees what was there before, or all of it; see `write_flushed`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_durable(f"{folder}/note", [b"one ", b"two"])
    ...     pathlib.Path(folder, "note").read_text()
    'one two'
    """
    beside = _beside(path, "new")
    try:
        write_flushed(beside, parts, finish)
        os.replace(beside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    sync_folder(os.path.dirname(path))


def make_durable_folder(path: str, fill: Callable[[str], None]) -> None:
    """Make a folder in one step: `fill` writes flushed files into a folder of another name, which is then renamed.

    A folder of that name is replaced: between two renames neither is there under the name, and `recover_folder` brings
    the old one back where the process stopped between them.
    """
    beside, former = _beside(path, "new"), _beside(path, "old")
    os.mkdir(beside)
    try:
        fill(beside)
        sync_folder(beside)
        if os.path.isdir(path):
            os.rename(path, former)
        os.rename(beside, path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        if os.path.isdir(former) and not os.path.isdir(path):
            os.rename(former, path)
        raise
    sync_folder(os.path.dirname(path))
    _discard(former, path)


def remove_folder(path: str) -> None:
    """Remove a folder in one step: renamed first, so that nobody finds a part of it."""
    _discard(path, path)


def _discard(folder: str, path: str) -> None:
    # Not under a name that `recover_folder` takes: a part of it may be gone when the process stops.
    gone = _beside(path, "gone")
    with suppress(FileNotFoundError):
        os.rename(folder, gone)
        shutil.rmtree(gone, ignore_errors=True)


def recover_folder(path: str) -> bool:
    """Bring back a folder whose replacement stopped between two renames; whether there was one to bring back."""
    if os.path.isdir(path):
        return False
    folder, name = os.path.split(path)
    for found in _leftovers(folder):
        if found.startswith(".old-") and found.split("-", 3)[3] == name:
            os.rename(os.path.join(folder, found), path)
            return True
    return False


def remove_leftovers(folder: str) -> None:
    """Remove what processes that have ended since left of unfinished work in a folder; that of others stays."""
    for name in _leftovers(folder):
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _leftovers(folder: str) -> list[str]:
    """Names of unfinished work whose process has ended."""
    found = [(name, _LEFTOVER.match(name)) for name in os.listdir(folder or ".")]
    return sorted(name for name, match in found if match is not None and not _is_running(int(match[1])))


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
