"""Memory of other libraries on a GPU, and numbers beside it, with a driver that only writes down what it is asked."""

from __future__ import annotations

import ctypes
import gc
import math
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import tessera as ts
from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime import dlpack
from tessera.runtime.devices.cuda import memory, streams, tensor
from tessera.runtime.devices.cuda.memory import FreeList, Pool
from tessera.runtime.devices.cuda.streams import Graph, stream
from tessera.runtime.devices.cuda.tensor import Borrowed, CudaTensor, number_maker
from tessera.runtime.foreign import is_foreign, share
from tessera.runtime.tensor import CODES
from tessera.types.dtype import bf16, f32, f64

OTHER = 1 << 40
"""The handle of a stream."""


class FakeDriver:
    """A driver that does nothing; events are done when they are said to be."""

    ordinal = 0

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.done = False
        self.library = SimpleNamespace(cuEventQuery=lambda _: 0 if self.done else 600, cuEventDestroy_v2=lambda _: 0)  # pyright: ignore[reportUnknownLambdaType]

    def enter(self) -> bool:
        return False

    def call(self, name: str, *arguments: Any) -> None:
        self.asked.append((name, *(getattr(one, "value", None) for one in arguments)))

    @property
    def fills(self) -> list[tuple[Any, ...]]:
        return [one for one in self.asked if one[0].startswith("cuMemset")]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake, pool = FakeDriver(), Pool()
    lists: dict[tuple[int, int], FreeList] = {}

    def free_list(size: int, handle: int = 0) -> FreeList:
        if (size, handle) not in lists:
            lists[size, handle] = FreeList(pool, size)
            lists[size, handle].free += [handle + 0x1000 * (at + 1) for at in range(4)]
        return lists[size, handle]

    for module in (memory, streams, tensor):
        monkeypatch.setattr(module, "driver", lambda: fake)
    monkeypatch.setattr(tensor, "POOL", SimpleNamespace(free_list=free_list))
    waiting: deque[Any] = deque()
    monkeypatch.setattr(Borrowed, "waiting", waiting)
    yield fake
    streams.CURRENT.capture, streams.CURRENT.handle = None, 0
    fake.done = True
    Borrowed.release()


class Memory:
    """What another library holds."""


class Theirs:
    """A tensor on a GPU that another library exports."""

    def __init__(self, shape: tuple[int, ...] = (2, 3), ordinal: int = 0, *, is_strided: bool = False) -> None:
        self.shape, self.ordinal, self.is_strided = shape, ordinal, is_strided
        self.owner = Memory()
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.ordinal

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        return dlpack.export(self.owner, 0x7000, f32, self.shape, (dlpack.CUDA, self.ordinal))


class Copying(Theirs):
    """One that can make itself contiguous."""

    def contiguous(self) -> Theirs:
        return Theirs(self.shape)


def test_memory_is_shared_in_the_current_stream_and_kept_until_work_is_done(cuda: FakeDriver) -> None:
    given = Theirs()
    assert is_foreign(given)
    with stream(OTHER):
        shared = share(given)
    assert (shared.address, shared.shape, shared.dtype, shared.stream) == (0x7000, (2, 3), f32, OTHER)
    assert shared.is_borrowed
    assert not shared.is_own
    assert given.streams == [OTHER]
    assert share(given).stream == 0
    assert given.streams[-1] == 1  # how DLPack calls the default stream
    gc.collect()
    Borrowed.release()
    held = len(Borrowed.waiting)
    del shared
    gc.collect()
    assert len(Borrowed.waiting) == held + 1  # its stream has not come so far
    assert ("cuEventRecord", None, OTHER) in [(one[0], None, one[2]) for one in cuda.asked if len(one) > 2]
    cuda.done = True
    Borrowed.release()
    assert not Borrowed.waiting


def test_strides_devices_and_moves(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"on cuda:1, and this process computes on cuda:0"):
        share(Theirs(ordinal=1))
    shared: Any = share(Theirs())
    address = shared.address
    shared.move(FreeList(Pool(), 24), OTHER)  # its memory does not go to our pool
    assert shared.is_borrowed
    assert (shared.address, shared.stream) == (address, OTHER)
    monkeypatch.setattr(dlpack, "is_contiguous", lambda shape, strides, item: shape != (5, 2))  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    with pytest.raises(RuntimeArgumentError, match=r"shape \[5, 2\].* is not contiguous"):
        share(Theirs((5, 2)))
    monkeypatch.setattr(Copying, "contiguous", lambda self: Theirs((2, 5)))  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
    assert share(Copying((5, 2))).shape == (2, 5)


