"""`MpiCommunicator`: ranks that `mpiexec` or `srun` has started, on any machines that MPI reaches.

MPI moves bytes and nothing else: reductions are kernels, as over shared memory, so that bits are the same. Nothing here
blocks in MPI, whose blocking calls have no time limit and spin: requests are started, and polled with naps in
between, so that four ranks share two CPUs and nobody waits for ever.

Between two ranks, messages of one tag keep their order. `_CONTROL` has what ranks tell each other: small parts with
the name of their exchange in front; the name alone of a large one, which is answered when the other rank is at the same
exchange; and why a rank leaves. So bytes reach memory of a program only when both ranks have said the same name.
Large parts follow with the tag `_DATA`.

A rank whose exchange fails has receives that it has asked for, and sends that it was asked for. It says first that it
leaves, so that it sends nothing more, and waits until MPI has let go of its memory: a send ends because its receiver
keeps the receive; a receive ends because its sender sends, or says that it leaves, and only then is it cancelled, since
messages between two ranks keep their order and nothing can match it any more. Sends are never cancelled, nor receives
that may be matched: MPI need not be able to, and MPICH crashes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks.discovery import Place
from tessera.runtime.ranks.queued import (
    ENDED,
    LONGEST,
    QueuedCommunicator,
    Transfer,
    absence,
    departure,
    mismatch,
    transfers_of,
)
from tessera.runtime.ranks.world import Communicator, Exchange

SMALL = 8192
"""Bytes of a part up to which it goes with its name; MPI sends so little without asking, and a copy costs nothing."""

CHUNK = 1 << 30
"""Bytes of one request: MPI counts them in 32 bits."""

_CONTROL, _DATA = 1, 2
_NAMED, _WHOLE, _READY, _LEFT, _OVER = b"O", b"S", b"R", b"L", b"E"
_GRACE = 5.0  # seconds that others have to say why they left, before all are ended
_DRAIN = 30.0  # seconds that others have to end what they have begun with a rank that leaves, on busy machines too
_NAPS = (0.0,) * 64 + (0.00005,) * 64 + (0.0005,)  # seconds, the last for as long as nothing comes


def connect(place: Place | None, seconds: float) -> Communicator:
    """The communicator of this process among those that MPI knows of; raises RankError (T0712) where it is not one."""
    mpi = _load(place)
    whole = mpi.COMM_WORLD
    _check_world(mpi, whole, place)
    # A world of its own: what the user's program sends by MPI is not mistaken for what is sent here.
    own, request = whole.Idup()
    deadline, naps = time.monotonic() + seconds, _Naps()
    while not request.Test():
        if time.monotonic() > deadline:
            raise RankError(
                f"not all of {whole.size} ranks joined within {seconds:g} s, where rank {whole.rank} waits",
                span=None,
                fix="let all of them ask for their rank; `TESSERA_RANK_SECONDS` is how long they wait",
            )
        naps.take()
    unlink_shared_memory()
    made = MpiCommunicator(mpi, own, seconds)
    atexit.register(made.end)
    return made


_MPICH_FILE = re.compile(r"/dev/shm/mpich_shm_[0-9A-Za-z_]+")


def unlink_shared_memory(maps: str = "/proc/self/maps") -> None:
    """Take the names of MPICH's shared memory away once all ranks have it, so that a job that is killed leaves no file.

    All ranks have mapped it before they have joined, and memory stays for as long as it is mapped. Only a file of such
    a name that this process itself has mapped, the same one by device and inode, is of this job.
    """
    if not os.path.exists(maps):
        return  # not Linux, where MPICH keeps it elsewhere
    with open(maps, encoding="utf-8") as file:
        mapped = [line.split(maxsplit=5) for line in file]
    for device, inode, path in {(one[3], one[4], one[5].strip()) for one in mapped if len(one) == 6}:
        if _MPICH_FILE.fullmatch(path) is None:
            continue
        with suppress(FileNotFoundError):  # another rank of this machine was first
            found = os.lstat(path)
            if (f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}", str(found.st_ino)) == (device, inode):
                os.unlink(path)


def _load(place: Place | None) -> Any:
    where = f"this process is {place}" if place is not None else "MPI was asked for"
    try:
        return import_module("mpi4py.MPI")  # here: it is optional, and starts MPI
    except ImportError:
        raise RankError(
            f"{where}, and `mpi4py` is not installed",
            span=None,
            notes=("rule: ranks of `mpiexec` communicate by MPI unless `TESSERA_COMMUNICATOR` says otherwise",),
            fix='`pip install "tessera[mpi]"`; on one machine `TESSERA_COMMUNICATOR=shared_memory` needs nothing, '
            "and `none` lets each process be alone",
        ) from None
    except RuntimeError as error:
        raise RankError(
            f"{where}, and `mpi4py` finds no MPI: {error}",
            span=None,
            fix='`pip install "tessera[mpi]"`, or load the module of an MPI that this machine has',
        ) from error


def _check_world(mpi: Any, whole: Any, place: Place | None) -> None:
    """Raise where MPI does not know what its launcher has said, or cannot be called from a thread."""
    if place is not None and (whole.size, whole.rank) != (place.size or whole.size, place.rank):
        library = mpi.Get_library_version().partition("\n")[0].strip(" \0")
        raise RankError(
            f"this process is {place}, and MPI says rank {whole.rank} of {whole.size}",
            span=None,
            notes=(f"`mpi4py` has loaded {library}",),
            fix="start it with the `mpiexec` of that MPI, or `mpi4py` with the MPI of this `mpiexec`; "
            "`srun` needs `--mpi=pmix` or `--mpi=pmi2`",
        )
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED:
        raise RankError(
            "MPI was started for one thread, and ranks communicate in another while kernels run",
            span=None,
            notes=(f"rule: its thread level is {mpi.THREAD_SERIALIZED} or more, and is {mpi.Query_thread()}",),
            fix="let `mpi4py` start MPI, or ask for `MPI_THREAD_MULTIPLE`",
        )


class _Naps:
    """Longer and longer pauses, while nothing happens."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> None:
        time.sleep(_NAPS[min(self.count, len(_NAPS) - 1)])
        self.count += 1


