"""Graphs of one kernel each, which are told new arguments before they are played: a launch that costs the host less.

What is told holds for what is played next, and for nothing that a queue has not come to yet. A graph is not to be told
and played by two threads at a time, so each has a lock that native code looks at (`backends/nvptx/host_nodes.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tessera.runtime.devices.cuda_driver import driver

NODE = ("lock", "kernel", "graph", "node", "launch", "set", "play", "recorded")
"""Words of a record: whether somebody is at it, the kernel, its graph and node, and functions of the driver."""
_FUNCTIONS = ("cuLaunchKernel", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuStreamIsCapturing")
STRUCT = 8 * len(NODE)
"""Where a record has what the driver is told of a node: `CUDA_KERNEL_NODE_PARAMS`."""
GRID, PARAMETERS, _BYTES = 8, 40, 72
"""Where that has sizes of grid, block and shared memory, and the addresses of arguments; its bytes."""
_MOST_PARAMETERS, _MOST_BYTES = 4096, 4096
"""More arguments than a kernel may have, and more bytes than one of them has."""


class Node:
    """The graph of one kernel, for one queue; `record` is what native code is given in place of the kernel."""

    def __init__(self, kernel: int, threads: int, shared: int, stream: int) -> None:
        cuda: Any = driver()
        self._library, self._stream = cuda.library, stream
        self._graph, self._executable, node = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        # Arguments are told before each play; until then they are zeros, of whatever size.
        zeros = (ctypes.c_char * _MOST_BYTES)()
        parameters = (ctypes.c_void_p * _MOST_PARAMETERS)(*[ctypes.addressof(zeros)] * _MOST_PARAMETERS)
        told = (ctypes.c_char * _BYTES)()
        ctypes.c_void_p.from_buffer(told, 0).value = kernel
        (ctypes.c_uint32 * 7).from_buffer(told, GRID)[:] = (1, 1, 1, threads, 1, 1, shared)
        ctypes.c_void_p.from_buffer(told, PARAMETERS).value = ctypes.addressof(parameters)
        cuda.call("cuGraphCreate", ctypes.byref(self._graph), 0)
        nothing = ctypes.c_size_t(0)
        cuda.call("cuGraphAddKernelNode_v2", ctypes.byref(node), self._graph, None, nothing, ctypes.byref(told))
        cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph, ctypes.c_ulonglong(0))
        cuda.call("cuGraphUpload", self._executable, ctypes.c_void_p(stream))
        words = [0, kernel, self._executable.value or 0, node.value or 0, *map(cuda.address, _FUNCTIONS)]
        self.record = (ctypes.c_char * (STRUCT + _BYTES))()
        (ctypes.c_uint64 * len(NODE)).from_buffer(self.record)[:] = words
        self.record[STRUCT:] = told.raw

    @property
    def address(self) -> int:
        """Where its record is."""
        return ctypes.addressof(self.record)

    def __del__(self) -> None:
        if getattr(self, "record", None) is not None:  # it is whole
            self._library.cuStreamSynchronize(ctypes.c_void_p(self._stream))
            self._library.cuGraphExecDestroy(self._executable)
            self._library.cuGraphDestroy(self._graph)


class Told:
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
