"""Collectives between GPUs by NCCL, through its C interface: enqueued in streams, in the order of the host program.

NCCL moves bytes and nothing else, as every communicator does: reductions are kernels over what was gathered, so that
bits are those of any other engine. `all_gather` is its call of that name, `all_to_all` a group of sends and receives.

Each group of ranks has a communicator of NCCL's, made when it is first used. What NCCL cannot do, the communicator of
the hosts does: bring the identifier of a new group to its ranks, and agree on the name of an exchange before the first
of that name is enqueued, so that ranks whose programs differ raise before bytes move. Each name is compared once: where
ranks later come to exchanges that all of them know in different orders, nobody compares, and bytes of one may be taken
for those of another of the same size. Exchanges run in a stream of their own, which waits for the program's and is
waited for by it, so that kernels run beside them; all that can be captured.

A collective whose ranks do not all come spins on the device. A thread watches for that: where one has not ended within
the time limit, counted from when the device came to it, or where NCCL reports a failure, communicators are aborted, the
others are told, and the process ends with the error, since what its kernels have computed by then is nonsense.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from tessera.diagnostics.codes import DeviceError, RankError
from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.streams import CURRENT, Event, current_stream, stream_named, wait_for
from tessera.runtime.ranks import world
from tessera.runtime.ranks.world import Communicator, Exchange
from tessera.types.settings import rank_seconds

NAME, PACKAGE = "libnccl.so.2", "nvidia.nccl"
OLDEST = 21400
"""The version from which communicators can be made without blocking: 2.14."""

_SUCCESS, _IN_PROGRESS = 0, 7
_UINT8 = 1
"""`ncclUint8` of nccl.h: everything goes as bytes."""
_PAUSE = 0.05  # seconds between looks at what is under way


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`: what all ranks of a new group must know, and one of them makes."""

    _fields_ = [("data", ctypes.c_char * 128)]


