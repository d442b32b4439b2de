"""The record of a run: one root seed that all keys without a seed of their own come from, and come from again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from zlib import crc32

from tessera import __version__
from tessera.diagnostics.codes import RuntimeArgumentError

_STREAM = crc32(b"tessera run") << 32
_MASK = (1 << 64) - 1


class RunRecord:
    """What must be known to draw the same numbers again: the root seed; `draws` is how many keys came from it.

    >>> record = RunRecord(7)
    >>> RunRecord.from_json(record.to_json()).seed
    7
    """

    def __init__(self, seed: int, draws: int = 0, version: str = __version__) -> None:
        self.seed, self.draws, self.version = seed & _MASK, draws, version
        self._lock = threading.Lock()

    def next_words(self) -> tuple[int, int]:
        """The two words of the next key: the root seed, and the number of the draw in the stream of runs."""
        with self._lock:
            self.draws += 1
            return self.seed, _STREAM | self.draws

    def to_json(self) -> str:
        """The record as text."""
        return json.dumps({"seed": self.seed, "draws": self.draws, "version": self.version})

    @staticmethod
    def from_json(text: str) -> RunRecord:
        """The record that was written; raises RuntimeArgumentError (T0701) for a text that is none."""
        try:
            fields = json.loads(text)
            return RunRecord(int(fields["seed"]), int(fields["draws"]), str(fields["version"]))
        except (ValueError, KeyError, TypeError) as error:
            raise RuntimeArgumentError(f"this is no record of a run: {error}") from None

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the record to a file."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.to_json() + "\n")

    @staticmethod
    def load(file: str | os.PathLike[str]) -> RunRecord:
        """Read a record from a file."""
        with open(file, encoding="utf-8") as given:
            return RunRecord.from_json(given.read())

    def __repr__(self) -> str:
        return f"RunRecord(seed={self.seed}, draws={self.draws})"


_RUN: ContextVar[RunRecord | None] = ContextVar("run", default=None)
_PROCESS: list[RunRecord] = []
_MAKING = threading.Lock()


def current() -> RunRecord:
    """The run that code stands in: the innermost one that was entered, else that of the process."""
    return _RUN.get() or _of_process()


def _of_process() -> RunRecord:
    with _MAKING:
        if not _PROCESS:
            _PROCESS.append(RunRecord(int.from_bytes(os.urandom(8), "little")))
        return _PROCESS[0]


@contextmanager
def enter_run(record: RunRecord) -> Generator[RunRecord]:
    """Within it, keys without a seed come from this record."""
    token = _RUN.set(record)
    try:
        yield record
    finally:
        _RUN.reset(token)


def _forget() -> None:
    """A process that was forked is another run: it must not draw what its parent draws."""
    _PROCESS.clear()


os.register_at_fork(after_in_child=_forget)
