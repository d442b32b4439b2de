"""How processes of one machine that somebody else has started meet, and become ranks over shared memory.

Rank 0 makes what all share and waits on an abstract socket (it has no file, and goes with its process) whose name is
made from the job. The others knock, say who they are, and get their files. Processes of other users are sent
away: the name can be known, the user of a socket is what the system says.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import time

from tessera.diagnostics.codes import RankError
from tessera.runtime.ranks.discovery import Place
from tessera.runtime.ranks.shared_memory import Ends, LocalCommunicator, ends_of
from tessera.runtime.ranks.world import Communicator

_PAUSE = 0.01  # seconds between knocks, while rank 0 is not there yet


def connect(place: Place | None, seconds: float) -> Communicator:
    """The communicator of this process among those of its job on this machine."""
    if place is None or not place.size:
        raise RankError(
            "shared memory was asked for, and no variable says which rank this process is",
            span=None,
            fix="start it with `mpiexec`, `srun` or `torchrun`, or set `RANK`, `WORLD_SIZE` and `MASTER_PORT`; "
            "`tessera.dist.run` and `tessera run --ranks` need none of it",
        )
    if place.here not in (0, place.size):
        raise RankError(
            f"this process is {place}, of which {place.here} are of this machine: shared memory reaches no other",
            span=None,
            fix='start them with `mpiexec`, and `pip install "tessera[mpi]"`',
        )
    name = b"\0tessera-" + hashlib.sha256(f"{os.getuid()} {place.size} {place.job}".encode()).hexdigest()[:32].encode()
    ends = _host(name, place, seconds) if place.rank == 0 else _visit(name, place, seconds)
    made = LocalCommunicator(ends, seconds)
    os.close(ends.file)
    return made


def _host(name: bytes, place: Place, seconds: float) -> Ends:
    """What rank 0 holds, when all others have theirs."""
    own, *others = ends_of(place.size)
    deadline = time.monotonic() + seconds
    waiting = {ends.rank: ends for ends in others}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            try:
                door.bind(name)
            except OSError as error:
                raise RankError(
                    f"this process is {place}, and another process is rank 0 of the same job: {error.strerror}",
                    span=None,
                    fix="give each job its own `MASTER_PORT`",
                ) from None
            door.listen(place.size)
            while waiting:
                door.settimeout(max(0.0, deadline - time.monotonic()) or 0.001)
                try:
                    caller, _ = door.accept()
                except TimeoutError:
                    listed = ", ".join(map(str, sorted(waiting)))
                    raise RankError(
                        f"of {place.size} ranks, {listed} did not come within {seconds:g} s, where rank 0 waits",
                        span=None,
                        fix="let all processes of the job ask for their rank; `TESSERA_RANK_SECONDS` is how long "
                        "they wait",
                    ) from None
                with caller:
                    _admit(caller, waiting, deadline)
    except BaseException:
        own.close()
        os.close(own.file)
        raise
    finally:
        for ends in waiting.values():
            ends.close()
    return own


def _admit(caller: socket.socket, waiting: dict[int, Ends], deadline: float) -> None:
    """Give a process what it holds as the rank that it says it is; nothing to one that is none of those awaited."""
    _, user, _ = struct.unpack("3i", caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if user != os.getuid():
        return
    caller.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        (rank,) = struct.unpack("<i", caller.recv(4))
        ends = waiting[rank]
        files = [ends.file, *(one.fileno() for one in ends.sockets if one is not None)]
        socket.send_fds(caller, [b"welcome"], files)
    except (OSError, struct.error, KeyError):
        return  # it has died, or is no rank that is missing: whom that leaves out is named when the time is over
    waiting.pop(rank).close()


def _visit(name: bytes, place: Place, seconds: float) -> Ends:
    """What any other rank holds: rank 0 has it."""
    deadline, last = time.monotonic() + seconds, "nobody is there"
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            try:
                door.connect(name)
                door.settimeout(max(0.001, deadline - time.monotonic()))
                door.send(struct.pack("<i", place.rank))
                said, files, _, _ = socket.recv_fds(door, 64, place.size)
            except OSError as error:
                last = error.strerror or "the time is over"
                time.sleep(_PAUSE)
                continue
        if said:
            file, *sockets = files
            found: list[socket.socket | None] = [socket.socket(fileno=one) for one in sockets]
            found.insert(place.rank, None)
            return Ends(place.rank, place.size, file, tuple(found))
        last = f"rank 0 awaits no rank {place.rank}, or has another in its place"
        time.sleep(_PAUSE)
    raise RankError(
        f"rank 0 did not come within {seconds:g} s, where rank {place.rank} of {place.size} waits: {last}",
        span=None,
        notes=(f"{place.launcher} says that their job is `{place.job}`",),
        fix="let all processes of the job ask for their rank; `TESSERA_RANK_SECONDS` is how long they wait",
    )
