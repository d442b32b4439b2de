"""CUDA graphs that make calls cheaper for the host: of one kernel each, and of all launches of a call."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import NO_CONTEXT, driver, error_of
from tessera.runtime.devices.cuda.memory import POOL, FreeList
from tessera.runtime.timeline import WATCH, Bytes, Entry, HostWait, Launch, Signal, Wait, notify

# CUDA streams, events in them, and CUDA graphs: what a stream was given once, given again as one piece.

_NON_BLOCKING = 1
_UNTIMED = 2
_RELAXED = 2
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


def named(name: str) -> Stream:
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
        entries = [entry.moved(inside, outer) for entry in self.entries or self._touched()]
        # Other streams were lent to the capture: in a replay its branches are its own.
        for side in {entry.stream for entry in entries} - {outer, None}:
            entries = [entry.moved(side, (id(self), side)) for entry in entries]
        notify(entries)

    def _touched(self) -> list[Entry]:
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
            self.entries += [entry.moved(other._replay_stream, self.stream.handle) for entry in other.entries]

    def hold(self, tensors: Sequence[Any]) -> None:
        """Keep tensors of a captured call; what was made inside may die inside, and its memory is used again there."""
        for tensor in tensors:
            if tensor.stream == self.stream.handle:
                self._own.append(weakref.ref(tensor))
            else:
                self._held.append(tensor)

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
            CURRENT.capture = self
            try:
                yield self
            finally:
                CURRENT.capture = None
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

    After those comes what a program of several streams needs: two functions, the other streams, its events.
    """

    def __init__(self, fixed: Sequence[int], streams: int = 1, events: int = 0, nothing: int = 0) -> None:
        """`nothing` is a function that does nothing, in place of the driver's where there is one stream."""
        self._fixed, self.streams, self._count, self._nothing = tuple(fixed), streams, events, nothing
        self._events: dict[int, list[Event]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._fixed)

    def at(self, stream: int, address: Callable[[str], int], *, is_captured: bool = False) -> list[int]:
        """All of them for a stream of calls; `address` gives functions of the driver."""
        if self.streams == 1:
            return list(self._fixed)
        if not is_captured:
            return [*self._fixed, self._nothing, self._nothing, *[stream] * (self.streams - 1), *[0] * self._count]
        events = self._events.get(stream)
        if events is None:
            events = self._events[stream] = [Event(timed=False) for _ in range(self._count)]
        functions = [address(name) for name in ("cuEventRecord", "cuStreamWaitEvent")]
        branches = branch_streams(stream, self.streams - 1)
        return [*self._fixed, *functions, *branches, *(event.handle for event in events)]


# Graphs of one kernel each, which get new arguments before each replay: a launch that costs the host less.

NODE = ("lock", "kernel", "graph", "node", "launch", "set", "play", "recorded")
"""Words of a record: whether somebody is at it, the kernel, its graph and node, and functions of the driver."""
_FUNCTIONS = ("cuLaunchKernel", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuStreamIsCapturing")
STRUCT = 8 * len(NODE)
"""The offset in a record of what the driver reads of a node: `CUDA_KERNEL_NODE_PARAMS`."""
GRID, PARAMETERS, _BYTES = 8, 40, 72
"""Where that has sizes of grid, block and shared memory, and the addresses of arguments; its bytes."""
_MOST_PARAMETERS, _MOST_BYTES = 4096, 4096
"""More arguments than a kernel may have, and more bytes than one of them has."""


class Node:
    """The graph of one kernel, for one stream; `record` is what native code is given in place of the kernel."""

    def __init__(self, kernel: int, threads: int, shared: int, stream: int) -> None:
        cuda: Any = driver()
        self._library, self._stream = cuda.library, stream
        self._graph, self._executable, node = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        # Arguments are set before each replay; until then they are zeros, of whatever size.
        zeros = (ctypes.c_char * _MOST_BYTES)()
        parameters = (ctypes.c_void_p * _MOST_PARAMETERS)(*[ctypes.addressof(zeros)] * _MOST_PARAMETERS)
        described = (ctypes.c_char * _BYTES)()
        ctypes.c_void_p.from_buffer(described, 0).value = kernel
        (ctypes.c_uint32 * 7).from_buffer(described, GRID)[:] = (1, 1, 1, threads, 1, 1, shared)
        ctypes.c_void_p.from_buffer(described, PARAMETERS).value = ctypes.addressof(parameters)
        cuda.call("cuGraphCreate", ctypes.byref(self._graph), 0)
        nothing = ctypes.c_size_t(0)
        cuda.call("cuGraphAddKernelNode_v2", ctypes.byref(node), self._graph, None, nothing, ctypes.byref(described))
        cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, ctypes.c_ulonglong(0))
        cuda.call("cuGraphUpload", self._executable, ctypes.c_void_p(stream))
        words = [0, kernel, self._executable.value or 0, node.value or 0, *map(cuda.address, _FUNCTIONS)]
        self.record = (ctypes.c_char * (STRUCT + _BYTES))()
        (ctypes.c_uint64 * len(NODE)).from_buffer(self.record)[:] = words
        self.record[STRUCT:] = described.raw

    @property
    def address(self) -> int:
        """Where its record is."""
        return ctypes.addressof(self.record)

    def __del__(self) -> None:
        if getattr(self, "record", None) is not None:  # it is whole
            self._library.cuStreamSynchronize(ctypes.c_void_p(self._stream))
            self._library.cuGraphExecDestroy(self._executable)
            self._library.cuGraphDestroy(self._graph)


