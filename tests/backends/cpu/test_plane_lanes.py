"""Planes across lanes, as in depthwise convolutions of small images: bits of the reference, and no read outside."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.gemm import GemmPlan
from tessera.backends.cpu.plane_lanes import plan_lanes
from tessera.backends.cpu.stencil import Axis, Stencil
from tessera.ir.base.tape import Tape
from tessera.ir.target.llvm.instructions import TargetText
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, kernel_of, run_tape
from tests.backends.cpu.native import Native, assert_close, build, machines


@dataclass(frozen=True)
class Planes:
    """A depthwise convolution of known sizes: images, channels, size, and the window."""

    images: int
    channels: int
    size: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    low: tuple[int, int] = (0, 0)
    high: tuple[int, int] = (0, 0)
    dtype: DType = dt.f32

    def body(self) -> Tape:
        w = Writer()
        kernel = w.input([self.channels, 1, *self.taps, 1], self.dtype)
        image = w.input([self.images, self.channels, 1, *self.size], self.dtype)
        low, high = (tuple(map(Dim.constant, part)) for part in (self.low, self.high))
        window = {"stride": self.stride, "dilation": self.dilation, "low": low, "high": high}
        return w.body(w.relu(w.conv_windows(kernel, image, **window, grouped=True, taps_first=True)))

    @property
    def ulps(self) -> int:
        """NumPy has no multiply-add of f64: each product is rounded there."""
        return self.taps[0] * self.taps[1] if self.dtype is dt.f64 else 0


CASES = (
    Planes(2, 16, (7, 7), (7, 7), low=(3, 3), high=(3, 3)),
    Planes(1, 37, (14, 14), (3, 3), low=(1, 1), high=(1, 1)),
    Planes(1, 17, (5, 33), (3, 5), low=(0, 4), high=(2, 0)),
    Planes(3, 7, (13, 17), (3, 3), stride=(2, 2), low=(1, 1), high=(1, 1)),
    Planes(1, 16, (9, 29), (2, 3), stride=(3, 2), dilation=(1, 3)),
    Planes(1, 16, (11, 8), (3, 2), dilation=(4, 1), low=(6, 0), high=(6, 0)),
    Planes(1, 18, (140, 56), (3, 3), low=(1, 1), high=(1, 1)),
    Planes(1, 16, (1, 8), (1, 3)),
    Planes(1, 33, (10, 12), (3, 3), low=(1, 1), high=(1, 1), dtype=dt.bf16),
    Planes(1, 33, (10, 12), (5, 5), low=(2, 2), high=(2, 2), dtype=dt.f16),
    Planes(1, 16, (6, 19), (4, 2), low=(3, 0), high=(3, 1), dtype=dt.f64),
    Planes(1, 16, (2, 1), (2, 9), low=(1, 8), high=(1, 7)),
)


@cache
def natives(case: Planes) -> tuple[Native, ...]:
    """The kernel of a case for every machine at hand."""
    return tuple(build(kernel_of(case.body(), machine), machine) for machine in machines())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_those_of_the_reference(case: Planes, threads: int) -> None:
    inputs = arrays_of(case.body(), {})
    expected = run_tape(case.body(), inputs, {})
    for native in natives(case):
        outputs = [np.full(array.shape, 1, array.dtype) for array in expected]
        assert_close(native.run([*inputs, *outputs], {}, threads)[2:], expected, case.ulps)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_of_these_go_across_lanes(case: Planes) -> None:
    machine = machines()[0]
    backend = CpuBackend(machine)
    assert "@plane_lanes" in backend.text(backend.lower(kernel_of(case.body(), machine)))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("at_end", [False, True])
def test_no_element_outside_is_read(case: Planes, at_end: bool) -> None:
    inputs = arrays_of(case.body(), {})
    expected = run_tape(case.body(), inputs, {})
    for native in natives(case):
        assert_close([native.run_walled([*inputs, *expected], {}, at_end)], expected, case.ulps)


def test_infinite_factors_meet_the_zeros_around_a_plane() -> None:
    case = CASES[1]
    inputs = arrays_of(case.body(), {})
    inputs[0][3, 0, 0, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        expected = run_tape(case.body(), inputs, {})
    assert np.isnan(expected[0]).any()
    for native in natives(case):
        assert_close(native.run([*inputs, np.ones_like(expected[0])], {}, 1)[2:], expected)


def axis(taps: int, positions: int, extent: Any, stride: int = 1, low: int = 0) -> Axis:
    return Axis(stride, 1, Dim.constant(low), Dim.of(extent), taps, Dim.constant(positions))


def test_wide_rows_and_sizes_that_are_not_known_stay_rows() -> None:
    target = TargetText(16, "x86-64-v4", "", registers=32)
    plan = GemmPlan.of(target, dt.f32)
    small = Stencil(axis(3, 14, 16), axis(3, 14, 16))
    found = plan_lanes(small, plan, target.registers)
    assert found is not None
    assert found.pitch == 16
    others = (
        Stencil(axis(3, 14, "H"), axis(3, 14, 16)),
        Stencil(axis(3, 14, 16), axis(3, 200, 202)),
        Stencil(axis(3, 14, 16), axis(3, 4, 6)),
        Stencil(axis(3, 14, 16, low=-1), axis(3, 14, 16)),
    )
    for other in others:
        assert plan_lanes(other, plan, target.registers) is None
