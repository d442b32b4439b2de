"""Few rows against windows, as in depthwise convolutions: bits of the reference at any size, and no read outside."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.tape import Tape
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, kernel_of, run_tape
from tests.backends.cpu.native import Native, Walled, assert_close, build, machines

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Windows:
    """A convolution in groups over symbolic dims: channels out and in of a group, taps, and how windows lie."""

    rows: int
    channels: int
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    dtype: DType = dt.f32

    @property
    def least(self) -> tuple[int, ...]:
        """The smallest sizes that a window fits in."""
        parts = zip(self.taps, self.dilation, self.low, self.high, strict=True)
        return tuple(max((taps - 1) * dilation + 1 - low - high, 1) for taps, dilation, low, high in parts)

    def body(self) -> Tape:
        w = Writer()
        axes = ["H", "W"][-len(self.taps) :]
        kernel = w.input(["G", self.rows, self.channels, *self.taps], self.dtype)
        image = w.input(["B", "G", self.channels, *axes], self.dtype)
        low, high = (tuple(map(Dim.constant, part)) for part in (self.low, self.high))
        out = w.conv_windows(
            kernel, image, stride=self.stride, dilation=self.dilation, low=low, high=high, grouped=True
        )
        return w.body(w.relu(out))


CASES = (
    Windows(1, 1, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    Windows(1, 1, (3, 5), (2, 2), (1, 1), (1, 2), (1, 2)),
    Windows(2, 3, (2, 3), (1, 1), (1, 2), (0, 0), (0, 0)),
    Windows(6, 1, (3, 2), (1, 3), (2, 1), (0, 3), (4, 0)),
    Windows(1, 1, (5,), (1,), (1,), (2,), (2,)),
    Windows(1, 2, (4,), (2,), (3,), (0,), (0,), dt.bf16),
    Windows(1, 1, (2, 2), (1, 1), (1, 1), (0, 1), (1, 0), dt.f16),
)


@cache
def natives(case: Windows) -> tuple[Native, ...]:
    """The kernel of a case for every machine at hand."""
    return tuple(build(kernel_of(case.body(), machine), machine) for machine in machines())


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(0, 3), st.integers(1, 3), st.integers(0, 12), st.integers(0, 80), st.data())
def test_bits_are_those_of_the_reference(
    case: Windows, batch: int, groups: int, high: int, wide: int, data: st.DataObject
) -> None:
    least = (1, *case.least)[-2:]
    sizes = {"B": batch, "G": groups, "H": least[0] + high, "W": least[1] + wide}
    inputs = arrays_of(case.body(), sizes, data.draw(st.integers(0, 99)))
    expected = run_tape(case.body(), inputs, sizes)
    threads = data.draw(st.sampled_from([1, 2, 7]))
    for native in natives(case):
        outputs = [np.full(array.shape, 1, array.dtype) for array in expected]
        assert_close(native.run([*inputs, *outputs], sizes, threads)[2:], expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_packed(case: Windows) -> None:
    for machine in machines():
        backend = CpuBackend(machine)
        text = backend.text(backend.lower(kernel_of(case.body(), machine)))
        assert "pack_windows" not in text
        assert "micro" not in text


@pytest.mark.parametrize(
    "case",
    [Windows(7, 1, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)), Windows(1, 129, (2,), (1,), (1,), (0,), (1,))],
    ids=["many rows", "deep"],
)
def test_others_are_packed(case: Windows) -> None:
    sizes = {"B": 1, "G": 2, "H": 5, "W": 19}
    inputs = arrays_of(case.body(), sizes)
    expected = run_tape(case.body(), inputs, sizes)
    for native in natives(case):
        assert_close(native.run([*inputs, np.ones_like(expected[0])], sizes)[2:], expected)
        backend = CpuBackend(machines()[0])
        assert "pack_windows" in backend.text(native.target)


def test_a_k_known_at_the_call_takes_either_path() -> None:
    w = Writer()
    kernel, image = w.input(["G", 1, "C", 3]), w.input(["B", "G", "C", "W"])
    one = (Dim.constant(1),)
    body = w.body(w.conv_windows(kernel, image, stride=(1,), dilation=(1,), low=one, high=one, grouped=True))
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        for channels in (0, 1, 85, 86):
            sizes = {"B": 2, "G": 2, "C": channels, "W": 37}
            inputs = arrays_of(body, sizes)
            expected = run_tape(body, inputs, sizes)
            assert_close(native.run([*inputs, np.ones_like(expected[0])], sizes)[2:], expected)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("at_end", [False, True])
def test_no_element_outside_is_read(case: Windows, at_end: bool) -> None:
    for wide in (0, 1, 15, 16, 31, 33, 64):
        least = (1, *case.least)[-2:]
        sizes = {"B": 1, "G": 2, "H": least[0] + 2, "W": least[1] + wide}
        inputs = arrays_of(case.body(), sizes)
        expected = run_tape(case.body(), inputs, sizes)
        for native in natives(case):
            walled = [Walled(array, at_end) for array in (*inputs, *expected)]
            symbols = [sizes[name] for name in native.kernel.value("symbols")]
            context = np.array([*(part.address for part in walled), *symbols, 0], np.int64)
            name = native.kernel.value("symbol")
            tasks = native.tasks(context, 1)
            room = np.empty(native.call(f"{name}_scratch", context.ctypes.data) + 64, np.uint8)
            scratch = room.ctypes.data + -room.ctypes.data % 64
            for task in range(tasks):
                native.call(name, context.ctypes.data, task, tasks, scratch)
            found = ctypes.string_at(walled[-1].address, expected[0].nbytes)
            assert_close([np.frombuffer(found, expected[0].dtype).reshape(expected[0].shape)], expected)
