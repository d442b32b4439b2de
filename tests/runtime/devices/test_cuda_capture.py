"""Recordings with a driver that does nothing: what a graph holds, and what it gives back when it goes."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest

from tessera.diagnostics.codes import DeviceError
from tessera.runtime.devices.cuda import memory as cuda_memory
from tessera.runtime.devices.cuda import program as cuda_program
from tessera.runtime.devices.cuda import streams as cuda_stream
from tessera.runtime.devices.cuda.memory import Pool
from tessera.runtime.devices.cuda.program import CudaProgram, NativeCall, Sizes
from tessera.runtime.devices.cuda.streams import CURRENT, Graph
from tessera.runtime.devices.cuda.tensor import CudaTensor, form_of
from tessera.runtime.executable import Executable, Port
from tessera.types.dtype import f32

FORM = form_of(f32, (64,))
OTHER = 5
"""A stream beside that of the graph, whose handle the driver below leaves 0."""


class Driver:
    """Says yes to everything; memory is numbers."""

    ordinal = 0

    def __init__(self) -> None:
        self.next = 1 << 20
        self.freed: list[int] = []
        self.asked: list[str] = []
        self.library: Any = self

    def enter(self) -> bool:
        return False

    def check(self, code: int, what: str) -> None:
        assert not code, what

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuMemFree_v2":
            self.freed.append(arguments[0].value)

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:  # noqa: N802 - the driver's name
        address._obj.value = self.next
        self.next += 1 << 20
        return 0

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return _enter


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    cuda, made = Driver(), Pool()
    for module in (cuda_memory, cuda_program, cuda_stream):
        monkeypatch.setattr(module, "driver", lambda: cuda)
    for module in (cuda_program, cuda_stream):
        monkeypatch.setattr(module, "POOL", made)
    made.__dict__["cuda"] = cuda
    return made


def program() -> CudaProgram:
    """A function of one tensor with a workspace, whose kernels are left out."""
    made = object.__new__(CudaProgram)
    port = Port("f32", ("N",), "x")
    facts: dict[str, Any] = {"workspace": "4*N", "scratches": [], "called": []}
    made.executable = Executable((), (port,), (port,), symbols=("N",), binding=(0,), metadata=facts)
    made.copies = 0
    table = (ctypes.c_void_p * 1)()
    fields = {
        "_plans": {},
        "_sizes": Sizes(made.executable),
        "_states": {0: table},
        "_native": NativeCall(0, None),
        "_callbacks": None,
        "_donation": None,
    }
    made.__dict__.update(fields, _entry=_enter, call=_refuse)
    return made


def _enter(*_: Any) -> int:
    return 0


def _refuse(*_: Any) -> Any:
    return NotImplemented


def tensor(pool: Pool, stream: int) -> CudaTensor:
    free_list = pool.free_list(FORM.bytes, stream)
    return CudaTensor(free_list.take(), FORM, stream, free_list)


def test_a_graph_holds_what_its_calls_were_given_and_gave(pool: Pool) -> None:
    function, x = program(), tensor(pool, OTHER)
    given = x.address
    with Graph().capturing() as graph:
        y = function(x)
    made = y.address
    del x, y
    gc.collect()
    pool.trim()
    assert not {given, made} & set(pool.__dict__["cuda"].freed)
    del graph
    gc.collect()
    pool.trim()
    assert {given, made} <= set(pool.__dict__["cuda"].freed)


def test_a_graph_keeps_the_workspace_and_what_died_inside(pool: Pool) -> None:
    function, x = program(), tensor(pool, OTHER)
    with Graph().capturing() as graph:
        y = function(function(x))
    assert all(not free_list.free for free_list in pool.free_lists(graph.stream.handle))
    assert pool.trim() == 0
    reserved = pool.reserved
    del graph, x, y
    gc.collect()
    assert pool.trim() == reserved


def test_memory_of_what_died_inside_is_reused_inside(pool: Pool) -> None:
    function, x = program(), tensor(pool, OTHER)
    with Graph().capturing():
        y = function(x)
        for _ in range(10):
            y = function(y)
    # The argument, two results that alternate, and the workspace.
    assert pool.reserved == 4 * 512


def test_every_call_of_a_capture_is_watched(pool: Pool) -> None:
    """None slips by on the fast path: plans are not kept while a graph is captured."""
    function, x = program(), tensor(pool, OTHER)
    with Graph().capturing() as graph:
        for _ in range(3):
            function(x)
    assert function.calls == 3
    assert len(graph._held) == 3  # pyright: ignore[reportPrivateUsage]
    assert function.__dict__["_plans"] == {}
    assert CURRENT.capture is None


def test_a_graph_is_captured_once_and_waited_for_when_it_goes(pool: Pool) -> None:
    asked: list[str] = pool.__dict__["cuda"].asked
    graph = Graph()
    graph._executable.value = graph._graph.value = 7  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(DeviceError, match="captured once"), graph.capturing():
        pass
    asked.clear()
    del graph
    gc.collect()
    assert asked == ["cuStreamSynchronize", "cuGraphExecDestroy", "cuGraphDestroy"]


def test_a_capture_that_fails_gives_back_what_it_took(pool: Pool) -> None:
    function, x = program(), tensor(pool, OTHER)

    def fail() -> None:
        with Graph().capturing():
            function(x)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    gc.collect()
    assert CURRENT.capture is None
    del x
    gc.collect()
    assert pool.trim() == 3 * 512
