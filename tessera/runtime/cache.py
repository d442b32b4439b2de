"""A store of bytes on disk under their keys: atomic, checksummed, bounded, shared by any number of processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache

from tessera.diagnostics.codes import CacheError
from tessera.types.frozen import frozen
from tessera.types.settings import cache_location

_DIGEST_BYTES = 32
_FRESH_SECONDS = 3600
_SUFFIX = ".entry"
_FOLDER = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(r"[0-9a-f]{8,}\.entry")
_UNFINISHED = re.compile(r"\.[0-9a-f]{8,}\.\d+\.[0-9a-f]{8}")
_TAG = "CACHEDIR.TAG"
_KNOWN = frozenset({_TAG, "locks"})
"""What else is in the folder: the tag, and locks of ranks (`runtime/ranks/world.py`)."""
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# Compiled code of Tessera; whatever is here can be removed. See https://bford.info/cachedir/
"""
_OTHERS_WRITE = 0o022


def key_of(*parts: str | bytes) -> str:
    """The key of a list of parts: a SHA-256 in which no part can run into the next."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@frozen
class Usage:
    """What a store holds on disk: entries, bytes, and when the longest unused of them was last used (Unix time)."""

    entries: int
    bytes: int
    oldest: float | None


class Store:
    """Bytes under hexadecimal keys in one folder; in memory alone where the folder cannot be written.

    What is here is executed, so a folder, or an entry, of another owner or that others may write is not used; links are
    not followed, and nothing is touched that does not have the name of an entry. A digest covers the key and the bytes.
    Readers never see half an entry: it is written beside its path and moved there in one step. Of one that loses a
    part all the same, as it may when the power goes, the digest is wrong; it is not worth waiting for the disk each
    time. A damaged entry is a miss, and is removed. When the folder outgrows `limit`, those unused for longest go.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int = 4 << 30) -> None:
        self.folder, self.limit = os.fspath(folder), limit
        self.hits = self.misses = 0
        self._total: int | None = None
        self._memory: OrderedDict[str, bytes] | None = None
        self._lock = threading.Lock()
        self._is_open, self._is_trusted = False, True

    @property
    def on_disk(self) -> bool:
        """Whether what is put here outlives the process."""
        return self._memory is None

    def get(self, key: str) -> bytes | None:
        """What was put under `key`, or None."""
        path = self._path(key)
        self._open()
        data = self._memory.get(key) if self._memory is not None else None
        if data is None and self._is_trusted:
            data = self._read(path, key)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; the last of several writers stands, and all of them wrote the same."""
        path = self._path(key)
        self._open()
        if self._memory is None:
            try:
                try:
                    self._write(path, key, data)
                except FileNotFoundError:
                    # Somebody removed the folder, or cleared it, between two steps of ours.
                    self._is_open = False
                    self._open()
                    self._write(path, key, data)
            except OSError as error:
                self._fall_back(f"cannot be written ({error.strerror or error})")
            else:
                self._bound(len(data) + _DIGEST_BYTES)
                return
        self._remember(key, data)

    def remove(self, key: str) -> None:
        """Forget one entry; it is no error if there is none."""
        if self._memory is not None:
            self._memory.pop(key, None)
        _unlink(self._path(key))

    def clear(self) -> None:
        """Forget every entry."""
        if self._memory is not None:
            self._memory.clear()
        for path in self._entries():
            _unlink(path)
        self._total = None

    def usage(self) -> Usage:
        """How many entries there are on disk, of how many bytes, and when the longest unused was used."""
        found = [(status.st_mtime, status.st_size) for path, status in self._states() if path.endswith(_SUFFIX)]
        return Usage(len(found), sum(size for _, size in found), min((used for used, _ in found), default=None))

    def _path(self, key: str) -> str:
        if len(key) < 8 or not all(mark in "0123456789abcdef" for mark in key):
            raise CacheError(f"`{key}` is not a cache key: keys are hexadecimal digests", span=None)
        return os.path.join(self.folder, key[:2], key + _SUFFIX)

    def _open(self) -> None:
        """Make the folder, or look whether one that is there is ours; raises CacheError (T0703) for others' files."""
        if self._is_open or self._memory is not None:
            return
        try:
            found = os.stat(self.folder)
        except OSError:
            self._is_open = True  # the first `put` makes it
            return
        reason = _why_unsafe(found)
        if reason:
            self._is_trusted = False
            self._fall_back(reason)
            return
        with os.scandir(self.folder) as entries:
            others = sorted(entry.name for entry in entries if not _is_ours(entry))
        if others:
            shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise CacheError(
                f"the cache folder {self.folder} holds files that are not Tessera's: {shown}",
                span=None,
                fix="set TESSERA_CACHE_DIR to a folder of its own, which need not exist",
            )
        self._is_open = True

    def _make_folder(self, path: str) -> None:
        """A folder that only its owner may use, whatever the umask is."""
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            found = os.lstat(path)
            reason = "is a link" if stat.S_ISLNK(found.st_mode) else _why_unsafe(found)
            if reason:
                raise PermissionError(0, reason) from None
        else:
            os.chmod(path, 0o700)

    def _read(self, path: str, key: str) -> bytes | None:
        try:
            parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            raw = None if _why_unsafe(os.fstat(parent)) else _read_safely(os.path.basename(path), parent)
        finally:
            os.close(parent)
        if raw is None:
            return None
        data = raw[_DIGEST_BYTES:]
        if _digest(key, data) != raw[:_DIGEST_BYTES]:
            _unlink(path)
            return None
        try:
            # The time of last use decides what leaves first.
            os.utime(path, follow_symlinks=False)
        except OSError:
            return data  # removed meanwhile, or the folder is read-only: the bytes in hand are good all the same
        return data

    def _write(self, path: str, key: str, data: bytes) -> None:
        parent, name = os.path.split(path)
        if not os.path.isdir(self.folder):
            os.makedirs(os.path.dirname(os.path.abspath(self.folder)), exist_ok=True)
            self._make_folder(self.folder)
        self._make_folder(parent)
        self._write_tag()
        beside = os.path.join(parent, f".{name.removesuffix(_SUFFIX)}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with open(beside, "xb", opener=_open_private) as file:
                file.write(_digest(key, data))
                file.write(data)
            os.replace(beside, path)
        except BaseException:
            _unlink(beside)
            raise

    def _write_tag(self) -> None:
        """Tell backup programs that this folder need not be kept."""
        tag = os.path.join(self.folder, _TAG)
        if not os.path.lexists(tag):
            with contextlib.suppress(FileExistsError), open(tag, "xb", opener=_open_private) as file:
                file.write(_TAG_TEXT)

    def _fall_back(self, reason: str) -> None:
        with self._lock:
            if self._memory is not None:
                return
            self._memory = OrderedDict()
        warnings.warn(
            f"the cache folder {self.folder} {reason}; compiled code is kept in memory and made again in the next "
            "process; set TESSERA_CACHE_DIR to a folder of yours that nobody else can write",
            RuntimeWarning,
            stacklevel=4,
        )

    def _remember(self, key: str, data: bytes) -> None:
        assert self._memory is not None
        with self._lock:
            self._memory[key] = data
            self._memory.move_to_end(key)
            while len(self._memory) > 1 and sum(map(len, self._memory.values())) > self.limit:
                self._memory.popitem(last=False)

    def _entries(self) -> Iterator[str]:
        """The files of this store, finished and unfinished; nothing else, and nothing behind a link."""
        try:
            folders = [entry.path for entry in os.scandir(self.folder) if _is_ours(entry) and entry.name not in _KNOWN]
        except OSError:
            return
        for folder in folders:
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                is_named = _ENTRY.fullmatch(entry.name) or _UNFINISHED.fullmatch(entry.name)
                if is_named and entry.is_file(follow_symlinks=False):
                    yield entry.path

    def _bound(self, added: int) -> None:
        """Count what was added, and evict when the count, or another process's share of it, is over the limit."""
        with self._lock:
            if self._total is not None:
                self._total += added
                if self._total <= self.limit:
                    return
            self._total = self._evict()

    def _states(self) -> Iterator[tuple[str, os.stat_result]]:
        """Each file in the folder with its state; those that go meanwhile are left out."""
        for path in self._entries():
            try:
                yield path, os.stat(path, follow_symlinks=False)
            except OSError:
                continue

    def _evict(self) -> int:
        """Remove the longest unused until a fifth of the limit is free; gives the bytes that stay."""
        found: list[tuple[float, int, str]] = []
        for path, status in self._states():
            if not path.endswith(_SUFFIX):
                # A writer that died left its half behind.
                if time.time() - status.st_mtime > _FRESH_SECONDS:
                    _unlink(path)
                continue
            found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return total
        for _, size, path in sorted(found):
            if total <= self.limit * 4 // 5:
                break
            _unlink(path)
            total -= size
        return total


@lru_cache(maxsize=8)
def _store_at(folder: str, limit: int) -> Store:
    return Store(folder, limit)


def default_store() -> Store:
    """The store in the folder the settings name; one object per folder and process."""
    return _store_at(*cache_location())


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether something in the folder is what a store, or ranks, put there."""
    if entry.name in _KNOWN:
        return not entry.is_symlink()
    return _FOLDER.fullmatch(entry.name) is not None and entry.is_dir(follow_symlinks=False)


def _why_unsafe(found: os.stat_result) -> str:
    """Why what is in a file or folder may not be executed; nothing where it may."""
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, and this is user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def _read_safely(name: str, parent: int) -> bytes | None:
    """The bytes of a plain file of ours in an open folder; None of a link, or of what others may write."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) and not _why_unsafe(found) else None


def _open_private(path: str, flags: int) -> int:
    """A new file that only its owner reads and writes, whatever the umask is."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # gone already, or not ours to remove; either way it is read again and checked again


def package_text(name: str) -> str:
    """Which version of a package there is, found without loading it: `importlib.metadata` takes longer than a call."""
    for root in sys.path:
        folder = os.path.join(root, name)
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            versions = sorted(item for item in os.listdir(root) if item.startswith(f"{name}-"))
            return " ".join([name, *versions, *_library_states(os.path.join(folder, "binding"))])
    return f"no {name}"


def _library_states(folder: str) -> list[str]:
    """The native libraries in a folder: one that was built anew may have the version of the last."""
    if not os.path.isdir(folder):
        return []
    entries = sorted((entry for entry in os.scandir(folder) if ".so" in entry.name), key=lambda entry: entry.name)
    return [f"{entry.name} {entry.stat().st_size} {entry.stat().st_mtime_ns}" for entry in entries]
