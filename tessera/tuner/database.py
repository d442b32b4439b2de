"""The tuning database: plans and trials by signature in a SQLite file that any number of processes share.

Writers take a lock file exclusively, readers share it, and each operation is one transaction. So nobody waits in
SQLite's own busy loop, which is not fair, and a file that is found damaged can be moved aside while nobody writes to
it: whoever had it open sees another inode under its path and opens that one. Every row has a digest, because SQLite
checks the structure of its pages and not what is in them. A damaged row is a miss, never another plan.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from tessera.diagnostics.codes import TuningFileError
from tessera.diagnostics.error import user_stacklevel
from tessera.runtime.private_files import make_folder, open_folder, open_lock
from tessera.tuner.entry_format import (
    MOST_TRIALS,
    MismatchError,
    parse_json,
    plan_from_json,
    plan_to_json,
    signature_from_json,
    signature_to_json,
    trial_from_json,
    trial_to_json,
)
from tessera.tuner.profiles import find_profile, shipped_entries
from tessera.tuner.records import SOURCES, Entry, Plan, Signature, Trial
from tessera.tuner.shapes import is_bucketed, kind_of, nearest
from tessera.types.settings import cache_location

VERSION = 1
"""Of the tables; the default file has it in its name, so that two versions of Tessera keep a file each."""
_APPLICATION = 0x54535255
"""Which program a SQLite file belongs to: "TSRU" in its header."""
_PATIENCE = 60.0
"""Seconds that a process waits for the lock: an operation takes milliseconds, so whoever has it is stopped."""
_CORRUPT, _NOT_A_DATABASE, _SHORT_READ = 11, 26, 522  # SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_IOERR_SHORT_READ
_TABLES = {
    "signatures": """CREATE TABLE signatures (
        id INTEGER PRIMARY KEY, op_kind TEXT NOT NULL, shape_sig TEXT NOT NULL, dtype TEXT NOT NULL,
        mesh_sig TEXT NOT NULL, arch TEXT NOT NULL, policy_hash TEXT NOT NULL, runtime TEXT NOT NULL,
        UNIQUE (op_kind, shape_sig, dtype, mesh_sig, arch, policy_hash, runtime))""",
    "plans": """CREATE TABLE plans (
        signature INTEGER NOT NULL REFERENCES signatures (id) ON DELETE CASCADE, source TEXT NOT NULL,
        plan TEXT NOT NULL, stored REAL NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (signature, source))""",
    "trials": """CREATE TABLE trials (
        id INTEGER PRIMARY KEY, signature INTEGER NOT NULL REFERENCES signatures (id) ON DELETE CASCADE,
        trial TEXT NOT NULL, digest TEXT NOT NULL, UNIQUE (signature, digest))""",
}
_PARTS = "op_kind, shape_sig, dtype, mesh_sig, arch, policy_hash, runtime"
_MATCH = " AND ".join(f"{part} = ?" for part in _PARTS.split(", "))
T = TypeVar("T")


class _DamagedError(Exception):
    """The file is no intact database."""


class Database:
    """Plans and trials of signatures; in memory where `path` is None, or cannot be used, which is a warning.

    A plan is found under exactly the key that it was stored under: an arch, a driver or a policy that differs in
    anything is a miss. Where the file has nothing, plans that are shipped with the package are looked at
    (`profiles=False` leaves them out); they have no driver in their key. Safe for threads, processes and forks.

    >>> database = Database(None, profiles=False)
    >>> signature = Signature("matmul", "64x64x64", "f32", arch="avx2")
    >>> database.store(signature, Plan.of({"contraction.block": (8, 32, 64)}))
    >>> str(database.lookup(signature).plan)
    'contraction.block = (8, 32, 64)'
    """

    def __init__(self, path: str | os.PathLike[str] | None, *, profiles: bool = True, is_private: bool = False) -> None:
        self.path = "" if path is None else os.path.abspath(path)
        self._profiles, self._is_private = profiles, is_private
        self._guard = threading.RLock()
        self._memory = _new_memory() if path is None else None
        self._open: tuple[int, tuple[int, int], sqlite3.Connection] | None = None
        self._abandoned: list[sqlite3.Connection] = []
        self._seen: tuple[int, int] | None = None

    @property
    def on_disk(self) -> bool:
        """Whether what is stored outlives the process."""
        return self._memory is None

    def lookup(self, signature: Signature) -> Entry | None:
        """The entry of exactly this signature, from the best source; without its trials, which `trials` gives."""
        found = self._run(lambda connection: self._find(connection, signature))
        if found is None and self._profiles:
            return find_profile(signature)
        return found

    def verdicts(self, signature: Signature) -> list[Entry]:
        """The entries of every bucket of sizes that a symbolic program was tuned for, sorted by their shapes."""
        parts = [name for name in _PARTS.split(", ") if name != "shape_sig"]
        condition = " AND ".join(f"{name} = ?" for name in parts)
        values = [getattr(signature, name) for name in parts]

        def read(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(f"SELECT {_PARTS} FROM signatures WHERE {condition} ORDER BY shape_sig", values)
            found = [self._find(connection, name) for name in self._signatures(rows.fetchall())]
            return [entry for entry in found if entry is not None and is_bucketed(entry.signature.shape_sig)]

        return self._run(read)

    def lookup_shared(self, signature: Signature) -> Entry | None:
        """The plan that all verdicts of a symbolic program agree on; None where they differ, or there are none."""
        found = self.verdicts(signature)
        plans = {entry.plan for entry in found}
        return replace(found[0], signature=signature) if len(plans) == 1 else None

    def trials(self, signature: Signature) -> list[Trial]:
        """All trials kept for a signature, oldest first, also those of plans that were not chosen."""
        return self._run(lambda connection: self._find_trials(connection, signature))

    def store(self, signature: Signature, plan: Plan, trials: Iterable[Trial] = (), source: str = SOURCES[0]) -> None:
        """Keep the plan of a signature, in place of an earlier one of the same source; its trials are added.

        The safe plan is stored as well, where it won: then nobody measures that signature again.
        """
        self.store_all([Entry(signature, plan, tuple(trials), source, time.time())])

    def store_trials(self, signature: Signature, trials: Iterable[Trial]) -> None:
        """Keep what was measured of a signature without a verdict: a search that ended early begins with it."""
        plan, rows = _rows_of(Entry(signature, Plan(), tuple(trials)))
        del plan
        self._run(lambda connection: _write_trials(connection, signature, rows), writes=True)

    def store_all(self, entries: Sequence[Entry]) -> None:
        """Keep several entries: all of them or, where the process ends meanwhile, none."""
        for entry in entries:
            if entry.source not in SOURCES:
                raise ValueError(f"`source` is one of {', '.join(SOURCES)}, got {entry.source!r}")
        rows = [(entry, *_rows_of(entry)) for entry in entries]

        def write(connection: sqlite3.Connection) -> None:
            for entry, plan, trials in rows:
                _write_entry(connection, entry, plan, trials)

        self._run(write, writes=True)

    def entries(self) -> list[Entry]:
        """What the file has for each signature, from the best source, with all trials; sorted by signature."""

        def read(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(f"SELECT {_PARTS} FROM signatures ORDER BY {_PARTS}").fetchall()
            found = [(self._find(connection, name), name) for name in self._signatures(rows)]
            return [
                Entry(name, entry.plan, tuple(self._find_trials(connection, name)), entry.source, entry.stored)
                for entry, name in found
                if entry is not None
            ]

        return self._run(read)

    def neighbours(self, signature: Signature, count: int = 4) -> list[Entry]:
        """Entries to begin a search with: of the nearest sizes, and otherwise of the same key but for versions.

        Groups that do the same on other sizes have names with another digest, and are neighbours.
        """
        kind = kind_of(signature.op_kind)

        def read(connection: sqlite3.Connection) -> list[Entry]:
            rows = connection.execute(
                f"SELECT {_PARTS} FROM signatures WHERE substr(op_kind, 1, ?) = ? AND dtype = ? AND arch = ?",
                (len(kind), kind, signature.dtype, signature.arch),
            )
            found = [self._find(connection, name) for name in self._signatures(rows.fetchall())]
            return [entry for entry in found if entry is not None]

        stored = self._run(read)
        shipped = shipped_entries(signature.arch) if self._profiles else ()
        return nearest(signature, [*stored, *shipped], count)

    def remove(self, signature: Signature) -> bool:
        """Forget a signature, its plans and trials; whether there was one."""
        return self._delete(_MATCH, signature.parts) > 0

    def clear(self) -> int:
        """Forget everything; gives how many signatures that were."""
        return self._delete("1", ())

    def expire(self, *, older_than: float | None = None, other_than: str | None = None, arch: str | None = None) -> int:
        """Forget signatures whose plans are all older than so many seconds, or that have another `runtime`.

        With `arch` only those of one are forgotten: what was imported of other machines has another runtime too. Gives
        how many signatures that were.
        """
        limit, values = ("", ()) if arch is None else (" AND arch = ?", (arch,))
        removed = 0
        if other_than is not None:
            removed += self._delete(f"runtime != ?{limit}", (other_than, *values))
        if older_than is not None:
            newer = "SELECT signature FROM plans WHERE stored >= ?"
            removed += self._delete(f"id NOT IN ({newer}){limit}", (time.time() - older_than, *values))
        return removed

    def close(self) -> None:
        """Let the file go; the next operation opens it anew."""
        with self._guard:
            if self._open is not None and self._open[0] == os.getpid():
                self._open[2].close()
            self._open = None

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # modules are gone by then, and the process lets all files go
            return
        if memory := getattr(self, "_memory", None):
            memory.close()
        if getattr(self, "_open", None) is not None:
            self.close()

    def _delete(self, condition: str, values: Sequence[object]) -> int:
        def delete(connection: sqlite3.Connection) -> int:
            return connection.execute(f"DELETE FROM signatures WHERE {condition}", values).rowcount

        return self._run(delete, writes=True)

    def _signatures(self, rows: Iterable[tuple[object, ...]]) -> Iterator[Signature]:
        """The signatures of rows; SQLite keeps any type in any column."""
        for row in rows:
            parts = [part for part in row if isinstance(part, str)]
            if len(parts) == len(row):
                yield Signature(*parts)
            else:
                _warn_of_row(self.path, "a signature", MismatchError("", "has a part that is no text"))

    def _find(self, connection: sqlite3.Connection, signature: Signature) -> Entry | None:
        rows = connection.execute(
            "SELECT plans.source, plans.plan, plans.stored, plans.digest FROM plans"
            f" JOIN signatures ON signatures.id = plans.signature WHERE {_MATCH}",
            signature.parts,
        ).fetchall()
        best: Entry | None = None
        for source, text, stored, digest in sorted(rows, key=lambda row: _priority(row[0])):
            try:
                _check_row(digest, (*signature.parts, source, text, repr(float(stored))), source, text)
                best = best or Entry(signature, plan_from_json(parse_json(text)), (), source, float(stored))
            except (TypeError, ValueError) as error:
                _warn_of_row(self.path, f"the plan of `{signature}`", error)
        return best

    def _find_trials(self, connection: sqlite3.Connection, signature: Signature) -> list[Trial]:
        rows = connection.execute(
            "SELECT trials.trial, trials.digest FROM trials JOIN signatures ON signatures.id = trials.signature"
            f" WHERE {_MATCH} ORDER BY trials.id",
            signature.parts,
        ).fetchall()
        found: list[Trial] = []
        for text, digest in rows:
            try:
                _check_row(digest, (*signature.parts, text), text)
                found.append(trial_from_json(parse_json(text)))
            except MismatchError as error:
                _warn_of_row(self.path, f"a trial of `{signature}`", error)
        return found

    def _run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Do something in a transaction: on the file, on a new one where it is damaged, or else in memory."""
        with self._guard:
            for _ in range(3):  # damaged once, and once more by somebody else meanwhile
                if self._memory is not None:
                    return _transact(self._memory, work, writes=True)
                try:
                    return self._run_on_file(work, writes)
                except _DamagedError as error:
                    self._set_aside(str(error))
                except (OSError, sqlite3.OperationalError) as error:
                    self._fall_back(str(getattr(error, "strerror", None) or error))
            raise TuningFileError(f"{self.path} is damaged each time that it is written", span=None)

    def _run_on_file(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        self._prepare_folder()
        try:
            if self._is_current():
                with _lock(self.path, exclusive=writes):
                    if self._is_current():
                        assert self._open is not None
                        self._seen = self._open[1]
                        return _transact(self._open[2], work, writes=writes)
            # What is opened is looked through, and made where there is none: by one process at a time.
            with _lock(self.path, exclusive=True):
                return _transact(self._connect(), work, writes=writes)
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                raise _DamagedError(str(error)) from error
            raise

    def _prepare_folder(self) -> None:
        folder = os.path.dirname(self.path)
        if self._is_private:
            make_folder(folder)
            with open_folder(folder):  # raises where others may write it
                pass
        else:
            os.makedirs(folder, exist_ok=True)

    def _is_current(self) -> bool:
        """Whether what is open is the file under the path, and was opened by this process."""
        if self._open is None:
            return False
        process, inode, _ = self._open
        return process == os.getpid() and inode == _inode(self.path)

    def _connect(self) -> sqlite3.Connection:
        """Open the file, look through it, and make tables in an empty one; the lock is held exclusively."""
        if self._open is not None and self._open[0] != os.getpid():
            self._abandoned.append(self._open[2])  # of the parent process: closing it here would end its locks
            self._open = None
        self.close()
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._seen = _inode(self.path)
        connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        connection.text_factory = _decode
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            # Where power goes, a file of an old file system may be damaged: that is found, and measured again.
            connection.execute("PRAGMA synchronous = NORMAL")
            _check_or_create(connection, self.path)
        except BaseException:
            connection.close()
            raise
        self._open = (os.getpid(), self._seen or (0, 0), connection)
        return connection

    def _set_aside(self, reason: str) -> None:
        """Move the damaged file out of the path, unless somebody else has done so meanwhile."""
        self.close()
        with _lock(self.path, exclusive=True):
            if self._seen is None or _inode(self.path) != self._seen:
                return
            aside = f"{self.path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            for ending in ("-journal", "-wal", "-shm"):
                if os.path.exists(self.path + ending):
                    os.replace(self.path + ending, aside + ending)
            os.replace(self.path, aside)
        _warn(f"the tuning database {self.path} is damaged ({reason}); it was moved to {aside}, and a new one is begun")

    def _fall_back(self, reason: str) -> None:
        """Go on in memory, with what the file has where it can be read: it may be on a read-only file system."""
        self.close()
        self._memory = _new_memory()
        try:
            with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as readable:
                _check_or_create(readable, self.path, is_new_allowed=False)
                readable.backup(self._memory)
            self._memory.execute("PRAGMA foreign_keys = ON")
        except (sqlite3.Error, _DamagedError):
            self._memory.close()
            self._memory = _new_memory()  # there is nothing to be read, as the warning says
        _warn(f"the tuning database {self.path} cannot be written ({reason}); plans are kept for this process alone")


@lru_cache(maxsize=8)
def _database_at(folder: str) -> Database:
    return Database(os.path.join(folder, "tuning", f"plans-{VERSION}.sqlite3"), is_private=True)


def default_database() -> Database:
    """The database in the folder of the disk cache, which is this user's alone; one object per folder and process."""
    return _database_at(cache_location()[0])


def _write_entry(connection: sqlite3.Connection, entry: Entry, plan: str, trials: Sequence[tuple[str, str]]) -> None:
    parts, stored = entry.signature.parts, float(entry.stored)
    number = _write_trials(connection, entry.signature, trials)
    connection.execute(
        "INSERT OR REPLACE INTO plans VALUES (?, ?, ?, ?, ?)",
        (number, entry.source, plan, stored, _digest(*parts, entry.source, plan, repr(stored))),
    )


def _write_trials(connection: sqlite3.Connection, signature: Signature, trials: Sequence[tuple[str, str]]) -> int:
    """Add trials of a signature, whose number it gives; the oldest go where there are too many."""
    connection.execute(f"INSERT OR IGNORE INTO signatures ({_PARTS}) VALUES (?, ?, ?, ?, ?, ?, ?)", signature.parts)
    (number,) = connection.execute(f"SELECT id FROM signatures WHERE {_MATCH}", signature.parts).fetchone()
    connection.executemany(
        "INSERT OR IGNORE INTO trials (signature, trial, digest) VALUES (?, ?, ?)",
        [(number, text, digest) for text, digest in trials],
    )
    connection.execute(
        "DELETE FROM trials WHERE signature = ? AND id NOT IN"
        " (SELECT id FROM trials WHERE signature = ? ORDER BY id DESC LIMIT ?)",
        (number, number, MOST_TRIALS),
    )
    return number


def _rows_of(entry: Entry) -> tuple[str, list[tuple[str, str]]]:
    """The texts of the plan and of each trial; raises TuningFileError (T0801) for what could not be read again."""
    try:
        signature_from_json(signature_to_json(entry.signature))
        plan = json.dumps(plan_to_json(entry.plan), sort_keys=True, allow_nan=False)
        plan_from_json(parse_json(plan))
        texts = [json.dumps(trial_to_json(trial), sort_keys=True, allow_nan=False) for trial in entry.trials]
        for index, text in enumerate(texts):
            trial_from_json(parse_json(text), f"trials[{index}]")
    except (MismatchError, TypeError, ValueError) as error:
        raise TuningFileError(
            f"the plan of `{entry.signature}` cannot be stored: {error}",
            span=None,
            fix="values of choices are bools, numbers, strings and lists of them, and times are above 0",
        ) from None
    return plan, [(text, _digest(*entry.signature.parts, text)) for text in texts]


def _priority(source: str) -> int:
    return SOURCES.index(source) if source in SOURCES else len(SOURCES)


def _check_row(digest: object, parts: Sequence[str], *texts: object) -> None:
    if not all(isinstance(text, str) for text in texts) or digest != _digest(*parts):
        raise MismatchError("", "does not have the digest that it was stored with")


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        result = work(connection)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return result


def _decode(data: bytes) -> str:
    """Text of a column: of bytes that are no UTF-8 the digest is wrong, and the row a miss."""
    return data.decode("utf-8", "replace")


def _new_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    connection.execute("PRAGMA foreign_keys = ON")
    _check_or_create(connection, "")
    return connection


def _check_or_create(connection: sqlite3.Connection, path: str, *, is_new_allowed: bool = True) -> None:
    """Raises _DamagedError, or TuningFileError (T0801) where the file is intact and something else."""
    problems = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
    if problems != ["ok"]:
        raise _DamagedError(str(problems[0]).splitlines()[0] if problems else "it cannot be checked")
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
    if not tables and is_new_allowed:
        _create(connection)
    elif application != _APPLICATION:
        raise TuningFileError(
            f"{path} is a database of another program",
            span=None,
            fix="move it away, or name a file that need not exist",
        )
    elif version != VERSION:
        raise TuningFileError(
            f"{path} has tables of version {version}, and this Tessera has {VERSION}",
            span=None,
            fix="name another file, or export the plans with the Tessera that wrote them and import them here",
        )
    elif tables != _TABLES:
        raise _DamagedError(f"it has the tables {', '.join(sorted(tables)) or 'none'}, or other columns of them")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.values():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in (_CORRUPT, _NOT_A_DATABASE) or code == _SHORT_READ


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _lock(path: str, *, exclusive: bool) -> Generator[None]:
    """Hold the lock beside a file; raises TimeoutError where somebody has it for a minute.

    It is opened each time: a descriptor that a child process inherits would share the lock with its parent.
    """
    descriptor = open_lock(f"{path}.lock")
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    end = time.monotonic() + _PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(
                        errno.ETIMEDOUT, f"another process has locked it for {_PATIENCE:.0f} s"
                    ) from None
                time.sleep(random.uniform(0.0005, 0.005))
        yield
    finally:
        os.close(descriptor)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=user_stacklevel())


_warned_rows: set[str] = set()


def _warn_of_row(path: str, what: str, error: Exception) -> None:
    """Say once in a process that a file has rows that are not what was stored; each of them is a miss."""
    if path not in _warned_rows:
        _warned_rows.add(path)  # first: a warning may be an error
        _warn(f"the tuning database {path or 'in memory'} has damaged rows, which are not used: {what} {error}")
