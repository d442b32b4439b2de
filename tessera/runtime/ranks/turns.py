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
    import fcntl  # noqa: PLC0415 - ranks alone need it

    folder = os.path.join(cache_place()[0], "turns")
    os.makedirs(folder, exist_ok=True)
    file = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
