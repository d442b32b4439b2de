"""CUDA graphs that make calls cheaper for the host: of one kernel each, and of all launches of a call."""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.streams import Stream

# Graphs of one kernel each, which get new arguments before each replay: a launch that costs the host less. Measured
# on the host of an H200 (`benchmarks/results/gpu-launch.json`): 3.0 us for `cuLaunchKernel` of an empty kernel, 1.4 us
# for a graph with it, and 0.4 us more for new arguments.

NODE = ("lock", "kernel", "graph", "node", "launch", "set", "replay", "is_capturing")
"""Words of a record: whether somebody is at it, the kernel, its graph and node, and functions of the driver."""
_FUNCTIONS = ("cuLaunchKernel", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuStreamIsCapturing")
STRUCT = 8 * len(NODE)
"""The offset in a record of what the driver reads of a node: `CUDA_KERNEL_NODE_PARAMS`."""
GRID, PARAMETERS, _BYTES = 8, 40, 72
"""Where that has sizes of grid, block and shared memory, and the addresses of arguments; its bytes."""
_MOST_PARAMETERS, _MOST_BYTES = 4096, 4096
"""More arguments than a kernel may have, and more bytes than one of them has."""


_CLUSTER = 8
"""Blocks of the largest cluster that every GPU with clusters has."""


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
        # The driver refuses a grid that is no multiple of the kernel's clusters, which have at most eight blocks.
        (ctypes.c_uint32 * 7).from_buffer(described, GRID)[:] = (_CLUSTER, 1, 1, threads, 1, 1, shared)
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

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # It is whole, and the process goes on: at its end the driver lets all go itself.
        if getattr(self, "record", None) is not None and not is_ending():
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
# Measured on an H200 with a decode step of 36 kernels (`benchmarks/results/gpu-replay.json`): 13.5 us for the call as
# one graph, 163 us kernel by kernel.

HEAD = ("launch", "is_capturing", "busy", "missed", "plain", "next", "wanted", "maker")
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
_RELAXED = 2
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
        self.words[HEAD.index("is_capturing")] = self._cuda.address("cuStreamIsCapturing")
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
                with _relax_capture(self._cuda):
                    self.use_nodes()
        elif not self.is_off and len(_MADE) < MOST:
            start = (wanted - ctypes.addressof(self.words)) // ctypes.sizeof(ctypes.c_int64)
            addresses = self.words[start + len(ENTRY) : start + len(ENTRY) + self._count]
            graph = _capture(self._cuda, self._stream, self._run, addresses)
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


def _capture(cuda: Any, stream: int, run: Callable[[list[int], int], int], addresses: list[int]) -> int | None:
    """A graph of what `run` does for these addresses, ready to be replayed in a stream.

    It is 0 where there cannot be one, and None where there cannot be one now.
    """
    library = cuda.library
    state = ctypes.c_int()
    # What somebody else records now would have these calls in it.
    if library.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(state)) or state.value != _NOT_CAPTURING:
        return None
    with _relax_capture(cuda), _LOCK:
        if not _ASIDE:
            _ASIDE.append(Stream())
        return graph_of(library, _ASIDE[0].handle, stream, run, addresses)


@contextmanager
def _relax_capture(cuda: Any) -> Generator[None]:
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
