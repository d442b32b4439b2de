"""A store of bytes on disk under their keys: atomic, checksummed, bounded, shared by any number of processes."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import sys
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from tessera.diagnostics.codes import CacheError
from tessera.runtime.private_files import (
    UnsafeFileError,
    make_folder,
    open_folder,
    read_file,
    remove_file,
    why_unsafe,
    write_file,
    write_new_file,
)
from tessera.types.frozen import frozen
from tessera.types.settings import cache_location

_DIGEST_BYTES = 32
_FRESH_SECONDS = 3600
_SUFFIX = ".entry"
_FOLDER = re.compile(r"[0-9a-f]{2}")
_ENTRY = re.compile(r"[0-9a-f]{8,}\.entry")
_UNFINISHED = re.compile(r"\.[0-9a-f]{8,}\.\d+\.[0-9a-f]{8}")
_TAG = "CACHEDIR.TAG"
_KNOWN = frozenset({_TAG, "locks", "tuning"})
"""What else is in the folder: the tag, locks of ranks (`runtime/ranks/world.py`) and the tuning database."""
_ANOTHER_FOLDER = "set TESSERA_CACHE_DIR to a folder of yours that nobody else can write"
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# Compiled code of Tessera; whatever is here can be removed. See https://bford.info/cachedir/
"""


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

    What is here is executed, so where the folder, or an entry, is of another owner or can be written by others, the
    folder is not used; links are not followed, and nothing is touched that does not have the name of an entry. A digest
    covers the key and the bytes. Readers never see half an entry: it is written beside its path and moved there in one
    step. Of one that loses a part all the same, as it may when the power goes, the digest is wrong; it is not worth
    waiting for the disk each time. A damaged entry is a miss, and is removed. When the folder outgrows `limit`, those
    unused for longest go.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int = 4 << 30) -> None:
        self.folder, self.limit = os.fspath(folder), limit
        self._root = os.path.abspath(folder)  # a process may go to another folder later
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
        """What was put under `key`, or None; raises CacheError (T0703) where the folder holds files of others."""
        _check_key(key)
        self._open()
        data = self._memory.get(key) if self._memory is not None else None
        if data is None and self._is_trusted:
            data = self._read(key)
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data` under `key`; the last of several writers stands, and all of them wrote the same."""
        _check_key(key)
        self._open()
        if self._memory is None:
            try:
                try:
                    self._write(key, data)
                except FileNotFoundError:
                    # Somebody removed the folder, or cleared it, between two steps of ours.
                    self._write(key, data)
            except UnsafeFileError as error:
                self._distrust(error)
            except OSError as error:
                self._fall_back(f"cannot be used ({error.strerror or error})")
            else:
                self._bound(len(data) + _DIGEST_BYTES)
                return
        self._remember(key, data)

    def remove(self, key: str) -> None:
        """Forget one entry; it is no error if there is none."""
        _check_key(key)
        if self._memory is not None:
            self._memory.pop(key, None)
        with suppress(OSError), open_folder(self._root) as root, open_folder(key[:2], root) as folder:
            remove_file(key + _SUFFIX, folder)

    def clear(self) -> Usage:
        """Forget every entry, and tell what was removed from disk.

        A folder of this user's is cleared whatever its mode is: nothing is read from it. Raises CacheError (T0703)
        where the folder holds files of others, and where entries cannot be removed.
        """
        self._open()
        if self._memory is not None:
            self._memory.clear()
        self._total = None
        removed: list[os.stat_result] = []
        kept: list[str] = []
        try:
            _check_link(self._root)
            with open_folder(self._root, is_private=False) as root:
                _check_owner(root, self._root)
                self._check_others(_find_others(root))
                for name in filter(_FOLDER.fullmatch, os.listdir(root)):
                    try:
                        removed += _clear_folder(name, root)
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        kept.append(_why_kept(f"`{name}` in it", error))
        except FileNotFoundError:
            pass  # there is none, or somebody removed it meanwhile
        except OSError as error:
            kept.append(_why_kept("it", error))
        if kept:
            raise CacheError(
                f"the cache folder {self.folder} cannot be cleared: {kept[0]}",
                span=None,
                fix="remove it as the user that it belongs to, or set TESSERA_CACHE_DIR to a folder of yours",
            )
        return Usage(
            len(removed), sum(one.st_size for one in removed), min((o.st_mtime for o in removed), default=None)
        )

    def usage(self) -> Usage:
        """How many entries there are on disk, of how many bytes, and when the longest unused was used.

        Raises CacheError (T0703) where the folder holds files of others.
        """
        self._open()
        found = [(status.st_mtime, status.st_size) for _, name, status in self._files() if name.endswith(_SUFFIX)]
        return Usage(len(found), sum(size for _, size in found), min((used for used, _ in found), default=None))

    def _open(self) -> None:
        """Look whether a folder that is there is a cache of this user; where there is none, the first `put` makes it.

        Raises CacheError (T0703) where it holds files of others.
        """
        if self._is_open or self._memory is not None:
            return
        others: list[str] = []
        try:
            _check_link(self._root)
            with open_folder(self._root) as root:
                others = _find_others(root)
        except UnsafeFileError as error:
            self._distrust(error)
        except FileNotFoundError:
            self._is_open = True
        except OSError as error:
            self._fall_back(f"cannot be used ({error.strerror or error})")
        self._check_others(others)
        self._is_open = True

    def _check_others(self, others: list[str]) -> None:
        if others:
            shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise CacheError(
                f"the cache folder {self.folder} holds files that are not Tessera's: {shown}",
                span=None,
                fix="set TESSERA_CACHE_DIR to a folder of its own, which need not exist",
            )

    def _read(self, key: str) -> bytes | None:
        name = key + _SUFFIX
        try:
            with open_folder(self._root) as root, open_folder(key[:2], root) as folder:
                raw = read_file(name, folder)
                if _digest(key, raw[_DIGEST_BYTES:]) != raw[:_DIGEST_BYTES]:
                    remove_file(name, folder)
                    return None
                # The time of last use decides what leaves first. It stays where the entry was removed meanwhile, or
                # the folder is read-only: the bytes in hand are good all the same.
                with suppress(OSError):
                    os.utime(name, dir_fd=folder, follow_symlinks=False)
        except UnsafeFileError as error:
            return self._distrust(error)
        except OSError:
            return None
        return raw[_DIGEST_BYTES:]

    def _write(self, key: str, data: bytes) -> None:
        make_folder(self._root)
        with open_folder(self._root) as root:
            # Tells backup programs that this folder need not be kept. Not moved there: another process that looks into
            # the folder meanwhile would find a file of a name that it does not know.
            with suppress(FileExistsError):
                write_new_file(_TAG, root, [_TAG_TEXT])
            make_folder(key[:2], root)
            with open_folder(key[:2], root) as folder:
                beside = f".{key}.{os.getpid()}.{os.urandom(4).hex()}"
                write_file(key + _SUFFIX, folder, [_digest(key, data), data], beside)

    def _distrust(self, error: UnsafeFileError) -> None:
        """Take nothing from a folder that others can change: they may have written code there."""
        self._is_trusted = False
        is_root = error.filename == self._root
        inside = "" if is_root else f" holds `{error.filename}`, which"
        mode = f"`chmod {'' if is_root else '-R '}go-w {shlex.quote(self._root)}` makes it yours alone"
        self._fall_back(f"is not used: it{inside} {error.strerror}", mode if error.is_mode else _ANOTHER_FOLDER)

    def _fall_back(self, reason: str, fix: str = _ANOTHER_FOLDER) -> None:
        with self._lock:
            if self._memory is not None:
                return
            self._memory = OrderedDict()
        warnings.warn(
            f"the cache folder {self.folder} {reason}; compiled code is kept in memory and made again in the next "
            f"process; {fix}",
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

    def _files(self) -> Iterator[tuple[int, str, os.stat_result]]:
        """The files of this store, finished and unfinished, with their open folders; those that go are left out."""
        if not self._is_trusted:
            return
        with suppress(OSError), open_folder(self._root) as root:
            for name in filter(_FOLDER.fullmatch, os.listdir(root)):
                with suppress(OSError), open_folder(name, root) as folder:
                    for file in os.listdir(folder):
                        if _is_entry(file, name) and (found := _find_plain(file, folder)):
                            yield folder, file, found

    def _bound(self, added: int) -> None:
        """Count what was added, and evict when the count, or another process's share of it, is over the limit."""
        with self._lock:
            if self._total is not None:
                self._total += added
                if self._total <= self.limit:
                    return
            self._total = self._evict()

    def _evict(self) -> int:
        """Remove the longest unused until a fifth of the limit is free; gives the bytes that stay."""
        found: list[tuple[float, int, str]] = []
        for folder, name, status in self._files():
            if name.endswith(_SUFFIX):
                found.append((status.st_mtime, status.st_size, name))
            elif time.time() - status.st_mtime > _FRESH_SECONDS:  # a writer that died left its half behind
                remove_file(name, folder)
        total = sum(size for _, size, _ in found)
        if total <= self.limit:
            return total
        for _, size, name in sorted(found):
            if total <= self.limit * 4 // 5:
                break
            self.remove(name.removesuffix(_SUFFIX))
            total -= size
        return total


@lru_cache(maxsize=8)
def _store_at(folder: str, limit: int) -> Store:
    return Store(folder, limit)


def default_store() -> Store:
    """The store in the folder the settings name; one object per folder and process."""
    return _store_at(*cache_location())


def _check_key(key: str) -> None:
    if len(key) < 8 or not all(mark in "0123456789abcdef" for mark in key):
        raise CacheError(f"`{key}` is not a cache key: keys are hexadecimal digests", span=None)


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _check_link(root: str) -> None:
    """Raises UnsafeFileError for a link of another user's, FileNotFoundError where there is nothing."""
    link = os.lstat(root)
    if stat.S_ISLNK(link.st_mode) and link.st_uid != os.geteuid():
        raise UnsafeFileError(f"is a link of user {link.st_uid}, and this is user {os.geteuid()}", root)


def _check_owner(folder: int, path: str) -> None:
    found = os.fstat(folder)
    if found.st_uid != os.geteuid():
        raise UnsafeFileError(why_unsafe(found), path)


def _why_kept(what: str, error: OSError) -> str:
    is_unsafe = isinstance(error, UnsafeFileError)
    return f"{what} {error.strerror}" if is_unsafe else f"{what} cannot be changed ({error.strerror or error})"


def _clear_folder(name: str, root: int) -> list[os.stat_result]:
    """Remove the entries of a folder of this user's; gives the finished ones. Raises OSError where one stays."""
    removed: list[os.stat_result] = []
    with open_folder(name, root, is_private=False) as folder:
        _check_owner(folder, name)
        for file in os.listdir(folder):
            if not _is_entry(file, name) or (found := _find_plain(file, folder)) is None:
                continue
            with suppress(FileNotFoundError):
                os.unlink(file, dir_fd=folder)
                removed += [found] if file.endswith(_SUFFIX) else []
    return removed


def _find_others(root: int) -> list[str]:
    """What is in the folder that neither a store nor ranks put there, by name.

    Where the tag is ours the names of folders are enough. Without it any folder with a name of two letters, `de` or
    `fe`, could be the user's: then each file in it must be an entry.
    """
    names = os.listdir(root)
    ours = [name for name in names if _FOLDER.fullmatch(name) and _is_folder(name, root)]
    others = [name for name in names if name not in ours and not (name in _KNOWN and not _is_link(name, root))]
    if _has_tag(root):
        return sorted(others)
    for folder in ours:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        try:
            others += [f"{folder}/{name}" for name in os.listdir(inside) if not _is_entry(name, folder)]
        finally:
            os.close(inside)
    return sorted(others)


def _has_tag(root: int) -> bool:
    try:
        return read_file(_TAG, root) == _TAG_TEXT
    except OSError:
        return False


def _is_entry(name: str, folder: str) -> bool:
    """Whether a file of this name in this folder is one that a store writes, finished or not."""
    is_named = _ENTRY.fullmatch(name) or _UNFINISHED.fullmatch(name)
    return is_named is not None and name.lstrip(".").startswith(folder)


def _find_plain(name: str, folder: int) -> os.stat_result | None:
    """The state of a plain file; nothing of a link, and of a file that is gone."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _is_folder(name: str, root: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)


def _is_link(name: str, root: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)


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
