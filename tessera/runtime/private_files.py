"""Folders and files that nobody but this user may write: each is checked when it is open, so nobody can swap it after.

What is kept in them is trusted later: compiled code is executed, a schedule is compiled. A path that is checked first
and opened then can be another file by the time it is opened; here a folder is opened, its descriptor is checked, and
what is below it is reached from that descriptor, never through a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe put there must not stop us
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFileError(PermissionError):
    """Another user owns what was opened, or may write it; `strerror` says which.

    `is_mode` where it is this user's and another mode is all it needs. A sticky folder, like `/tmp`, is for others too.
    """

    def __init__(self, reason: str, path: str, *, is_mode: bool = False) -> None:
        super().__init__(errno.EPERM, reason, path)
        self.is_mode = is_mode


def why_unsafe(found: os.stat_result) -> str:
    """Why what is in a file or folder may not be trusted; nothing where it may."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, and this is user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _check(descriptor: int, path: str) -> os.stat_result:
    found = os.fstat(descriptor)
    if reason := why_unsafe(found):
        is_mode = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
        raise UnsafeFileError(reason, path, is_mode=is_mode)
    return found


@contextmanager
def open_folder(path: str, parent: int | None = None, *, is_private: bool = True) -> Generator[int]:
    """The descriptor of a folder: one in `parent` by its name, or any path, the last part of which may be a link.

    A user may keep a cache on another disk behind a link of their own; it is the folder behind it that is checked.

    Raises UnsafeFileError where it is to be private and others may write it, another OSError where there is none.
    """
    flags = _FOLDER_FLAGS if parent is None else _FOLDER_FLAGS | os.O_NOFOLLOW
    descriptor = os.open(path, flags, dir_fd=parent)
    try:
        if is_private:
            _check(descriptor, path)
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(path: str, parent: int | None = None) -> None:
    """A folder that only its owner may use, whatever the umask is, and those above it; what is there is left alone."""
    above = os.path.dirname(path)
    if parent is None and above not in ("", path) and not os.path.isdir(above):
        make_folder(above)
    try:
        os.mkdir(path, 0o700, dir_fd=parent)
    except FileExistsError:
        return
    # A umask can take away rights of the owner too; only then, as a path may be another folder by now.
    if os.stat(path, dir_fd=parent, follow_symlinks=False).st_mode & 0o700 != 0o700:
        os.chmod(path, 0o700, dir_fd=parent)


def read_file(name: str, folder: int) -> bytes:
    """The bytes of a plain file in an open folder.

    Raises UnsafeFileError where others may write it, another OSError for a link, or where there is no such file.
    """
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(_check(descriptor, name).st_mode):
            raise OSError(errno.EINVAL, "is not a plain file", name)
        return file.read()


def write_new_file(name: str, folder: int, parts: Iterable[bytes], *, is_private: bool = True) -> None:
    """Write a file that its owner alone can read and write, whatever the umask is; FileExistsError where there is one.

    One that is not private has the rights that the umask leaves, as every other file of the user's.
    """
    descriptor = os.open(name, _NEW_FLAGS, 0o600 if is_private else 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file:
        if is_private:
            os.fchmod(descriptor, 0o600)
        for part in parts:
            file.write(part)


def write_file(name: str, folder: int, parts: Iterable[bytes], beside: str = "", *, is_private: bool = True) -> None:
    """Write such a file beside its name and move it there in one step; `beside` is the name until then.

    A link of that name is replaced, and what it points to stays as it is.
    """
    beside = beside or f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        write_new_file(beside, folder, parts, is_private=is_private)
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove_file(beside, folder)
        raise


def remove_file(name: str, folder: int) -> None:
    """Remove a file, or a link, of an open folder; it is no error if it is gone, or is not ours to remove."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def open_lock(path: str) -> int:
    """The descriptor of a file that is there to be locked: made where there is none, never through a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
