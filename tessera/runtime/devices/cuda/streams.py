"""CUDA streams, events in them, and CUDA graphs: what a stream was given once, given again as one piece."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import NO_CONTEXT, driver, error_of
from tessera.runtime.devices.cuda.memory import POOL, FreeList
from tessera.runtime.timeline import WATCH, Bytes, Entry, HostWait, Launch, Signal, Wait, in_stream, notify

_NON_BLOCKING = 1
_UNTIMED = 2
_RELAXED = 2
_NOT_READY = 600
"""`CUDA_ERROR_NOT_READY` of cuda.h."""
_SET = 1
"""What comes next depends on what is named, and on nothing before."""


class _Current(threading.local):
    handle: int = 0
    capture: Graph | None = None


CURRENT = _Current()
"""The stream that this thread's calls go to, and the graph that they are captured in instead of run, if any."""


_HANDLES: dict[int, int] = {0: 0}
"""Each handle as one object, which native code knows it by."""


class _Seen(int):
    """A handle that no plan has, though it is the same number: calls take the checked path, which logs them."""


def handle_of(given: int) -> int:
    """A handle as native code knows it; another object of the same number while somebody watches the streams."""
    own = _HANDLES.setdefault(int(given), int(given))
    return own if WATCH.note is None else _Seen(own)


def current_stream() -> int:
    """The stream that this thread's calls go to; 0 is the default stream, torch's too."""
    return _HANDLES.get(CURRENT.handle, CURRENT.handle)


class Stream:
    """A CUDA stream: its work runs in order, beside the work of others."""

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        driver().call("cuStreamCreate", ctypes.byref(handle), _NON_BLOCKING)
        self.handle = handle.value or 0

    def synchronize(self) -> None:
        """Wait until all of it is done."""
        driver().call("cuStreamSynchronize", ctypes.c_void_p(self.handle))
        if WATCH.note is not None:
            WATCH.note(HostWait(self.handle))

    def wait(self, other: int | Stream = 0) -> None:
        """Let what comes next here begin after what is in another stream now."""
        wait_for(self.handle, other.handle if isinstance(other, Stream) else other)


_NAMED: dict[str, Stream] = {}


def stream_named(name: str) -> Stream:
    """The stream of a name, the same for everybody who asks for it."""
    found = _NAMED.get(name)
    return found if found is not None else _NAMED.setdefault(name, Stream())


def name_of(handle: Any) -> str:
    """What a stream is called: its name where it has one."""
    if isinstance(handle, tuple):
        return "a branch of a CUDA graph"
    names = (name for name, one in _NAMED.items() if one.handle == handle)
    return next(names, f"{handle:#x}" if handle else "the default stream")


_BRANCHES: dict[int, list[Stream]] = {}
"""By the stream that is captured: those that its programs use too. Each waits for them, so that programs can share."""
_SPARE: list[Stream] = []
"""Such streams of captures that have ended."""


def branch_streams(captured: int, count: int) -> list[int]:
    """The handles of so many streams beside one that is being captured."""
    found = _BRANCHES.setdefault(captured, [])
    while len(found) < count:
        found.append(_SPARE.pop() if _SPARE else Stream())
    return [side.handle for side in found[:count]]


class Event:
    """A mark in a stream; one that is not `timed` is cheaper, and only waited for."""

    def __init__(self, *, timed: bool = True) -> None:
        handle, cuda = ctypes.c_void_p(), driver()
        cuda.call("cuEventCreate", ctypes.byref(handle), 0 if timed else _UNTIMED)
        self.handle, self._library = handle.value or 0, cuda.library

    def record(self, stream: int | None = None) -> Event:
        """Put it into a stream, the current one unless given."""
        where = current_stream() if stream is None else stream
        driver().call("cuEventRecord", ctypes.c_void_p(self.handle), ctypes.c_void_p(where))
        if WATCH.note is not None:
            WATCH.note(Signal(self.handle, where))
        return self

    def synchronize(self) -> None:
        driver().call("cuEventSynchronize", ctypes.c_void_p(self.handle))
        if WATCH.note is not None:
            WATCH.note(HostWait(event=self.handle))

    @property
    def is_done(self) -> bool:
        """Whether the device has come by it."""
        code = self._library.cuEventQuery(ctypes.c_void_p(self.handle))
        if code not in (0, _NOT_READY):
            raise error_of(code, "cuEventQuery", self._library)
        return not code

    def milliseconds_since(self, earlier: Event) -> float:
        """Time on the device between two marks that it has come by."""
        self.synchronize()
        found = ctypes.c_float()
        driver().call(
            "cuEventElapsedTime", ctypes.byref(found), ctypes.c_void_p(earlier.handle), ctypes.c_void_p(self.handle)
        )
        return found.value

    def __del__(self) -> None:
        if getattr(self, "handle", 0):  # without a device there was never one
            self._library.cuEventDestroy_v2(ctypes.c_void_p(self.handle))


