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
from collections.abc import Iterator, Sequence
from typing import Any

from tessera.runtime.ranks.algorithms import DIRECT
from tessera.runtime.ranks.queued import (
    LONGEST,
    Finish,
    QueuedCommunicator,
    absence,
    departure,
    mismatch,
    transfers_of,
)
from tessera.runtime.ranks.world import Exchange
from tessera.types.frozen import frozen

SLOT, SLOTS = 1 << 20, 4
"""Bytes of a slot, so that waking who reads it costs less than its bytes, which may still be in a cache; and how many
slots a pair has."""

SMALL = 64 << 10
"""Bytes up to which a part goes with its name in one message of the socket, without a slot that must be given back.

Two of them fit into what a socket holds, and where ranks send directly none is more than one exchange ahead of another,
so that sending does not wait. Steps of a ring or a tree may be further ahead: what does not fit waits in an outbox."""

QUICK = 256 << 10
"""Bytes up to which copying takes less time than waking the thread that would do it beside the program."""

_OPEN, _WHOLE, _DATA, _CREDIT, _LEFT = b"O", b"S", b"D", b"C", b"L"
_MESSAGE = LONGEST + SMALL + 2


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
        self.outbox: deque[bytes] = deque()
        self.has_left, self.is_cut, self.reason = False, False, ""

    def send(self, kind: bytes, payload: bytes = b"", data: Any = b"") -> bool:
        """Send a message, with bytes of memory behind it; whether somebody is there to get it.

        It never waits: what the socket does not hold goes when the other rank has read, in `flush`.
        """
        if self.outbox:
            self.outbox.append(b"".join((kind, payload, data)))
            return not self.has_left
        try:
            self.end.sendmsg((kind + payload, data), (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            self.outbox.append(b"".join((kind, payload, data)))
        except OSError:
            # Nobody reads any more. What it has sent may still be here: that it has left comes after all of it.
            return False
        return not self.has_left

    def flush(self) -> None:
        """Send what waits, as far as the socket holds it."""
        while self.outbox:
            try:
                self.end.send(self.outbox[0], socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                # As above; a slot that is given back to nobody is no loss.
                self.is_cut = any(message[:1] != _CREDIT for message in self.outbox)
                self.outbox.clear()
                return
            self.outbox.popleft()

    def say_last(self, words: bytes) -> None:
        """Say why this rank leaves, where that can be sent without waiting, and close."""
        self.outbox.clear()
        self.send(_LEFT, words)
        self.end.close()

    def listen(self) -> None:
        """Take what has come: slots that are free again are counted, everything else waits in order."""
        try:
            message = self.end.recv(_MESSAGE)
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
                message = self.end.recv(_MESSAGE, socket.MSG_DONTWAIT)
            except ConnectionResetError:
                continue
            except OSError:
                break
            if not message:
                break
            self.reason = message[1:].decode(errors="replace") if message[:1] == _LEFT else ""
        return self.reason


def bytes_at(address: int, size: int) -> memoryview:
    """Memory at an address."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B") if size else memoryview(bytearray())


class _Transfer:
    """The part of an exchange that goes to one peer, and the part that comes from it."""

    def __init__(self, peer: _Peer, sends: tuple[int, int] | None, reads: tuple[int, int] | None, what: bytes) -> None:
        """What is sent and what is read are an address and a number of bytes; None where nothing is."""
        self.peer, self.what = peer, what
        self.source, self.unsent = sends or (0, 0)
        self.target, self.unread = reads or (0, 0)
        self.is_open, self.is_broken = reads is None, False
        if sends is None:
            return
        if self.unsent <= SMALL:
            name = struct.pack("<H", len(what)) + what
            self.is_broken = not peer.send(_WHOLE, name, bytes_at(self.source, self.unsent))
            self.unsent = 0
        else:
            self.is_broken = not peer.send(_OPEN, what)

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
        """The other rank is at this exchange, or at another; a small part has come with the name of its exchange."""
        is_whole, data = message[:1] == _WHOLE, memoryview(b"")
        if is_whole:
            (length,) = struct.unpack("<H", message[1:3])
            name, data = message[3 : 3 + length], memoryview(message)[3 + length :]
        else:
            name = message[1:]
        if name != self.what or (is_whole and len(data) != self.unread):
            raise mismatch(self.peer.rank, name.decode(errors="replace"), self.what.decode(errors="replace"))
        self.is_open = True
        if is_whole:
            bytes_at(self.target, self.unread)[:] = data
            self.unread = 0

    @property
    def is_done(self) -> bool:
        """Whether all that should come has come."""
        return self.is_open and not self.unread

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_done and not self.unsent and not self.peer.outbox

    @property
    def is_lost(self) -> bool:
        """Whether the other rank will not get what it needs, or has gone."""
        return self.is_broken or self.peer.has_left or self.peer.is_cut


class LocalCommunicator(QueuedCommunicator):
    """The `Communicator` of one rank among several on this machine."""

    def __init__(self, ends: Ends, seconds: float) -> None:
        """`seconds` is how long an exchange may go without hearing from a rank that it needs."""
        super().__init__(ends.rank, ends.size, seconds)
        self._map = mmap.mmap(ends.file, max(1, ends.size**2) * SLOT * SLOTS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._peers = {
            rank: _Peer(rank, end, base + self._offset(ends.rank, rank), base + self._offset(rank, ends.rank))
            for rank, end in enumerate(ends.sockets)
            if end is not None
        }
        self._wake = os.eventfd(0)

    def _offset(self, source: int, target: int) -> int:
        return (source * self.size + target) * SLOT * SLOTS

    def interrupt(self) -> None:
        """Wake the thread, which then finds that this rank has left."""
        os.eventfd_write(self._wake, 1)

    def leave(self, reason: str) -> None:
        """Tell the others why, and go."""
        words = reason.encode()[: LONGEST - 1]
        for peer in self._peers.values():
            peer.say_last(words)

    def close(self) -> None:
        """Let go of what no thread uses any more."""
        os.close(self._wake)

    def begin(self, exchange: Exchange) -> Finish | None:
        """Send the parts of a small exchange, each a message or a slot, where all of them go in one step."""
        if exchange.bytes > min(QUICK, SLOT) or exchange.algorithm != DIRECT:
            return None
        if exchange.bytes > SMALL and not all(self._peers[one].credits for one in exchange.group if one != self.rank):
            return None  # a slot must be waited for
        moving = [one for step in self._steps(exchange) for one in step]
        for one in moving:
            one.send()
        return lambda: self._finish(exchange, moving)

    def perform(self, exchange: Exchange) -> None:
        """Copy this rank's own part, and move the others until nothing is left."""
        for step in self._steps(exchange):
            self._finish(exchange, step)

    def _steps(self, exchange: Exchange) -> Iterator[list[_Transfer]]:
        what = exchange.what.encode()[: LONGEST - 1]
        for step in transfers_of(exchange, self.rank):
            yield [_Transfer(self._peers[one.peer], one.sends, one.reads, what) for one in step]

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
        self.check_abandoned()
        if any(one.is_lost for one in left):
            self._listen([one.peer for one in left], 0.0)  # whoever else has left by now
            gone = [one.peer for one in left if one.is_lost]
            # One that died says nothing, one that failed says why; those who left because of it say so.
            first = min(gone, key=lambda peer: (bool(peer.last_words()), " left while rank " in peer.reason))
            raise departure(exchange, self.rank, first.rank, first.reason)
        if time.monotonic() - last >= self._seconds:
            absent = [one.peer.rank for one in left if not one.is_open] or [one.peer.rank for one in left]
            raise absence(exchange, self.rank, absent, self._seconds)

    def _listen(self, peers: Sequence[_Peer], seconds: float) -> bool:
        """Wait for messages of peers that something is still missing from, and to send more; whether anything moved."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        by_file = {peer.end.fileno(): peer for peer in peers}
        for file, peer in by_file.items():
            poll.register(file, select.POLLIN | (select.POLLOUT if peer.outbox else 0))
        found = poll.poll(max(0.0, seconds) * 1000)
        for file, event in found:
            if file in by_file and event & ~select.POLLOUT:
                by_file[file].listen()
            if file in by_file and event & select.POLLOUT:
                by_file[file].flush()
        return bool(found)