class NodeTable:
    """The table of an entry whose kernels are launched by way of nodes, and the nodes."""

    def __init__(
        self, state: Any, launch: tuple[int, int], kernels: Sequence[tuple[int, int, int]], first: int
    ) -> None:
        """`state` is a table for launches; `launch` says which word of it is to be what function.

        `kernels` are handles, threads and bytes of shared memory; from the word `first` on nodes take their place.
        """
        stream = state[0] or 0
        self._nodes = [Node(*kernel, stream) for kernel in kernels]
        self.state = type(state)(*state)
        at, function = launch
        self.state[at] = function
        for number, node in enumerate(self._nodes):
            self.state[first + number] = node.address


# All launches of a call with the same addresses as before, as one CUDA graph: it costs the host less than one launch.

HEAD = ("launch", "recorded", "busy", "missed", "plain", "next", "wanted", "maker")
"""Words of a table: functions of the driver that replay a graph and say whether a stream is being captured; threads
that replay a graph, calls that found no entry since one did, calls that were launched, the entry that is taken next,
which one Python is asked to capture, and what it is asked by."""
ENTRY = ("graph", "count")
"""Words of an entry before its addresses: its graph, once there is one, and how often it was seen."""
ENTRIES = 8
"""Calls that are distinguished: a loop that keeps results for some iterations uses a few blocks of memory."""
CAPTURE_AFTER = 4
"""Calls with the same addresses before they are captured, which costs as much as a dozen launches."""
RELEASE_AFTER = 1000
"""Calls in a row that find no graph and no free entry, before all graphs are let go."""
NODES_AFTER = 24
"""Calls that are launched, and not replayed, before launches are made cheaper by graphs of one kernel each."""
RELEASE, NODES = 0, 1
"""What is asked for when all graphs may go, and when launches are to be cheaper."""
MOST = 512
"""Graphs of a process: each takes some 100 KB on the device."""

_NOT_CAPTURING = 0