class _Peer:
    """Another rank as this one sees it: what it has said, and how often it said that it is ready."""

    def __init__(self, rank: int) -> None:
        self.rank, self.ready = rank, 0
        self.inbox: deque[bytes] = deque()
        self.has_left, self.reason, self.when = False, "", 0.0
        self.over = ""  # `0` where its process came to a good end, `1` to another


class _Moving:
    """The part of an exchange that goes to one peer and comes from it, as messages and requests."""

    def __init__(self, owner: MpiCommunicator, peer: _Peer, moves: Transfer, what: bytes) -> None:
        self.owner, self.peer, self.what = owner, peer, what
        self.reads, self.sends = moves.reads, moves.sends
        self.receiving, self.sending = list[Any](), list[Any]()
        self.is_open, self.is_cancelled = moves.reads is None, False
        self.unsent = moves.sends is not None
        if moves.sends is None:
            return
        address, size = moves.sends
        if size <= SMALL:
            name = struct.pack("<H", len(what)) + what
            owner.tell(peer.rank, _WHOLE + name + ctypes.string_at(address, size))
            self.unsent = False
        else:
            owner.tell(peer.rank, _NAMED + what)

    def advance(self) -> bool:
        """Do what can be done; whether that was anything."""
        did = False
        if self.unsent and self.peer.ready and self.sends is not None:
            self.peer.ready -= 1
            self.sending += self.owner.send(self.peer.rank, *self.sends)
            self.unsent, did = False, True
        if not self.is_open and self.peer.inbox:
            self._open(self.peer.inbox.popleft())
            did = True
        return self._test() or did

    def _test(self) -> bool:
        """Forget the requests that are complete; whether any was."""
        before = len(self.receiving) + len(self.sending)
        self.receiving = [one for one in self.receiving if not one.Test()]
        self.sending = [one for one in self.sending if not one.Test()]
        return len(self.receiving) + len(self.sending) < before

    def withdraw(self) -> bool:
        """Begin nothing more; whether MPI has let go of the memory of this part."""
        if self.peer.has_left and not self.is_cancelled:
            self.is_cancelled = True
            for request in self.receiving:
                request.Cancel()
        self._test()
        return not self.receiving and not self.sending

    def _open(self, message: bytes) -> None:
        """The other rank is there: take what it sent, or let it send."""
        assert self.reads is not None
        is_whole, name, data = message[:1] == _WHOLE, message[1:], b""
        if is_whole:
            (length,) = struct.unpack("<H", message[1:3])
            name, data = message[3 : 3 + length], message[3 + length :]
        address, size = self.reads
        if name != self.what or (is_whole and len(data) != size):
            raise mismatch(self.peer.rank, name.decode(errors="replace"), self.what.decode(errors="replace"))
        self.is_open = True
        if is_whole:
            ctypes.memmove(address, data, size)
        else:
            self.receiving += self.owner.receive(self.peer.rank, address, size)
            self.owner.tell(self.peer.rank, _READY)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self.is_open and not self.unsent and not self.receiving and not self.sending

    @property
    def is_hopeless(self) -> bool:
        """Whether what is missing cannot come any more; what is under way may still arrive."""
        if not self.peer.has_left or self.is_over:
            return False
        return self.unsent or not self.is_open or time.monotonic() - self.peer.when > _GRACE