def test_a_number_goes_with_the_command_and_two_blocks_alternate(cuda: FakeDriver) -> None:
    make, values = number_maker(f32), [0.5, 0.25, math.inf, -0.0]
    first = make(values[0])
    assert make(values[0]) is first
    assert len(cuda.fills) == 1
    addresses: list[int] = []
    del first
    for value in values * 2:
        addresses.append(make(value).address)
        name, where, bits, count, handle = cuda.fills[-1]
        assert (name, where, count, handle or 0) == ("cuMemsetD32Async", addresses[-1], 1, 0)
        assert struct.pack("<I", bits) == struct.pack("<f", value)
    assert len(set(addresses)) == 2
    assert not [one for one in cuda.asked if "Synchronize" in one[0]]
    with stream(OTHER):
        assert make(0.125).stream == OTHER


def test_numbers_of_other_widths(cuda: FakeDriver) -> None:
    wide = number_maker(f64)(0.1)
    words = [one[2] for one in cuda.fills]
    assert struct.pack("<II", *words) == struct.pack("<d", 0.1)
    assert [one[1] - wide.address for one in cuda.fills] == [0, 4]
    number_maker(bf16)(1.0)
    assert cuda.fills[-1][0] == "cuMemsetD16Async"
    assert cuda.fills[-1][2] == 0x3F80


def test_a_number_that_is_donated_is_new_each_time(cuda: FakeDriver) -> None:
    make = number_maker(f32, is_given=True)
    value = 0.5
    made: list[CudaTensor] = [make(value), make(value)]
    assert made[0] is not made[1]


def captured_graph(cuda: FakeDriver) -> Graph:
    """A graph whose capture has begun in this thread."""
    cuda.library.cuGraphLaunch = None
    graph = Graph()
    graph.stream.handle = OTHER
    graph.is_capturing = True
    streams.CURRENT.capture, streams.CURRENT.handle = graph, OTHER
    return graph


def end_capture(graph: Graph) -> None:
    graph.is_capturing = False
    streams.CURRENT.capture, streams.CURRENT.handle = None, 0


def test_what_is_borrowed_in_a_capture_lives_as_long_as_its_graph(cuda: FakeDriver) -> None:
    graph = captured_graph(cuda)
    given = Theirs()
    gone = weakref.ref(given.owner)
    shared = share(given)
    del given, shared
    gc.collect()
    assert gone() is not None
    assert not Borrowed.waiting  # an event would be a part of the graph
    end_capture(graph)
    gc.collect()
    assert gone() is not None
    del graph
    gc.collect()
    assert gone() is None