class Replays:
    """The table of one plan, in memory that native code reads and writes while its thread has Python.

    `run` puts launches for the given addresses into a stream (its handle comes last), and returns the driver's error.
    """

    def __init__(self, count: int, stream: int, run: Callable[[list[int], int], int]) -> None:
        self._cuda: Any = driver()
        self._count, self._stream, self._run = count, stream, run
        self._ask = _asker(weakref.ref(self))
        self.words = (ctypes.c_int64 * (len(HEAD) + ENTRIES * (len(ENTRY) + count)))()
        self.words[HEAD.index("launch")] = self._cuda.address("cuGraphLaunch")
        self.words[HEAD.index("recorded")] = self._cuda.address("cuStreamIsCapturing")
        self.words[HEAD.index("maker")] = id(self._ask)
        self.use_nodes: Callable[[], None] | None = None
        """What makes launches cheaper."""
        self.is_off = False
        """Whether a capture failed: the program waits for the device, or the driver has no memory for it."""

    @property
    def graphs(self) -> list[int]:
        """The graph of each entry that was captured."""
        starts = range(len(HEAD), len(self.words), len(ENTRY) + self._count)
        return [self.words[start] for start in starts if self.words[start]]

    def answer(self) -> None:
        """Called by native code: record what it wants, or let all go."""
        wanted = self.words[HEAD.index("wanted")]
        if wanted == RELEASE:
            self._release()
        elif wanted == NODES:
            if self.use_nodes is not None and len(_MADE) < MOST:
                with _relaxed(self._cuda):
                    self.use_nodes()
        elif not self.is_off and len(_MADE) < MOST:
            start = (wanted - ctypes.addressof(self.words)) // ctypes.sizeof(ctypes.c_int64)
            addresses = self.words[start + len(ENTRY) : start + len(ENTRY) + self._count]
            graph = _recorded(self._cuda, self._stream, self._run, addresses)
            self.words[start + ENTRY.index("count")] = 0  # as long as there is none, it is asked for again
            if addresses == self.words[start + len(ENTRY) : start + len(ENTRY) + self._count]:
                self.words[start], self.is_off = graph or 0, graph == 0
                _MADE.update([graph] if graph else [])

    def _release(self) -> None:
        """Forget all graphs, unless another thread is about to replay one."""
        self.words[HEAD.index("missed")] = 0
        if not self.words[HEAD.index("busy")]:
            self._destroy()
            ctypes.memset(ctypes.addressof(self.words) + 8 * len(HEAD), 0, ctypes.sizeof(self.words) - 8 * len(HEAD))

    def _destroy(self) -> None:
        library, graphs = self._cuda.library, self.graphs
        if graphs:
            library.cuStreamSynchronize(ctypes.c_void_p(self._stream))
        _MADE.difference_update(graphs)
        for graph in graphs:
            library.cuGraphExecDestroy(ctypes.c_void_p(graph))

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Without a device there were never words; at the end of the process the driver lets all go itself.
        if hasattr(self, "words") and not is_ending():
            self._destroy()


def _asker(table: weakref.ref[Replays]) -> Callable[[], None]:
    """What native code asks by, without holding on to the table that it is a part of."""

    def ask() -> None:
        found = table()
        if found is not None:
            found.answer()

    return ask


_MADE: set[int] = set()
"""All graphs that there are."""
_LOCK = threading.Lock()
_ASIDE: list[Stream] = []
"""The stream that is captured, once there is one; whoever holds the lock has it."""


def _recorded(cuda: Any, stream: int, run: Callable[[list[int], int], int], addresses: list[int]) -> int | None:
    """A graph of what `run` does for these addresses, ready to be replayed in a stream.

    It is 0 where there cannot be one, and None where there cannot be one now.
    """
    library = cuda.library
    state = ctypes.c_int()
    # What somebody else records now would have these calls in it.
    if library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(state)) or state.value != _NOT_CAPTURING:
        return None
    with _relaxed(cuda), _LOCK:
        if not _ASIDE:
            _ASIDE.append(Stream())
        return graph_of(library, _ASIDE[0].handle, stream, run, addresses)


@contextmanager
def _relaxed(cuda: Any) -> Generator[None]:
    """Inside it a thread may make graphs, whatever other streams are being captured."""
    mode = ctypes.c_int(_RELAXED)
    cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def graph_of(library: Any, aside: int, stream: int, run: Callable[[list[int], int], int], addresses: list[int]) -> int:
    """Capture in the stream `aside` what `run` puts there; 0 where that, or making a graph of it, fails."""
    graph, executable, handle = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(aside)
    if library.cuStreamBeginCapture_v2(handle, _RELAXED):
        return 0
    try:
        code = run(addresses, aside)
    finally:
        ended = library.cuStreamEndCapture(handle, ctypes.byref(graph))
    code = code or ended
    if not code:
        code = library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    if graph.value:
        library.cuGraphDestroy(graph)
    if code:
        return 0
    # On the device before it is replayed for the first time, which would wait for it.
    library.cuGraphUpload(executable, ctypes.c_void_p(stream))
    return executable.value or 0
