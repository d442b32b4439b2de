"""Memory of other libraries on a GPU, and numbers beside it, with a driver that only writes down what it is asked."""

from __future__ import annotations

import gc
import math
import struct
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime import dlpack
from tessera.runtime.devices.cuda import memory, streams, tensor
from tessera.runtime.devices.cuda.memory import FreeList, Pool
from tessera.runtime.devices.cuda.streams import stream
from tessera.runtime.devices.cuda.tensor import Borrowed, CudaTensor, number_maker
from tessera.runtime.foreign import is_foreign, share
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
    fake.done = True
    Borrowed.release()


class Theirs:
    """A tensor on a GPU that another library exports."""

    def __init__(self, shape: tuple[int, ...] = (2, 3), ordinal: int = 0, *, is_strided: bool = False) -> None:
        self.shape, self.ordinal, self.is_strided = shape, ordinal, is_strided
        self.owner = SimpleNamespace()
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
