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

_LEFTOVER = re.compile(r"\.(?P<what>new|old|gone)-(?P<process>\d+)-(?P<start>[0-9a-f]+)-[0-9a-f]{8}-(?P<name>.+)", re.S)
"""Names of files and folders in work: the process that works on them and its start, something random, and the name to
come."""
_CHUNK = 1 << 26
"""Bytes of one write: a large one that a signal interrupts is repeated from its start."""


def _beside(path: str, what: str) -> str:
    """A name for work in progress, in the same folder, as a rename does not cross file systems."""
    folder, name = os.path.split(path)
    process = os.getpid()
    return os.path.join(folder, f".{what}-{process}-{_start_of(process)}-{os.urandom(4).hex()}-{name}")


def _start_of(process: int) -> str | None:
    """When a process started, as hexadecimal digits, which tell it from a later one of its number; None if it ended.

    In a container the first process of each run has the same number. `_UNKNOWN` where the system does not say, as one
    that hides processes of other users (`hidepid`).
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(8)
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return _UNKNOWN if _is_running(process) else None
    return f"{boot}{int(fields[_START_FIELD]):x}"


_UNKNOWN = "0"
_START_FIELD = 19
"""Of `/proc/PID/stat`, counted from what follows the name of the program: ticks from the start of the machine on."""


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
    for match in _leftovers(folder):
        if match["what"] == "old" and match["name"] == name:
            os.rename(os.path.join(folder, match.string), path)
            return True
    return False


def recover_folders(folder: str) -> None:
    """Bring back all folders in a folder whose replacement stopped between two renames."""
    for match in _leftovers(folder):
        if match["what"] == "old":
            recover_folder(os.path.join(folder, match["name"]))


def remove_leftovers(folder: str) -> None:
    """Remove what processes that have ended since left of unfinished work in a folder; that of others stays."""
    for match in _leftovers(folder):
        path = os.path.join(folder, match.string)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


def _leftovers(folder: str) -> list[re.Match[str]]:
    """Names of unfinished work whose process has ended, in order; none where there is no such folder."""
    try:
        names = sorted(os.listdir(folder or "."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [match for name in names if (match := _LEFTOVER.fullmatch(name)) is not None]
    # A process that runs, started nobody says when, may be the one: its work stays.
    return [match for match in found if _start_of(int(match["process"])) not in (match["start"], _UNKNOWN)]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
