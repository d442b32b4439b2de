"""Few rows against windows, as in depthwise convolutions: bits of the reference at any size, and no read outside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.stencil import find_stencil
from tessera.ir.base.tape import Tape
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, kernel_of, run_tape
from tests.backends.cpu.native import Native, assert_close, build, machines

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
        kernel = w.input(["G", self.rows, *self.taps, self.channels], self.dtype)
        image = w.input(["B", "G", self.channels, *axes], self.dtype)
        low, high = (tuple(map(Dim.constant, part)) for part in (self.low, self.high))
        out = w.conv_windows(
            kernel,
            image,
            stride=self.stride,
            dilation=self.dilation,
            low=low,
            high=high,
            grouped=True,
            taps_first=True,
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
    Windows(1, 1, (7, 7), (1, 1), (1, 1), (3, 3), (3, 3)),
    Windows(2, 1, (5, 3), (3, 2), (1, 2), (2, 1), (1, 2), dt.bf16),
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
    kernel, image = w.input(["G", 1, 3, "C"]), w.input(["B", "G", "C", "W"])
    window = {"stride": (1,), "dilation": (1,), "low": (Dim.constant(1),), "high": (Dim.constant(1),)}
    body = w.body(w.conv_windows(kernel, image, **window, grouped=True, taps_first=True))
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
            assert_close([native.run_walled([*inputs, *expected], sizes, at_end)], expected)


def test_planes_of_one_channel_are_a_stencil() -> None:
    for case in CASES:
        backend = CpuBackend(machines()[0])
        text = backend.text(backend.lower(kernel_of(case.body(), machines()[0])))
        assert ("@stencil" in text) == (case.channels == 1)


@pytest.mark.parametrize("width", [1, 8, 9, 16, 24, 31, 40, 56])
def test_known_sizes_have_blocks_of_their_own(width: int) -> None:
    window = {"stride": (1, 1), "dilation": (1, 1), "low": (Dim.constant(1),) * 2, "high": (Dim.constant(1),) * 2}
    w = Writer()
    kernel, image = w.input([3, 1, 1, 3, 3]), w.input([2, 3, 1, 13, width])
    body = w.body(w.conv_windows(kernel, image, grouped=True, **window))
    inputs = arrays_of(body, {})
    expected = run_tape(body, inputs, {})
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        assert_close(native.run([*inputs, np.ones_like(expected[0])], {})[2:], expected)


def test_lines_beyond_scratch_are_read_in_place() -> None:
    case = CASES[4]
    sizes = {"B": 1, "G": 2, "H": 1, "W": 70001}
    inputs = arrays_of(case.body(), sizes)
    expected = run_tape(case.body(), inputs, sizes)
    for native in natives(case):
        assert_close(native.run([*inputs, np.ones_like(expected[0])], sizes, 1)[2:], expected)


def test_a_stencil_is_found_from_offset_and_windows() -> None:
    n, k, size = (Dim.symbol(name) for name in ("_n", "_k", "B"))
    y, x = 2 * (n // 9) + (k // 3) - 1, n % 9 + 2 * (k % 3)
    found = find_stencil(y * 13 + x + size * 169, (y, Dim.constant(13), x, Dim.constant(13)), Dim.constant(54), 6)
    assert found is not None
    assert (found.rows.stride, found.rows.taps, found.rows.positions.value) == (2, 2, 6)
    assert (found.columns.dilation, found.columns.taps, found.columns.positions.value) == (2, 3, 9)
    # Planes of another width than that of the window, and positions in another order.
    assert find_stencil(y * 14 + x, (y, Dim.constant(13), x, Dim.constant(13)), Dim.constant(54), 6) is None
    assert find_stencil(x * 13 + y, (x, Dim.constant(13), y, Dim.constant(13)), Dim.constant(54), 6) is None
