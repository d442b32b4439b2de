"""What a rank needs to speak with others: exchanges of bytes that are started, and waited for later."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Protocol

from tessera.types.frozen import frozen

CALLS = ("all_gather", "all_to_all")
"""What moves bytes; every other collective is one of these with computing around it."""


@frozen
class Exchange:
    """One collective as memory sees it, among the ranks of `group` in their order.

    `all_gather` puts the `bytes` bytes at `source` of every rank one after the other at `target`. `all_to_all` has a
    part of `bytes` bytes for each rank at `source`, and puts there what each rank has for this one. Both places belong
    to the exchange until it was waited for. `what` is how people call it; ranks that meet must say the same.
    """

    call: str
    group: Sequence[int]
    source: int
    target: int
    bytes: int
    what: str


class Handle:
    """An exchange under way; `error` is why it failed, once `done` is set."""

    __slots__ = ("done", "error", "exchange")

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.done = Event()
        self.error: BaseException | None = None


class Communicator(Protocol):
    """How one rank reaches the others.

    Ranks of a group must start the exchanges of that group in one order. Nothing waits for ever: where a rank does not
    come in time, leaves, or is at another exchange, waiting raises RankError (T0712), and so does everything after it.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def start(self, exchange: Exchange) -> Handle:
        """Begin an exchange, which goes on while the caller does something else."""
        ...

    def wait(self, handle: Handle) -> None:
        """Come back when the bytes are there; raises what went wrong."""
        ...

    def abandon(self, reason: str) -> None:
        """Speak with nobody any more, and let the others know; no exchange touches memory afterwards."""
        ...
