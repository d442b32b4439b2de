"""A store of bytes on disk under their keys: atomic, checksummed, bounded, shared by any number of processes."""

from __future__ import annotations

import hashlib
import os
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

    @property
    def on_disk(self) -> bool:
        """Whether what is put here outlives the process."""
        return self._memory is None

    def get(self, key: str) -> bytes | None:
        """What was put under `key`, or None."""
        path = self._path(key)
        data = self._memory.get(key) if self._memory is not None else None
        if data is None:
            data = self._read(path)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; the last of several writers stands, and all of them wrote the same."""
        path = self._path(key)
        if self._memory is None:
            try:
                try:
                    self._write(path, data)
                except FileNotFoundError:
                    # Somebody removed the folder, or cleared it, between two steps of ours.
                    self._write(path, data)
            except OSError as error:
                self._fall_back(error)
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

    def _read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                raw = file.read()
        except OSError:
            return None
        data = raw[_DIGEST_BYTES:]
        if hashlib.sha256(data).digest() != raw[:_DIGEST_BYTES]:
            _unlink(path)
            return None
        try:
            # The time of last use decides what leaves first.
            os.utime(path)
        except OSError:
            return data  # removed meanwhile, or the folder is read-only: the bytes in hand are good all the same
        return data

    def _write(self, path: str, data: bytes) -> None:
        # What is here will be executed: nobody else may write it.
        parent, name = os.path.split(path)
        os.makedirs(parent, exist_ok=True, mode=0o700)
        beside = os.path.join(parent, f".{name.removesuffix(_SUFFIX)}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with open(beside, "xb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
            os.replace(beside, path)
        except BaseException:
            _unlink(beside)
            raise

    def _fall_back(self, error: OSError) -> None:
        with self._lock:
            if self._memory is not None:
                return
            self._memory = OrderedDict()
        warnings.warn(
            f"the cache folder {self.folder} cannot be written ({error.strerror or error}); compiled code is kept in "
            "memory and made again in the next process; set TESSERA_CACHE_DIR to a writable folder",
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
        try:
            folders = [name for name in os.listdir(self.folder) if len(name) == 2]
        except OSError:
            return
        for folder in folders:
            parent = os.path.join(self.folder, folder)
            try:
                yield from [os.path.join(parent, name) for name in os.listdir(parent)]
            except OSError:
                continue

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
                yield path, os.stat(path)
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
