"""`LocalCommunicator`: ranks on one machine that leave bytes for each other in shared memory and ring with sockets.

Every ordered pair of ranks has a few slots in one anonymous file (`memfd_create`: it has no name, so that nothing stays
behind whatever happens). Who sends fills a slot and says so on the socket of the pair; who receives copies it out and
gives the slot back. A rank that dies closes its sockets, which the others see immediately; one that does not come is
abandoned after a time limit. A thread does all of it, while kernels run in native code beside it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock, Thread

from tessera.diagnostics.codes import RankError
from tessera.runtime import timeline
from tessera.runtime.ranks.algorithms import steps_of
from tessera.runtime.ranks.world import Exchange, Handle
from tessera.types.frozen import frozen

SLOT, SLOTS = 1 << 20, 4
"""Bytes of a slot, so that waking who reads it costs less than its bytes, which may still be in a cache; and how many
slots a pair has."""

_LONGEST = 1024  # bytes of a message: its first is its kind, the rest a count or a text
_OPEN, _DATA, _CREDIT, _LEFT = b"O", b"D", b"C", b"L"


@frozen
class Ends:
    """What a rank holds: its number, how many there are, the file all share, and a socket to each of the others."""

    rank: int
    size: int
    file: int
    sockets: tuple[socket.socket | None, ...]

    def close(self) -> None:
        """Let go of the sockets; the file is shared by all that come from one `ends_of`."""
        for one in self.sockets:
            if one is not None:
                one.close()


def ends_of(size: int) -> list[Ends]:
    """What each rank of a new world holds."""
    file = os.memfd_create("tessera-ranks")
    os.ftruncate(file, max(1, size * size) * SLOT * SLOTS)
    rows: list[list[socket.socket | None]] = [[None] * size for _ in range(size)]
    for one in range(size):
        for other in range(one):
            rows[one][other], rows[other][one] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return [Ends(rank, size, file, tuple(row)) for rank, row in enumerate(rows)]


class _Peer:
    """Another rank as this one sees it."""

    def __init__(self, rank: int, end: socket.socket, outgoing: int, incoming: int) -> None:
        self.rank, self.end = rank, end
        self.outgoing, self.incoming = outgoing, incoming
        self.credits, self.sent, self.received = SLOTS, 0, 0
        self.inbox: deque[bytes] = deque()
        self.has_left, self.reason = False, ""

    def send(self, kind: bytes, payload: bytes = b"") -> bool:
        """Send a message; whether somebody is there to get it."""
        try:
            self.end.send(kind + payload)
        except OSError:
            # Nobody reads any more. What it has sent may still be here: that it has left comes after all of it.
            return False
        return not self.has_left

    def listen(self) -> None:
        """Take what has come: slots that are free again are counted, everything else waits in order."""
        try:
            message = self.end.recv(_LONGEST)
        except ConnectionResetError:
            return  # it left with messages unread; what it sent before is still there
        if not message:
            self.has_left = True
        elif message[:1] == _CREDIT:
            self.credits += 1
        elif message[:1] == _LEFT:
            self.has_left, self.reason = True, message[1:].decode(errors="replace")
        else:
            self.inbox.append(message)

    def last_words(self) -> str:
        """Why it left, where it still could say so."""
        while not self.reason:
            try:
                message = self.end.recv(_LONGEST, socket.MSG_DONTWAIT)
            except ConnectionResetError:
                continue
            except OSError:
                break
            if not message:
                break
            self.reason = message[1:].decode(errors="replace") if message[:1] == _LEFT else ""
        return self.reason


class _Transfer:
    """The part of an exchange that goes to one peer, and the part that comes from it."""

    def __init__(self, peer: _Peer, sends: tuple[int, int] | None, reads: tuple[int, int] | None, what: bytes) -> None:
        """What is sent and what is read are an address and a number of bytes; None where nothing is."""
        self.peer, self.what = peer, what
        self.source, self.unsent = sends or (0, 0)
        self.target, self.unread = reads or (0, 0)
        self.is_open = reads is None
        self.is_broken = sends is not None and not peer.send(_OPEN, what)

    def send(self) -> None:
        """Fill the slots that are free."""
        peer = self.peer
        while self.unsent and peer.credits and not self.is_broken:
            count = min(self.unsent, SLOT)
            ctypes.memmove(peer.outgoing + peer.sent % SLOTS * SLOT, self.source, count)
            self.is_broken = not peer.send(_DATA, struct.pack("<Q", count))
            peer.sent, peer.credits = peer.sent + 1, peer.credits - 1
            self.source, self.unsent = self.source + count, self.unsent - count

    def receive(self) -> None:
        """Copy out what has come; what belongs to the next exchange stays where it is."""
        peer = self.peer
        while peer.inbox and not self.is_done:
            message = peer.inbox.popleft()
            if not self.is_open:
                self._rendezvous(message)
                continue
            (count,) = struct.unpack("<Q", message[1:])
            ctypes.memmove(self.target, peer.incoming + peer.received % SLOTS * SLOT, count)
            peer.received += 1
            peer.send(_CREDIT)
            self.target, self.unread = self.target + count, self.unread - count

    def _rendezvous(self, message: bytes) -> None:
        if message != _OPEN + self.what:
            raise RankError(
                f"rank {self.peer.rank} is at {message[1:].decode()}, and this rank is at {self.what.decode()}",
                span=None,
                fix="let all ranks call the same programs, with arguments of the same shapes, in the same order",
            )
        self.is_open = True

    @property
    def is_done(self) -> bool:
        """Whether all that should come has come."""
        return self.is_open and not self.unread

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_done and not self.unsent


class LocalCommunicator:
    """The `Communicator` of one rank among several on this machine."""

    def __init__(self, ends: Ends, seconds: float) -> None:
        """`seconds` is how long an exchange may go without hearing from a rank that it needs."""
        self.rank, self.size, self._seconds = ends.rank, ends.size, seconds
        self._map = mmap.mmap(ends.file, max(1, ends.size**2) * SLOT * SLOTS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._peers = {
            rank: _Peer(rank, end, base + self._offset(ends.rank, rank), base + self._offset(rank, ends.rank))
            for rank, end in enumerate(ends.sockets)
            if end is not None
        }
        self._queue: SimpleQueue[Handle | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._wake = os.eventfd(0)
        self._failure: RankError | None = None
        self._is_abandoned = False

    def _offset(self, source: int, target: int) -> int:
        return (source * self.size + target) * SLOT * SLOTS

    def start(self, exchange: Exchange) -> Handle:
        """Begin an exchange, after those that were started before it."""
        handle = Handle(exchange)
        with self._lock:
            if self._is_abandoned:
                handle.error = self._failure
                handle.done.set()
                return handle
            if self._thread is None:
                # A daemon: a program that ends without waiting must not stay because of it.
                self._thread = Thread(target=self._run, name="tessera-ranks", daemon=True)
                self._thread.start()
            self._queue.put(handle)
        return handle

    def wait(self, handle: Handle) -> None:
        """Come back when the bytes are there; the thread that brings them keeps the time limit."""
        if not handle.done.is_set():
            with timeline.span("wait", handle.exchange.what):
                handle.done.wait()
        error = handle.error
        if isinstance(error, RankError):
            # Made again here, so that it shows the line of the user who waits.
            raise RankError(error.message, notes=error.notes, fix=error.fix) from error
        if error is not None:
            raise error

    def abandon(self, reason: str) -> None:
        """Leave the world: what is under way ends here, and the others hear of it."""
        with self._lock:
            if self._is_abandoned:
                return
            self._is_abandoned = True
            self._failure = self._failure or RankError(f"rank {self.rank} has left: {reason}", span=None)
        os.eventfd_write(self._wake, 1)
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
        self._leave(self._failure)
        os.close(self._wake)

    def _leave(self, error: RankError) -> None:
        """Tell the others why, and go; the first reason is the one that counts."""
        reason = error.message.encode()[: _LONGEST - 1]
        for peer in self._peers.values():
            peer.send(_LEFT, reason)
            peer.end.close()

    # ---- In the thread.

    def _run(self) -> None:
        while (handle := self._queue.get()) is not None:
            try:
                if self._failure is not None:
                    raise self._failure
                with timeline.span("collective", handle.exchange.what):
                    self._perform(handle.exchange)
            except BaseException as error:  # whatever it is, somebody waits for it
                failed = error if isinstance(error, RankError) else RankError(f"rank {self.rank}: {error}", span=None)
                handle.error, self._failure = error, self._failure or failed
                self._leave(failed)
            handle.done.set()

    def _perform(self, exchange: Exchange) -> None:
        """Copy this rank's own part, and move the others until nothing is left."""
        part, group = exchange.bytes, exchange.group
        at, is_scattered = list(group).index(self.rank), exchange.call == "all_to_all"
        own, what = exchange.target + at * part, exchange.what.encode()[: _LONGEST - 1]
        ctypes.memmove(own, exchange.source + (at * part if is_scattered else 0), part)
        begin = exchange.source if is_scattered else exchange.target
        for step in steps_of(exchange.call, exchange.algorithm, at, len(group)):
            transfers: list[_Transfer] = []
            for move in step:
                (sent, count), (read, other) = move.sends, move.reads
                sends = (begin + sent * part, count * part) if count else None
                reads = (exchange.target + read * part, other * part) if other else None
                transfers.append(_Transfer(self._peers[group[move.peer]], sends, reads, what))
            self._finish(exchange, transfers)

    def _finish(self, exchange: Exchange, transfers: Sequence[_Transfer]) -> None:
        """Move bytes until nothing of a step is left."""
        last = time.monotonic()
        while True:
            for one in transfers:
                one.send()
                one.receive()
            left = [one for one in transfers if not one.is_over]
            if not left:
                return
            self._check(exchange, left, last)
            if self._listen([one.peer for one in left], self._seconds - (time.monotonic() - last)):
                last = time.monotonic()

    def _check(self, exchange: Exchange, left: Sequence[_Transfer], last: float) -> None:
        """Raise where going on has no hope."""
        if self._is_abandoned:
            raise self._failure or RankError(f"rank {self.rank} has left", span=None)
        if any(one.peer.has_left or one.is_broken for one in left):
            self._listen([one.peer for one in left], 0.0)  # whoever else has left by now
            gone = [one.peer for one in left if one.peer.has_left or one.is_broken]
            # One that died says nothing; those who left because of it say so.
            first = next((peer for peer in gone if not peer.last_words()), gone[0])
            raise RankError(
                f"rank {first.rank} left while rank {self.rank} was at {exchange.what}",
                span=None,
                notes=(f"rank {first.rank} said: {first.reason}",) if first.reason else (),
                fix="see what that rank says: it ended, or failed, before it came here",
            )
        if time.monotonic() - last >= self._seconds:
            absent = [one.peer.rank for one in left if not one.is_open] or [one.peer.rank for one in left]
            ranks = f"rank {absent[0]}" if len(absent) == 1 else f"ranks {', '.join(map(str, absent))}"
            raise RankError(
                f"{ranks} did not come to {exchange.what} within {self._seconds:g} s, where rank {self.rank} waits",
                span=None,
                notes=(f"its group is {list(exchange.group)}",),
                fix="let all ranks of an axis call the same programs; `TESSERA_RANK_SECONDS` is how long they wait",
            )

    def _listen(self, peers: Sequence[_Peer], seconds: float) -> bool:
        """Wait for messages of peers that something is still missing from; whether any came."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        by_file = {peer.end.fileno(): peer for peer in peers}
        for file in by_file:
            poll.register(file, select.POLLIN)
        found = poll.poll(max(0.0, seconds) * 1000)
        for file, _ in found:
            if file in by_file:
                by_file[file].listen()
        return bool(found)