class _Config(ctypes.Structure):
    """`ncclConfig_t` as of 2.14, which later versions take: it says its own size and version."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_INT),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRankConfig": (ctypes.POINTER(_POINTER), _INT, UniqueId, _INT, ctypes.POINTER(_Config)),
    "ncclCommGetAsyncError": (_POINTER, ctypes.POINTER(_INT)),
    "ncclCommAbort": (_POINTER,),
    "ncclAllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "ncclSend": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclRecv": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}
"""The functions that are called, with the types of what they take."""


class Library:
    """The functions of libnccl, every call checked."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded
        for name, types in SIGNATURES.items():
            function = getattr(loaded, name, None)
            if function is None:
                raise DeviceError(
                    f"this NCCL has no `{name}`", fix="install a newer one: `pip install nvidia-nccl-cu13`"
                )
            function.argtypes, function.restype = types, _INT
        loaded.ncclGetErrorString.restype, loaded.ncclGetErrorString.argtypes = ctypes.c_char_p, (_INT,)
        version = _INT()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        if self.version < OLDEST:
            raise DeviceError(
                f"NCCL is of version {self.version}, and {OLDEST} is the oldest that can be used",
                fix="install a newer one: `pip install nvidia-nccl-cu13`",
            )

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function; what it answers is success, or that it goes on."""
        code: int = getattr(self._loaded, name)(*arguments)
        if code not in (_SUCCESS, _IN_PROGRESS):
            raise DeviceError(f"`{name}` failed: {self.describe(code)}", span=None)
        return code

    def describe(self, code: int) -> str:
        """What a number means."""
        text = self._loaded.ncclGetErrorString(code)
        return f"{text.decode() if text else 'unknown'} ({code})"

    def state(self, comm: int) -> int:
        """How a communicator is: well, under way, or failed."""
        code = _INT()
        self.call("ncclCommGetAsyncError", comm, ctypes.byref(code))
        return code.value


@cache
def library() -> Library:
    """NCCL of the system, or of its wheel; raises DeviceError (T0720) where there is none."""
    folders = ["", *(os.path.join(one, "lib") for one in _package_folders())]
    reasons: list[str] = []
    for folder in folders:
        try:
            return Library(ctypes.CDLL(os.path.join(folder, NAME)))
        except OSError as error:
            reasons.append(str(error))
    raise DeviceError(
        f"ranks with GPUs communicate by NCCL, which is not here: {reasons[0]}",
        fix="`pip install nvidia-nccl-cu13`, or compile for the CPU",
    )


def _package_folders() -> list[str]:
    try:
        found = find_spec(PACKAGE)
    except ModuleNotFoundError:
        return []
    return [] if found is None else list(found.submodule_search_locations or ())


@dataclass
class _Enqueued:
    """An exchange in a stream: marks before and behind it, and when the device was first seen to be at it."""

    before: Event
    behind: Event
    exchange: Exchange
    since: float | None = None

    def has_waited(self, seconds: float) -> bool:
        """Whether the device is at it for longer; kernels that are enqueued before it take their own time."""
        if self.since is None and self.before.is_done:
            self.since = time.monotonic()
        return self.since is not None and time.monotonic() - self.since > seconds


class NcclRanks:
    """The groups of this rank, and what is under way in them; `host` reaches the ranks of its world from the host."""

    def __init__(self, nccl: Library, host: Communicator | None, seconds: float) -> None:
        self._nccl, self._host, self._seconds = nccl, host, seconds
        self._groups: dict[tuple[int, ...], int] = {}
        self._agreed: set[tuple[tuple[int, ...], str]] = set()
        self._under_way: list[_Enqueued] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.failure: RankError | None = None

    @property
    def rank(self) -> int:
        return 0 if self._host is None else self._host.rank

    # ---- Groups.

    def group(self, ranks: Sequence[int]) -> int:
        """NCCL's communicator of a group, made by all of its ranks together."""
        key = tuple(ranks)
        if key not in self._groups:
            if CURRENT.capture is not None:
                raise DeviceError(
                    f"ranks {list(key)} communicate for the first time, which cannot be captured",
                    fix="call the program once before it is captured",
                )
            self._groups[key] = self._connect(key)
        return self._groups[key]

    def _connect(self, ranks: tuple[int, ...]) -> int:
        own, listed = UniqueId(), ", ".join(map(str, ranks))
        if self.rank == ranks[0]:
            self._nccl.call("ncclGetUniqueId", ctypes.byref(own))
        every = (UniqueId * len(ranks))(own)
        self._tell(ranks, own, every, f"the NCCL communicator of ranks {listed}")
        comm = _POINTER()
        config = _Config(ctypes.sizeof(_Config), 0xCAFEBEEF, OLDEST, 0)
        place = ranks.index(self.rank)
        given = (ctypes.byref(comm), len(ranks), every[0], place, ctypes.byref(config))
        self._nccl.call("ncclCommInitRankConfig", *given)
        self._await(comm.value or 0, f"ranks {listed} to connect by NCCL")
        return comm.value or 0

    def _tell(self, ranks: tuple[int, ...], source: Any, target: Any, what: str) -> None:
        """An exchange between the hosts of a group; one that is alone has nobody to tell."""
        if self._host is not None and len(ranks) > 1:
            at = (ctypes.addressof(source), ctypes.addressof(target))
            self._host.wait(self._host.start(Exchange("all_gather", ranks, *at, ctypes.sizeof(source), what)))

    def _await(self, comm: int, what: str) -> None:
        """Until a communicator is no longer under way, or the time is over."""
        deadline = time.monotonic() + self._seconds
        while (state := self._nccl.state(comm)) == _IN_PROGRESS:
            if time.monotonic() > deadline:
                raise self._abort(comm, f"rank {self.rank} waited {self._seconds:g} s for {what}")
            time.sleep(0.0005)
        if state != _SUCCESS:
            raise self._abort(comm, f"rank {self.rank} waited for {what}: {self._nccl.describe(state)}")

    def _abort(self, comm: int, message: str) -> RankError:
        """Abort a communicator, which nobody finds any more by then; the error, which all that follows raises too."""
        self.failure = self.failure or RankError(message, span=None)
        with self._lock:  # whoever asks for its state has done so
            self._groups = {key: own for key, own in self._groups.items() if own != comm}
            self._nccl.call("ncclCommAbort", comm)
        return self.failure

    # ---- Exchanges.

    def enqueue(self, exchange: Exchange, stream: int) -> None:
        """Put an exchange of memory of the device into a stream."""
        if self.failure is not None:
            raise self.failure
        comm, key = self.group(exchange.group), (tuple(exchange.group), exchange.what)
        if key not in self._agreed:
            # The hosts compare the names of their exchange, and raise where they differ; nothing else is sent.
            own, every = ctypes.c_uint64(), (ctypes.c_uint64 * len(exchange.group))()
            self._tell(key[0], own, every, exchange.what)
            self._agreed.add(key)
        if not exchange.bytes:
            return
        before = None if CURRENT.capture is not None else Event(timed=False).record(stream)
        if exchange.call == "all_gather":
            given = (exchange.source, exchange.target, exchange.bytes, _UINT8, comm, stream)
            self._nccl.call("ncclAllGather", *given)
        else:
            self._swap(exchange, comm, stream)
        self._await(comm, exchange.what)
        if before is not None:
            self._watch_later(_Enqueued(before, Event(timed=False).record(stream), exchange))

    def _swap(self, exchange: Exchange, comm: int, stream: int) -> None:
        """A part to each rank and a part from each, as one group: NCCL would wait for the first by itself otherwise."""
        part = exchange.bytes
        self._nccl.call("ncclGroupStart")
        try:
            for at in range(len(exchange.group)):
                self._nccl.call("ncclSend", exchange.source + at * part, part, _UINT8, at, comm, stream)
                self._nccl.call("ncclRecv", exchange.target + at * part, part, _UINT8, at, comm, stream)
        finally:
            self._nccl.call("ncclGroupEnd")

    # ---- What goes wrong on the device.

    def _watch_later(self, enqueued: _Enqueued) -> None:
        with self._lock:
            self._under_way.append(enqueued)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="tessera-nccl", daemon=True)
                self._thread.start()

    def find_failure(self) -> RankError | None:
        """What has gone wrong with the exchanges that are under way; those that are done are forgotten."""
        with self._lock:
            self._under_way = [one for one in self._under_way if not one.behind.is_done]
            for one in self._under_way:
                comm = self._groups.get(tuple(one.exchange.group))
                if comm is None:
                    continue  # it was aborted, and whoever did it raises
                error = self._problem(one, self._nccl.state(comm))
                if error is not None:
                    return error
        return None

    def _problem(self, one: _Enqueued, state: int) -> RankError | None:
        """What is wrong with an exchange whose communicator is in a state."""
        exchange = one.exchange
        if state not in (_SUCCESS, _IN_PROGRESS):
            return RankError(
                f"{exchange.what} failed on rank {self.rank}: {self._nccl.describe(state)}",
                span=None,
                notes=(f"its group is {list(exchange.group)}",),
            )
        if one.has_waited(self._seconds):
            return RankError(
                f"not all of ranks {list(exchange.group)} came to {exchange.what} within {self._seconds:g} s, "
                f"where the GPU of rank {self.rank} waits",
                span=None,
                fix="let all ranks of an axis call the same programs; `TESSERA_RANK_SECONDS` is how long they wait",
            )
        return None

    def fail(self, error: RankError) -> None:
        """Let kernels of NCCL end, and the others know."""
        self.failure = error
        with self._lock:
            aborted, self._groups = self._groups, {}  # nobody finds them any more
            for comm in aborted.values():
                self._nccl.call("ncclCommAbort", comm)
        if self._host is not None:
            self._host.abandon(error.message)

    def _watch(self) -> None:
        driver().enter()
        while True:
            error = self.find_failure()
            if error is not None:
                sys.stderr.write(f"{error}\n")
                sys.stderr.flush()
                self.fail(error)
                os._exit(1)  # whoever waits for the device would get what an aborted kernel left
            time.sleep(_PAUSE)