def test_what_was_borrowed_before_a_capture_waits_for_its_own_stream(cuda: FakeDriver) -> None:
    given: Any = Theirs()
    gone, shared = weakref.ref(given.owner), share(given)
    graph = captured_graph(cuda)
    del given, shared
    gc.collect()
    assert [(one[0], one[2] or 0) for one in cuda.asked if one[0] == "cuEventRecord"] == [("cuEventRecord", 0)]
    cuda.done = True
    Borrowed.release()
    assert gone() is not None  # the graph may have been given its address
    end_capture(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_after_its_capture_it_waits_for_what_came_since(cuda: FakeDriver) -> None:
    graph = captured_graph(cuda)
    shared = share(Theirs())
    end_capture(graph)
    del graph, shared
    gc.collect()
    assert len(Borrowed.waiting) == 1


def test_a_library_that_works_in_our_stream_gets_its_memory_back_in_order(cuda: FakeDriver) -> None:
    owner = SimpleNamespace()
    for theirs, waits, kept in ((0, 0, 0), (1, 0, 0), (OTHER, 1, 1)):
        before = len(cuda.asked)
        shared = CudaTensor.borrow(owner, (0x7000, CODES[f32], 0, theirs), (2, 3))
        assert (shared.address, shared.shape, shared.dtype, shared.stream) == (0x7000, (2, 3), f32, 0)
        assert [one[0] for one in cuda.asked[before:]].count("cuStreamWaitEvent") == waits
        del shared
        gc.collect()
        assert len(Borrowed.waiting) == kept
    with pytest.raises(DeviceError, match=r"on cuda:1, and this process computes on cuda:0"):
        CudaTensor.borrow(owner, (0x7000, CODES[f32], 1, 0), (2, 3))


class Mark:
    """An event of the race below, which is done once its number is in `done`."""

    done: ClassVar[set[int]] = set()

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def is_done(self) -> bool:
        found = self.number in self.done
        time.sleep(0)  # another thread comes in between
        return found


class Owner:
    """What is let go, and when: too early where its event is not done."""

    freed: ClassVar[list[tuple[int, bool]]] = []

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        self.freed.append((self.number, self.number in Mark.done))


def test_threads_that_release_at_once_lose_nothing_and_let_go_nothing_early(cuda: FakeDriver) -> None:
    count, before, stop = 120, sys.getswitchinterval(), threading.Event()
    Mark.done.clear()
    Owner.freed.clear()

    def work() -> None:
        while not stop.is_set():
            Borrowed.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for number in range(count):
            Borrowed.waiting.append((Mark(number), Owner(number)))  # pyright: ignore[reportArgumentType]
            time.sleep(0)
            Mark.done.add(number - 1)
        Mark.done.update(range(count))
        end = time.monotonic() + 20
        while len(Owner.freed) < count and time.monotonic() < end:
            Borrowed.release()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
    assert sorted(Owner.freed) == [(number, True) for number in range(count)]


class Table:
    """A `DLPackExchangeAPI` whose one tensor is a contiguous [2, 3] f32 of a GPU, and how often it was let go."""

    def __init__(self, stream: int = 0, rank: int = 2, device: int = dlpack.CUDA) -> None:
        self.let_go: list[int] = []
        self.dims, self.strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(3, 1)
        self.deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(self.let_go.append)
        f32_word = 2 | 32 << 8 | 1 << 16
        head = struct.pack("=IIQQQ", 1, 1, 0, ctypes.cast(self.deleter, ctypes.c_void_p).value or 0, 0)
        addresses = [ctypes.addressof(one) for one in (self.dims, self.strides)]
        body = struct.pack("=QiiiIQQQ", 0x7000, device, 0, rank, f32_word, *addresses, 0x100)
        self.managed = ctypes.create_string_buffer(head + body)
        self.export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))(self._export)
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
        self.stream, self.ask = stream, kind(self._ask)
        functions = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (self.export, self.ask)]
        self.words = (ctypes.c_uint64 * 7)(1 | 3 << 32, 0, 0, functions[0], 0, 0, functions[1])
        name = self.name = ctypes.c_char_p(b"dlpack_exchange_api")
        self.capsule = dlpack.new_capsule(ctypes.addressof(self.words), name, None)

    def _export(self, _: Any, out: Any) -> int:
        out[0] = ctypes.addressof(self.managed)
        return 0

    def _ask(self, device: int, number: int, out: Any) -> int:
        out[0] = self.stream
        return 0


def test_a_table_of_c_functions_is_asked_for_a_tensor_of_a_gpu(cuda: FakeDriver) -> None:
    table = Table()

    class Exported(Theirs):
        __dlpack_c_exchange_api__ = table.capsule

        def __dlpack__(self, **options: Any) -> Any:
            return super().__dlpack__(**options)

    ts.ones(1)  # the support code
    share(Exported())
    given = Exported()
    shared = share(given)
    assert not given.streams  # no method was asked
    assert (shared.address, shared.shape, shared.dtype, shared.stream) == (0x7100, (2, 3), f32, 0)
    assert not table.let_go
    del shared
    gc.collect()
    assert table.let_go == [ctypes.addressof(table.managed)]
    table.stream = OTHER
    before = len(cuda.asked)
    shared = share(given)
    assert [one[0] for one in cuda.asked[before:]].count("cuStreamWaitEvent") == 1
    del shared
    gc.collect()
    assert len(table.let_go) == 1  # its stream has not come so far
    cuda.done = True
    Borrowed.release()
    assert len(table.let_go) == 2
    # What is not contiguous is left to the methods, and let go.
    table.strides[0] = 5
    assert share(given).address == 0x7000
    assert given.streams
    assert len(table.let_go) == 3
