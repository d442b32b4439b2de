"""A library with the functions of NCCL that notes every call, moves bytes of host memory, and checks what NCCL demands.

Its functions are C functions (made by ctypes), so that what is called is called as NCCL would be: structures by value,
pointers to results. Ranks are threads; a call that needs the others of its communicator waits for them.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from typing import Any

from tessera.runtime.devices.cuda.nccl import SIGNATURES

SYSTEM_ERROR, INVALID = 2, 4
WAIT = 20.0


class Fabric:
    """What ranks of a test share: communicators by identifier, and what has been posted in them."""

    def __init__(self) -> None:
        self.identifiers, self.handles = itertools.count(1), itertools.count(1000)
        self.lock = threading.Lock()
        self.meetings: dict[bytes, Meeting] = {}

    def meeting(self, identifier: bytes, size: int) -> Meeting:
        with self.lock:
            return self.meetings.setdefault(identifier, Meeting(size))


class Meeting:
    """The ranks of one communicator, call after call."""

    def __init__(self, size: int) -> None:
        self.size, self.posted = size, dict[int, Any]()
        self.arrived, self.left = threading.Barrier(size), threading.Barrier(size)

    def exchange(self, rank: int, posted: Any) -> dict[int, Any]:
        """What every rank posts in this call."""
        self.posted[rank] = posted
        self.arrived.wait(WAIT)
        found = dict(self.posted)
        self.left.wait(WAIT)
        return found


class Recorder:
    """The library as one rank loads it."""

    def __init__(self, fabric: Fabric, version: int = 23203) -> None:
        self.fabric, self.version = fabric, version
        self.calls: list[tuple[Any, ...]] = []
        self.comms: dict[int, tuple[Meeting, int]] = {}
        self.states: dict[int, list[int]] = {}
        self.group: list[tuple[Any, ...]] | None = None
        self.problems: list[str] = []
        self.is_alone = False  # posts, and waits for nobody
        for name, types in SIGNATURES.items():
            own = re.sub(r"(?<!^)([A-Z])", r"_\1", name.removeprefix("nccl")).lower()
            setattr(self, name, ctypes.CFUNCTYPE(ctypes.c_int, *types)(getattr(self, own)))
        self.text = ctypes.create_string_buffer(b"something is wrong")
        self.ncclGetErrorString = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(self.describe)

    def describe(self, code: int) -> int:
        return ctypes.addressof(self.text)

    def note(self, *call: Any) -> None:
        self.calls.append(call)

    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def get_version(self, version: Any) -> int:
        version[0] = self.version
        return 0

    def get_unique_id(self, found: Any) -> int:
        self.note("id")
        found[0].data = f"group {next(self.fabric.identifiers)}".encode()
        return 0

    def comm_init_rank_config(self, comm: Any, size: int, identifier: Any, rank: int, config: Any) -> int:
        given = config[0]
        if (given.size, given.magic, given.blocking) != (24, 0xCAFEBEEF, 0):
            self.problems.append("the configuration is not one")
        self.note("init", size, identifier.data, rank)
        handle = next(self.fabric.handles)
        self.comms[handle] = (self.fabric.meeting(identifier.data, size), rank)
        self.states.setdefault(handle, [7, 7])
        comm[0] = handle
        return 7

    def comm_get_async_error(self, comm: int, state: Any) -> int:
        waiting = self.states.get(comm, [])
        state[0] = waiting[0] if waiting and waiting[0] < 0 else waiting.pop(0) if waiting else 0
        if state[0] < 0:  # for ever
            state[0] = -state[0]
        return 0

    def comm_abort(self, comm: int) -> int:
        self.note("abort", comm)
        return 0

    def group_start(self) -> int:
        self.note("group start")
        self.group = []
        return 0

    def group_end(self) -> int:
        self.note("group end")
        posted, self.group = self.group or [], None
        if self.is_alone or not posted:
            return 0
        meeting, rank = self.comms[posted[0][4]]
        every = meeting.exchange(rank, posted)
        for kind, address, count, peer, _, _ in posted:
            if kind == "recv":
                sent = [one for one in every[peer] if one[0] == "send" and one[3] == rank]
                if [one[2] for one in sent] != [count]:
                    self.problems.append(f"rank {rank} expects {count} bytes of {peer}, which sends {sent}")
                    return INVALID
                ctypes.memmove(address, sent[0][1], count)
        meeting.arrived.wait(WAIT)
        return 0

    def send(self, address: int, count: int, dtype: int, peer: int, comm: int, stream: int | None) -> int:
        return self._post("send", address, count, dtype, peer, comm, stream)

    def recv(self, address: int, count: int, dtype: int, peer: int, comm: int, stream: int | None) -> int:
        return self._post("recv", address, count, dtype, peer, comm, stream)

    def _post(self, kind: str, address: int, count: int, dtype: int, peer: int, comm: int, stream: int | None) -> int:
        self.note(kind, count, dtype, peer, stream)
        if self.group is None:
            self.problems.append(f"`{kind}` outside of a group would wait by itself")
            return INVALID
        self.group.append((kind, address, count, peer, comm, stream))
        return 0

    def all_gather(self, source: int, target: int, count: int, dtype: int, comm: int, stream: int | None) -> int:
        self.note("all_gather", count, dtype, stream)
        if self.is_alone:
            return 0
        meeting, rank = self.comms[comm]
        every = meeting.exchange(rank, (source, count, dtype))
        if len({one[1:] for one in every.values()}) != 1:
            self.problems.append(f"ranks gather different things: {every}")
            return INVALID
        for at in range(meeting.size):
            ctypes.memmove(target + at * count, every[at][0], count)
        meeting.arrived.wait(WAIT)
        return 0