_RANKS: list[NcclRanks] = []


def ranks_here() -> NcclRanks:
    """The groups of this process, which every program shares."""
    if not _RANKS:
        _RANKS.append(NcclRanks(library(), world.current(), rank_seconds()))
    return _RANKS[0]


STREAM = "tessera.collectives"
"""The stream that exchanges run in, beside the kernels of programs."""


class DeviceExchanges(threading.local):
    """The collectives of a program for a GPU, in each thread that runs it: marks in streams, nothing to wait for."""

    def __init__(self, find: Callable[[], NcclRanks] = ranks_here) -> None:
        self._find = find
        self.in_flight: dict[int, int] = {}

    def start(self, number: int, text: str, source: int, target: int, shape: Sequence[int], dtype: str) -> None:
        """Enqueue a collective behind what the program has enqueued so far."""
        exchange = world.exchange_of(text, source, target, shape, dtype)
        own = stream_named(STREAM).handle
        wait_for(own, current_stream())
        self._find().enqueue(exchange, own)
        self.in_flight[number] = own

    def wait(self, number: int) -> None:
        """Let what the program enqueues from now on begin after a collective."""
        wait_for(current_stream(), self.in_flight.pop(number))

    def abandon(self) -> None:
        """The program ends before its end: its memory is freed in the order of its stream, after all of them."""
        for own in set(self.in_flight.values()):
            wait_for(current_stream(), own)
        self.in_flight.clear()
