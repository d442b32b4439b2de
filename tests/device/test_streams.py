"""Streams on the device: work of two goes on at the same time, by name or not, and who needs a result waits for it."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_timeline import Span, Timeline, library
from tessera import dist, graph, op
from tessera.runtime.devices.cuda.driver import Module, driver, is_available
from tessera.runtime.devices.cuda.streams import current_stream

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

SPIN = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 watched, .param .u64 seen, .param .u32 wanted, .param .u64 limit)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [watched];
    ld.param.u64 %d1, [seen];
    ld.param.u32 %r0, [wanted];
    ld.param.u64 %d2, [limit];
    mov.u64 %d3, %globaltimer;
AGAIN:
    ld.relaxed.sys.global.u32 %r1, [%d0];
    setp.eq.u32 %p0, %r1, %r0;
    @%p0 bra DONE;
    mov.u64 %d4, %globaltimer;
    sub.u64 %d5, %d4, %d3;
    setp.lt.u64 %p1, %d5, %d2;
    @%p1 bra AGAIN;
DONE:
    st.global.u32 [%d1], %r1;
    ret;
}
"""
"""A thread that looks at a word until it has a value, or so many nanoseconds are over, and writes what it saw last."""
THREE = 0x40400000
"""The bits of 3.0 in f32."""


def spin(watched: int, seen: int, limit: int) -> Module:
    """Put the thread into the current stream."""
    module = Module(SPIN)
    values = (
        ctypes.c_uint64(watched),
        ctypes.c_uint64(seen),
        ctypes.c_uint32(THREE),
        ctypes.c_uint64(limit),
    )
    given = (ctypes.c_void_p * 4)(*[ctypes.addressof(value) for value in values])
    handle = ctypes.c_void_p(module.function("spin"))
    stream = ctypes.c_void_p(current_stream())
    driver().call("cuLaunchKernel", handle, 1, 1, 1, 1, 1, 1, 0, stream, given, None)
    return module


def grown(a: Any) -> Any:
    return a + 1.0


def summed(x: Any) -> Any:
    return dist.all_reduce(x, axis="dp")


@pytest.mark.parametrize("others", [True, False], ids=["two streams", "one stream"])
def test_a_kernel_sees_what_a_kernel_of_another_stream_writes_meanwhile(others: bool) -> None:
    """In one stream the second would begin after the first, which waits for it in vain."""
    function = ts.jit(grown, backend="cuda")
    waiting = graph.stream("waiting") if others else graph.stream("working")
    with graph.stream("working"):
        x = ts.cuda.array(np.full(64, 2.0, np.float32))
        seen = ts.cuda.array(np.zeros(1, np.float32))
        y = function(x)
        ts.cuda.write(y, np.zeros(64, np.float32))
        watched = y.address
        del y  # the next result is there
    with waiting:
        module = spin(watched, seen.address, 2_000_000_000 if others else 20_000_000)
    with graph.stream("working"):
        y = function(x)
    ts.cuda.synchronize()
    assert y.address == watched
    assert y.tolist() == [3.0] * 64
    assert seen.tolist() == ([3.0] if others else [0.0])
    assert module.handle.value


LENGTH = 1 << 24
"""Elements that keep the GPU busy for longer than it takes to launch the next call."""


def running(x: Any) -> Any:
    return ts.ops.cumsum(x, axis=1)


def both(first: str, second: str) -> list[Span]:
    """The kernels of two calls, each in a stream."""
    function = ts.jit(running, backend="cuda")
    given: list[Any] = []
    for name in (first, second):
        with graph.stream(name):
            given.append(ts.cuda.array(np.ones((4, LENGTH), np.float32)))
            function(given[-1])
    with Timeline() as timeline:
        timeline.cut()
        made: list[Any] = []
        for name, x in zip((first, second), given, strict=True):
            with graph.stream(name):
                made.append(function(x))
        found = timeline.cut().kernels
    assert all(float(one.numpy()[3, -1]) == LENGTH for one in made)
    return found


@pytest.mark.skipif(library() is None, reason="there is no CUPTI here")
def test_two_streams_overlap_in_the_timeline() -> None:
    together = both("compute", "comm")
    streams = {kernel.stream for kernel in together}
    assert len(streams) == 2
    first, second = ([kernel for kernel in together if kernel.stream == stream] for stream in sorted(streams))
    assert sum(one.overlap(other) for one in first for other in second) > 0
    alone = both("compute", "compute")
    assert len({kernel.stream for kernel in alone}) == 1
    ordered = sorted(alone, key=lambda kernel: kernel.start)
    assert all(one.end <= other.start for one, other in itertools.pairwise(ordered))


def test_dots_and_collectives_in_streams_of_their_own() -> None:
    """Each call waits for the tensors that it takes, and for nothing else."""
    multiply = ts.jit(op.matmul, backend="cuda")
    reduce = ts.jit(summed, backend="cuda")
    rng = np.random.default_rng(5)
    a, b = (ts.cuda.array(rng.standard_normal((512, 512)).astype(np.float32)) for _ in range(2))
    expected = np.asarray(multiply(a, b))
    with dist.mesh(dp=1):
        for _ in range(10):
            with graph.stream("compute"):
                out = multiply(a, b)
            with graph.stream("comm"):
                out = reduce(out)
            np.testing.assert_array_equal(np.asarray(out), expected)


def test_a_program_names_its_streams() -> None:
    @ts.jit(backend="cuda")
    def step(a: Any, b: Any) -> Any:
        with graph.stream("compute"):
            out = op.matmul(a, b)
        with graph.stream("comm"):
            return dist.all_reduce(out, axis="dp")

    a = np.eye(64, dtype=np.float32) * 3.0
    with dist.mesh(dp=1):
        np.testing.assert_array_equal(np.asarray(step(a, a)), a @ a)