class MpiCommunicator(QueuedCommunicator):
    """The `Communicator` of one rank of an MPI job; `comm` is a communicator of MPI's that nobody else uses."""

    def __init__(self, mpi: Any, comm: Any, seconds: float) -> None:
        super().__init__(comm.rank, comm.size, seconds)
        self._mpi, self._comm = mpi, comm
        self._peers = {rank: _Peer(rank) for rank in range(comm.size) if rank != comm.rank}
        self._telling: list[tuple[Any, bytes]] = []
        self._moving: Sequence[_Moving] = ()

    # ---- Messages and requests.

    def tell(self, rank: int, message: bytes) -> None:
        """Send a message, which is kept until MPI has taken it."""
        self._telling = [one for one in self._telling if not one[0].Test()]
        self._telling.append((self._comm.Isend([message, self._mpi.BYTE], rank, _CONTROL), message))

    def send(self, rank: int, address: int, size: int) -> list[Any]:
        """Requests that send bytes at an address."""
        return [self._comm.Isend(one, rank, _DATA) for one in self._chunks(address, size)]

    def receive(self, rank: int, address: int, size: int) -> list[Any]:
        """Requests that put bytes at an address."""
        return [self._comm.Irecv(one, rank, _DATA) for one in self._chunks(address, size)]

    def _chunks(self, address: int, size: int) -> list[Any]:
        memory, kind = self._mpi.buffer, self._mpi.BYTE
        return [[memory.fromaddress(address + at, min(CHUNK, size - at)), kind] for at in range(0, size, CHUNK)]

    def _listen(self) -> bool:
        """Take what others have said; whether anything was."""
        status, any_rank, did = self._mpi.Status(), self._mpi.ANY_SOURCE, False
        while (message := self._comm.Improbe(any_rank, _CONTROL, status)) is not None:
            data = bytearray(status.Get_count(self._mpi.BYTE))
            message.Recv([data, self._mpi.BYTE])
            peer, kind, did = self._peers[status.Get_source()], bytes(data[:1]), True
            if kind == _READY:
                peer.ready += 1
            elif kind == _LEFT:
                peer.has_left, peer.when = True, time.monotonic()
                peer.reason = data[1:].decode(errors="replace")
            elif kind == _OVER:
                peer.over = data[1:].decode()
            else:
                peer.inbox.append(bytes(data))
        return did

    # ---- Exchanges, in the thread.

    def perform(self, exchange: Exchange) -> None:
        """Copy this rank's own part, and move the others until nothing is left."""
        what = exchange.what.encode()[: LONGEST - 1]
        for step in transfers_of(exchange, self.rank):
            self._moving = [_Moving(self, self._peers[one.peer], one, what) for one in step]
            self._finish(exchange, self._moving)

    def _finish(self, exchange: Exchange, moving: Sequence[_Moving]) -> None:
        last, naps = time.monotonic(), _Naps()
        while True:
            did = self._listen()
            for one in moving:
                did |= one.advance()
            left = [one for one in moving if not one.is_over]
            if not left:
                return
            self._check(exchange, left, last)
            if did:
                last, naps = time.monotonic(), _Naps()
            else:
                naps.take()

    def _check(self, exchange: Exchange, left: Sequence[_Moving], last: float) -> None:
        """Raise where going on has no hope."""
        self.check_abandoned()
        gone = [one.peer for one in left if one.is_hopeless]
        if gone:
            first = min(gone, key=lambda peer: peer.when)
            raise departure(exchange, self.rank, first.rank, first.reason)
        if time.monotonic() - last >= self._seconds:
            absent = [one.peer.rank for one in left if not one.is_open or one.unsent]
            raise absence(exchange, self.rank, absent or [one.peer.rank for one in left], self._seconds)

    def withdraw(self) -> None:
        """Let MPI touch no memory of the exchange that has failed; the others know that this rank has left."""
        moving, self._moving = self._moving, ()
        deadline, naps = time.monotonic() + _DRAIN, _Naps()
        while (moving := [one for one in moving if not one.withdraw()]) and time.monotonic() < deadline:
            self._listen()
            naps.take()
        if moving:
            ranks = ", ".join(str(one.peer.rank) for one in moving)
            sys.stderr.write(f"rank {self.rank}: MPI still moves bytes of rank {ranks} after a collective has failed\n")
            self._abort()

    # ---- Leaving.

    def leave(self, reason: str) -> None:
        """Tell the others why this rank goes; those that have left still listen, until they end."""
        self._tell_all(_LEFT + reason.encode()[: LONGEST - 1])

    def _tell_all(self, message: bytes) -> None:
        for rank in self._peers:
            self.tell(rank, message)
        deadline, naps = time.monotonic() + _GRACE, _Naps()
        while any(not one[0].Test() for one in self._telling) and time.monotonic() < deadline:
            naps.take()

    def end(self) -> None:
        """At the end of the process: MPI ends well where all ranks did, and with an error for all where one failed.

        Its own way to end waits for all without limit, and spins. So ranks wait here, until all have said that they
        are at their end too, after a failure for a few seconds alone, in which the others print what they have seen.
        """
        self.abandon(ENDED)
        failed = self._failure is not None and not self._failure.message.endswith(ENDED)
        self._tell_all(_OVER + (b"1" if failed else b"0"))
        deadline, naps = time.monotonic() + _GRACE, _Naps()
        while any(peer.over == "" for peer in self._peers.values()):
            self._listen()
            failed = failed or any(peer.over == "1" for peer in self._peers.values())
            if not failed:
                deadline = time.monotonic() + _GRACE
            if time.monotonic() > deadline:
                break
            naps.take()
        if failed or any(peer.over == "1" for peer in self._peers.values()):
            self._abort()

    def _abort(self) -> None:
        """End the job: whoever started it ends those that do not end by themselves."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._mpi.COMM_WORLD.Abort(1)
        os._exit(1)
