"""A communicator of somebody else's, over sockets in a folder; it is copied beside the metadata of a package.

`TOY_FAULT` lets it break a rule, to see that the rule is the one that is named.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import select
import socket
import struct
import time

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks.discovery import Place
from tessera.runtime.ranks.queued import QueuedCommunicator, absence, departure, mismatch, transfers_of
from tessera.runtime.ranks.world import Exchange, Handle

FAULT = os.environ.get("TOY_FAULT", "")


def connect(place: Place | None, seconds: float) -> ToyCommunicator:
    """What the entry point names."""
    assert place is not None
    job = hashlib.sha256(place.job.encode()).hexdigest()[:16]
    names: list[str] = [f"\0toy-{job}-{rank}" for rank in range(place.size)]
    ends: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(names[place.rank])
        door.listen(place.size)
        for rank in range(place.rank):
            end, limit = socket.socket(socket.AF_UNIX), time.monotonic() + seconds
            while end.connect_ex(names[rank]) and time.monotonic() < limit:
                time.sleep(0.01)
            end.sendall(struct.pack("<i", place.rank))
            ends[rank] = end
        door.settimeout(seconds)
        for _ in range(place.rank + 1, place.size):
            end, _ = door.accept()
            ends[struct.unpack("<i", end.recv(4, socket.MSG_WAITALL))[0]] = end
    for end in ends.values():
        end.setblocking(False)
    return ToyCommunicator(place.rank + (FAULT == "identity"), place.size, seconds, ends)


class ToyCommunicator(QueuedCommunicator):
    """Frames of a name and bytes, which are copied to their target when their name is the right one."""

    def __init__(self, rank: int, size: int, seconds: float, ends: dict[int, socket.socket]) -> None:
        super().__init__(rank, size, seconds)
        self.ends, self.read, self.gone = ends, dict.fromkeys(ends, b""), dict[int, str]()
        self.unsent, self.has_raised = dict.fromkeys(ends, b""), False

    def start(self, exchange: Exchange) -> Handle:
        handle = super().start(exchange)
        if FAULT == "start":
            handle.done.wait()
        return handle

    def wait(self, handle: Handle) -> None:
        try:
            super().wait(handle)
        except RankError as error:
            if FAULT == "afterwards" and self.has_raised:
                raise ValueError(str(error)) from None
            self.has_raised = True
            raise

    def perform(self, exchange: Exchange) -> None:
        for step in transfers_of(exchange, self.rank):
            waiting = {one.peer: one.reads for one in step if one.reads is not None}
            for one in step:
                if one.sends is not None:
                    name = exchange.what.encode()
                    body = struct.pack("<H", len(name)) + name + ctypes.string_at(*one.sends)
                    self.unsent[one.peer] += b"D" + struct.pack("<I", len(body)) + body
            last = time.monotonic()
            while waiting or any(self.unsent[one.peer] for one in step):
                if self.turn():
                    last = time.monotonic()
                for peer in list(waiting):
                    if self.take(peer, exchange, waiting[peer]):
                        del waiting[peer]
                self.check_abandoned()
                lost = [peer for peer in waiting if peer in self.gone]
                if lost:
                    raise departure(exchange, self.rank, lost[0], self.gone[lost[0]])
                if time.monotonic() - last > self._seconds and FAULT != "absence":
                    raise absence(exchange, self.rank, list(waiting), self._seconds)

    def turn(self) -> bool:
        """Send and read what can be; whether anything was."""
        ends = {end: rank for rank, end in self.ends.items() if rank not in self.gone}
        writing = [end for end, rank in ends.items() if self.unsent[rank]]
        readable, writable, _ = select.select(list(ends), writing, [], 0.02)
        for end in writable:
            try:
                count = end.send(self.unsent[ends[end]])
                self.unsent[ends[end]] = self.unsent[ends[end]][count:]
            except OSError:
                self.unsent[ends[end]] = b""
        for end in readable:
            try:
                data = end.recv(1 << 20)
            except OSError:
                data = b""
            self.read[ends[end]] += data
            if not data and FAULT != "death":
                self.gone[ends[end]] = ""
        return bool(readable or writable)

    def take(self, peer: int, exchange: Exchange, reads: tuple[int, int]) -> bool:
        """Take the next frame of a peer, where it is whole."""
        data = self.read[peer]
        length = struct.unpack("<I", data[1:5])[0] if len(data) >= 5 else 0
        if len(data) < 5 or len(data) < 5 + length:
            return False
        body, self.read[peer] = data[5 : 5 + length], data[5 + length :]
        if data[:1] == b"L":
            self.gone[peer] = body.decode()
            return False
        (size,) = struct.unpack("<H", body[:2])
        name, found = body[2 : 2 + size].decode(), body[2 + size :]
        if FAULT == "untouched":
            ctypes.memmove(reads[0], found, len(found))
        if name != exchange.what and FAULT != "mismatch":
            raise mismatch(peer, name, exchange.what)
        if exchange.call == FAULT:
            found = found[::-1]
        ctypes.memmove(reads[0], found, len(found))
        if FAULT == "bounds":
            ctypes.memset(exchange.target + exchange.bytes * len(exchange.group), 1, 1)
        return True

    def leave(self, reason: str) -> None:
        if FAULT == "departure":
            return
        for rank, end in self.ends.items():
            words = reason.encode()
            self.unsent[rank] += b"L" + struct.pack("<I", len(words)) + words
            end.setblocking(True)
            end.settimeout(5)
            try:
                end.sendall(self.unsent[rank])
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has gone before