def wait_for(waiting: int, other: int) -> None:
    """Let what comes next in one stream begin after what is in another now."""
    event = Event(timed=False).record(other)
    driver().call("cuStreamWaitEvent", ctypes.c_void_p(waiting), ctypes.c_void_p(event.handle), 0)
    if WATCH.note is not None:
        WATCH.note(Wait(event.handle, waiting))


@contextmanager
def stream(which: Stream | int) -> Generator[None]:
    """Calls of this thread go to a stream."""
    before = CURRENT.handle
    given = which.handle if isinstance(which, Stream) else which
    if isinstance(given, bool) or not isinstance(given, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RuntimeArgumentError(f"`stream` takes a stream, got {which!r}", fix="write `with stream(Stream()):`")
    CURRENT.handle = handle_of(given)
    try:
        yield
    finally:
        CURRENT.handle = before


class Graph:
    """Calls captured by `capture`, to be replayed with the same tensors, whose elements may change in between.

    All memory that they access belongs to the graph as long as it lives: tensors are kept alive, and temporaries are
    not reused by others. It runs in the stream that `capture` was called in, as its results do.
    """

    def __init__(self) -> None:
        self._executable, self._graph = ctypes.c_void_p(), ctypes.c_void_p()
        self._held: list[Any] = []
        self._owners: list[object] = []
        self.is_capturing = False
        self._own: list[weakref.ref[Any]] = []
        self._made: list[Any] = []
        self._blocks: list[tuple[FreeList, int]] = []
        self._library: Any = driver().library
        self._launch: Any = self._library.cuGraphLaunch
        self._replay_stream = current_stream()
        self.entries: list[Entry] = []
        """The log of its capture, where somebody watched."""
        self._replay_handle = ctypes.c_void_p(self._replay_stream)
        self.stream = Stream()
        """The stream that is captured: the default stream cannot be."""

    def replay(self) -> None:
        """Run all of it, after what is in the current stream now and before what comes there next."""
        here, captured = CURRENT.handle, CURRENT.capture
        if captured is not None:
            captured.contain(self)
        elif here is self._replay_stream:
            # The one call of the driver that a replay costs where nobody has to wait for another stream, nor watches.
            code = self._launch(self._executable, self._replay_handle)
            if code:
                self._relaunch(code)
        else:
            self._replay_from(current_stream())

    def _replay_from(self, here: int) -> None:
        """Run it for another stream, or where somebody watches."""
        if here != self._replay_stream:
            wait_for(self._replay_stream, here)
        self._log_replay()
        driver().call("cuGraphLaunch", self._executable, self._replay_handle)
        if here != self._replay_stream:
            wait_for(here, self._replay_stream)

    def _log_replay(self) -> None:
        """Log what a replay runs: all that was captured, in the stream of replays in place of the captured one.

        Of what was captured while nobody watched, only the memory is known.
        """
        inside, outer = self.stream.handle, self._replay_stream
        if WATCH.note is None:
            return
        entries = [in_stream(entry, inside, outer) for entry in self.entries or self._whole_graph()]
        # Other streams were lent to the capture: in a replay its branches are its own.
        for side in {entry.stream for entry in entries} - {outer, None}:
            entries = [in_stream(entry, side, (id(self), side)) for entry in entries]
        notify(entries)

    def _whole_graph(self) -> list[Entry]:
        blocks = [(address, address + free_list.size) for free_list, address in self._blocks]
        return [Launch("a CUDA graph", self._replay_stream, _spans(self._held), (*_spans(self._made), *blocks))]

    def _relaunch(self, code: int) -> None:
        """Launch again in a thread that has no context yet; raise any other failure."""
        if code != NO_CONTEXT or not driver().enter():
            raise error_of(code, "cuGraphLaunch", self._library)
        driver().call("cuGraphLaunch", self._executable, self._replay_handle)

    def contain(self, other: Graph) -> None:
        """Make another graph a part of this one, which is being captured."""
        cuda, handle = driver(), ctypes.c_void_p(self.stream.handle)
        status, number, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_size_t()
        graph, before, node = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        answers = (ctypes.byref(one) for one in (status, number, graph, before, count))
        cuda.call("cuStreamGetCaptureInfo_v2", handle, *answers)
        cuda.call("cuGraphAddChildGraphNode", ctypes.byref(node), graph, before, count, other._graph)
        cuda.call("cuStreamUpdateCaptureDependencies", handle, ctypes.byref(node), ctypes.c_size_t(1), _SET)
        self._held.append(other)
        if WATCH.note is not None:
            self.entries += [in_stream(entry, other._replay_stream, self.stream.handle) for entry in other.entries]

    def hold(self, tensors: Sequence[Any]) -> None:
        """Keep tensors of a captured call; what was made inside may die inside, and its memory is used again there."""
        for tensor in tensors:
            if tensor.stream == self.stream.handle and not tensor.is_borrowed:
                self._own.append(weakref.ref(tensor))
            else:
                self._held.append(tensor)

    def keep(self, owner: object) -> None:
        """Keep what has memory that the graph may read, as long as it can be replayed."""
        self._owners.append(owner)

    def _take_blocks(self) -> None:
        """What was made inside and lives stays; memory of the rest is free now, and nobody else may have it.

        All of it belongs to the stream of the replays from now on.
        """
        for tensor in [tensor for one in self._own if (tensor := one()) is not None]:
            tensor.move(POOL.free_list(tensor.nbytes, self._replay_stream), self._replay_stream)
            self._held.append(tensor)
            self._made.append(tensor)
        self._own.clear()
        for free_list in POOL.free_lists(self.stream.handle):
            new = POOL.free_list(free_list.size, self._replay_stream)
            while free_list.free:
                self._blocks.append((new, free_list.free.pop()))

    @contextmanager
    def capturing(self) -> Generator[Graph]:
        if self._executable.value:
            raise DeviceError("a graph is captured once", fix="begin another with `capture`")
        cuda, handle = driver(), ctypes.c_void_p(self.stream.handle)
        wait_for(self.stream.handle, current_stream())
        self.stream.synchronize()
        with stream(self.stream):
            cuda.call("cuStreamBeginCapture_v2", handle, _RELAXED)
            CURRENT.capture, self.is_capturing = self, True
            try:
                yield self
            finally:
                CURRENT.capture, self.is_capturing = None, False
                code = cuda.library.cuStreamEndCapture(handle, ctypes.byref(self._graph))
                _SPARE.extend(_BRANCHES.pop(self.stream.handle, ()))
                self._take_blocks()
        cuda.check(code, "cuStreamEndCapture")
        cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, ctypes.c_ulonglong(0))
        # On the device before the first replay, which would wait for it.
        cuda.call("cuGraphUpload", self._executable, self._replay_handle)

    def __del__(self) -> None:
        if self._executable.value:
            # It may be running, and what it held goes back to free lists of streams that do not wait for it.
            self._library.cuStreamSynchronize(self._replay_handle)
            self._library.cuGraphExecDestroy(self._executable)
        if self._graph.value:
            self._library.cuGraphDestroy(self._graph)
        for free_list, address in self._blocks:
            free_list.free.append(address)


