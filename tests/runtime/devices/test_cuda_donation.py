"""Tensors donated to calls on a GPU, without one: whose memory is whose, before and after."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest

from tessera.diagnostics.codes import DonatedError, RuntimeArgumentError
from tessera.runtime.devices.cuda.memory import FreeList, Pool
from tessera.runtime.devices.cuda.program import CudaDonation, Plan
from tessera.runtime.devices.cuda.streams import CURRENT
from tessera.runtime.devices.cuda.tensor import CudaTensor, Shared, form_of
from tessera.runtime.donation import Donation
from tessera.types.dtype import f32
from tests.runtime.devices.test_cuda_call import SHAPE, Called, both, tensor

FORM = form_of(f32, SHAPE)


@pytest.fixture
def free_list() -> FreeList:
    return FreeList(Pool(), FORM.bytes)


def own(address: int, free_list: FreeList) -> CudaTensor:
    return CudaTensor(address, FORM, 0, free_list)


class Donating(Called):
    """The first of two results has the memory of the first argument; the second argument is donated for nothing."""

    def __init__(self) -> None:
        super().__init__(both)
        self.free_lists[0] = FreeList(self.pool, 0)
        self.free_lists[0].free += [0, 0]
        self.donation = CudaDonation(Donation((0, 1), ((0, 0),)), ["x", "y"])
        outputs = list(zip(self.forms, self.free_lists, strict=True))
        self.native.add(Plan(0, [FORM] * 2, (ctypes.c_int64 * 1)(), outputs, None, self.state))
        self.donating = self.donation.around(self.call)


def test_a_result_has_the_memory_of_what_was_donated(free_list: FreeList) -> None:
    program, x, y = Donating(), own(0x10000, free_list), own(0x20000, free_list)
    first, second = program.donating(x, y)
    assert (first.address, first.lane, first.stream) == (0x10000, 0, 0)
    assert second.address == 0x2030000
    assert free_list.free == [], "it waits for the next call"
    program.donation.free_spares()
    assert free_list.free == [0x20000]
    for spent in (x, y):
        assert spent.shape == SHAPE
        with pytest.raises(DonatedError, match=r"a tensor \[4, 64\] f32 is used that was donated to a call"):
            _ = spent.address
        assert program.call(spent, tensor(0x30000)) is NotImplemented
    del x, y
    gc.collect()
    assert free_list.free == [0x20000]
    del first
    gc.collect()
    assert free_list.free == [0x20000, 0x10000]
    assert program.free_lists[0].free == [0, 0]


def test_it_goes_on_and_on(free_list: FreeList) -> None:
    program, x = Donating(), own(0x10000, free_list)
    for at in range(20):
        x, _ = program.donating(x, own(0x20000 + 0x10000 * at, free_list))
        assert x.address == 0x10000
    assert sorted(free_list.free) == [0x20000 + 0x10000 * at for at in range(19)]
    del program
    gc.collect()
    assert sorted(free_list.free) == [0x20000 + 0x10000 * at for at in range(20)]


def test_results_alternate_between_two_addresses_whatever_else_is_freed(free_list: FreeList) -> None:
    free_list.free += [0x40000, 0x30000]
    donation = CudaDonation(Donation((0, 1), ()), ["x", "y"])
    step = donation.around(lambda *given: tuple(own(free_list.take(), free_list) for _ in given))  # pyright: ignore[reportUnknownLambdaType]
    state, seen = (own(0x10000, free_list), own(0x20000, free_list)), list[tuple[int, ...]]()
    for at in range(12):
        state = step(*state)
        seen.append(tuple(one.address for one in state))
        free_list.free.append(0x5000000 + 0x10000 * at)  # another tensor's
    assert seen == [(0x30000, 0x40000), (0x10000, 0x20000)] * 6


def test_threads_that_call_at_a_time_free_a_block_once(free_list: FreeList, monkeypatch: pytest.MonkeyPatch) -> None:
    donation = CudaDonation(Donation((0, 1), ()), ["x", "y"])
    give_up = CudaTensor.give_up

    def while_another_begins(tensor: CudaTensor) -> list[tuple[FreeList, int]]:
        donation.free_spares()
        return give_up(tensor)

    monkeypatch.setattr(CudaTensor, "give_up", while_another_begins)
    given = own(0x10000, free_list), own(0x20000, free_list)
    donation.finish(given, given, (), None)
    donation.free_spares()
    assert sorted(free_list.free) == [0x10000, 0x20000]


def test_in_a_capture_blocks_do_not_wait(free_list: FreeList, monkeypatch: pytest.MonkeyPatch) -> None:
    donation = CudaDonation(Donation((0,), ()), ["x"])
    monkeypatch.setattr(CURRENT, "capture", object())
    given = (own(0x10000, free_list),)
    donation.finish(given, given, (), None)
    assert free_list.free == [0x10000], "at its end the graph takes what is free in its stream"


def test_what_is_not_donated_may_be_passed_twice(free_list: FreeList) -> None:
    program = Donating()
    donation = CudaDonation(Donation((0,), ((0, 0),)), ["x", "y"])
    donating = donation.around(lambda x, y: program.call(x, y))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    y = own(0x20000, free_list)
    first, _ = donating(own(0x10000, free_list), y)
    again, _ = donating(first, y)
    assert (again.address, y.address) == (0x10000, 0x20000)
    assert donating(y, y) is NotImplemented


def test_what_others_know_is_left_to_the_slow_path(free_list: FreeList) -> None:
    program, y = Donating(), own(0x20000, free_list)
    foreign = tensor(0x10000)
    assert program.donating(foreign, y) is NotImplemented
    shared = own(0x30000, free_list)
    shared.share()
    assert program.donating(shared, y) is NotImplemented
    assert program.donating(y, y) is NotImplemented
    assert program.donating(y) is NotImplemented
    assert program.donating(y, 3) is NotImplemented
    assert program.launches == []
    assert y.address == 0x20000
    del shared
    gc.collect()
    assert free_list.free == [0x30000]


def test_a_shared_block_goes_where_its_tensor_went(free_list: FreeList) -> None:
    other = FreeList(Pool(), FORM.bytes)
    shared = own(0x30000, free_list)
    shared.share()
    shared.share()
    shared.move(other, 7)
    assert isinstance(shared._owner, Shared)  # pyright: ignore[reportPrivateUsage]
    del shared
    gc.collect()
    assert (free_list.free, other.free) == ([], [0x30000])


def test_what_is_donated_is_nobody_else_s(free_list: FreeList) -> None:
    donation = CudaDonation(Donation((0,), ((0, 0),)), ["x", "y"])
    x, inside = own(0x10000, free_list), own(0x10000 + 64, free_list)
    with pytest.raises(RuntimeArgumentError, match="`x` is donated to the call, and `y` is the same memory"):
        donation.ready([x, inside])
    beside = own(0x10000 + FORM.bytes, free_list)
    assert donation.ready([x, beside]) == [x, beside]


def test_a_call_that_fails_takes_nothing(free_list: FreeList) -> None:
    program = Donating()
    program.answer = 701
    x, y = own(0x10000, free_list), own(0x20000, free_list)
    assert program.donating(x, y) is NotImplemented
    gc.collect()
    assert (x.address, y.address, free_list.free) == (0x10000, 0x20000, [])


def test_what_a_call_that_raised_may_have_written_over_is_consumed(free_list: FreeList) -> None:
    donation = CudaDonation(Donation((0, 1), ((0, 0),)), ["x", "y"])
    x, y = own(0x10000, free_list), own(0x20000, free_list)
    donation.fail([x, y], [x, own(0x30000, free_list)])  # of `y` a copy was given
    with pytest.raises(DonatedError):
        _ = x.address
    assert y.address == 0x20000


def test_what_is_consumed_does_not_move(free_list: FreeList) -> None:
    x: Any = own(0x10000, free_list)
    x.give_to(None)
    x.move(FreeList(Pool(), FORM.bytes), 7)
    assert free_list.free == [0x10000]
    del x
    gc.collect()
    assert free_list.free == [0x10000]
