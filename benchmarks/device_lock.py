"""One process at a time at a device: a lock on a file, for benchmarks that compile in several processes."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_at(lock: Path | None) -> Generator[None]:
    """Nobody else is at the device in here; without a lock there is nobody else."""
    if lock is None:
        yield
        return
    with lock.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing would not do: a process that was forked meanwhile has the file open too.
            fcntl.flock(file, fcntl.LOCK_UN)