def _spans(held: Sequence[Any]) -> tuple[Bytes, ...]:
    """The bytes of tensors; what was donated, and what is no tensor, has none."""
    found: list[Bytes] = []
    for one in held:
        try:
            start: int = object.__getattribute__(one, "address")
        except AttributeError:
            continue
        found.append((start, start + one.nbytes))
    return tuple(found)


@contextmanager
def capture() -> Generator[Graph]:
    """Capture the calls of the block as a CUDA graph instead of running them.

    Call each function once before, so that nothing is compiled or copied to the device inside. A function whose
    control flow depends on values of the device cannot be captured.
    """
    with Graph().capturing() as graph:
        yield graph


# Streams beside that of a call, for programs that fill several, and the events between them.


class Words:
    """What an entry reads behind the first words of its table: handles of kernels and addresses of constants.

    After those comes what a program that offloads values needs, its pinned memory and a function, and then what one of
    several streams does: two functions, the other streams, its events.
    """

    def __init__(
        self, fixed: Sequence[int], streams: int = 1, events: int = 0, nothing: int = 0, *, offloads: bool = False
    ) -> None:
        """`nothing` is a function that does nothing, in place of the driver's where there is one stream."""
        self._fixed, self.streams, self._count, self._nothing = tuple(fixed), streams, events, nothing
        self._offloads = offloads
        self._events: dict[int, list[Event]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._fixed)

    def at(
        self, stream: int, address: Callable[[str], int], *, is_captured: bool = False, offloaded: int = 0
    ) -> list[int]:
        """All of them for a stream of calls; `address` gives functions of the driver.

        Launches have several streams where they are captured, as events cost the host more than they gain otherwise;
        and where values are offloaded, at `offloaded`, since copies over the link take long.
        """
        fixed = [*self._fixed, *((offloaded, address("cuMemcpyHtoDAsync_v2")) if self._offloads else ())]
        if self.streams == 1:
            return fixed
        if not is_captured and not self._offloads:
            return [*fixed, self._nothing, self._nothing, *[stream] * (self.streams - 1), *[0] * self._count]
        events = self._events.get(stream)
        if events is None:
            events = self._events[stream] = [Event(timed=False) for _ in range(self._count)]
        functions = [address(name) for name in ("cuEventRecord", "cuStreamWaitEvent")]
        branches = branch_streams(stream, self.streams - 1)
        return [*fixed, *functions, *branches, *(event.handle for event in events)]
