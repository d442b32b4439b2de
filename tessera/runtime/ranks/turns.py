"""Taking turns: what all ranks of a machine want is made by one of them."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from tessera.runtime.ranks import world
from tessera.types.settings import cache_place


@contextmanager
def turn(name: str) -> Generator[None]:
    """Within it, this rank alone works on something of that name; a process that is alone need not ask.

    The system lets go of the lock of a process that dies.
    """
    if world.size() == 1:
        yield
        return
    file = _locked(name)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def _locked(name: str) -> int | None:
    """The file that is locked for a name; None where there is no place for one: then nobody waits for anybody."""
    import fcntl  # noqa: PLC0415 - ranks alone need it

    folder = os.path.join(cache_place()[0], "turns")
    try:
        os.makedirs(folder, exist_ok=True)
        # The names are digests: few files serve all, and two of one file merely wait for each other.
        file = os.open(os.path.join(folder, name[:2]), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        os.close(file)
        return None
    return file
