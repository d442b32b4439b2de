"""Lanes a few elements apart or backwards: machine code equals the interpreter, and reads nothing around them."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.lane_offsets import can_pick
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType
from tests.backends.cpu.native import Native, Walled, build, interpret, machines, values_of

N, I = Dim.symbol("N"), Dim.symbol("i")  # noqa: E741 - a coordinate
STEPS = (2, 3, 4, -1, -2, -4, 5)
SIZES = (1, 2, 8, 15, 16, 17, 40, 67)
DTYPES = (dt.f32, dt.bf16, dt.bool_)


@cache
def space_out(dtype: DType, pad: int = 1) -> SpecOp:
    """`out[i] = x[step * i]` for every step, each from a buffer that ends, or begins, at the last element read."""
    types = [TensorType.of([abs(step) * (N - 1) + 1], dtype) for step in STEPS]
    types = [*types, *(TensorType.of([N], dtype) for _ in STEPS)]
    b = TileBuilder("apart", types, symbols=["N"], grid=[1], writes=range(len(STEPS), 2 * len(STEPS)), kind="library")

    def step(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": i}, ("i",), (32,), {"i": N})
        for number, by in enumerate(STEPS):
            at = I * by if by > 0 else (I - (N - 1)) * by
            found = b.load(b.arguments[number], [at], region, pad=pad)
            b.store(found, b.arguments[len(STEPS) + number], [I], region)
        return carried

    b.loop(b.index(0), b.index(N), 32, step)
    return b.finish()


@cache
def natives(dtype: DType) -> list[Native]:
    return [build(space_out(dtype), machine) for machine in machines()]


def arrays_of(dtype: DType, size: int) -> list[Array]:
    rng = np.random.default_rng(size)
    inputs = [values_of(rng, (abs(step) * (size - 1) + 1,), dtype) for step in STEPS]
    return [*inputs, *(np.zeros(size, numpy_dtype(dtype)) for _ in STEPS)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_step_reads_its_elements(dtype: DType) -> None:
    for size in SIZES:
        arrays = arrays_of(dtype, size)
        expected = interpret(space_out(dtype), arrays, {"N": size})
        for native in natives(dtype):
            for found, wanted in zip(native.run(arrays, {"N": size}), expected, strict=True):
                assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.i8], ids=str)
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_is_read_in_front_of_the_first_lane_or_behind_the_last(dtype: DType, at_end: bool) -> None:
    for size in SIZES:
        arrays = arrays_of(dtype, size)
        expected = interpret(space_out(dtype), arrays, {"N": size})
        for native in natives(dtype):
            walled = [Walled(array, at_end) for array in arrays]
            context = np.array([*(part.address for part in walled), size, 0], np.int64)
            assert native.call("apart_tasks", context.ctypes.data, 1) == 1
            native.call("apart", context.ctypes.data, 0, 1, 0)
            for part, wanted in zip(walled, expected, strict=True):
                assert ctypes.string_at(part.address, wanted.nbytes) == wanted.tobytes()


def test_only_lanes_far_apart_have_an_address_each() -> None:
    for machine in machines():
        (native,) = [native for native, own in zip(natives(dt.f32), machines(), strict=True) if own is machine]
        text = CpuBackend(machine).text(native.target)
        gathers = [row for row in text.splitlines() if "call" in row and "@llvm.masked.gather" in row]
        # Step 5 alone, in whole steps and in the tail.
        assert len(gathers) == 2 * 32 // machine.lanes
    assert [can_pick(step, 16) for step in (None, 0, 1, -1, 4, 5)] == [False, False, True, True, True, False]
    assert not can_pick(2, 1)
    assert not can_pick(2, 12)


@pytest.mark.parametrize("dtype", [dt.bf16, dt.i8], ids=str)
def test_words_are_gathered_for_narrow_elements_where_the_machine_gathers(dtype: DType) -> None:
    """Of a gather of bytes LLVM makes a branch for each lane: seconds to compile for reductions of columns."""
    for native, machine in zip(natives(dtype), machines(), strict=True):
        text = CpuBackend(machine).text(native.target)
        assert ("masked.gather.v16i32" in text) == (machine.lanes == 16)
        assert "masked.gather.v16i8" not in text
        assert "masked.gather.v16i16" not in text
