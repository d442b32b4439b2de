"""Rows that B is multiplied by while it is packed: bits of the reference, whatever rows, columns and K are cut to."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.tape import Tape
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, kernel_of, run_tape
from tests.backends.cpu.native import assert_close, build, machines

ROWS = (9, 10, 11, 12, 13, 20, 65)


def matmul(dtype: DType, *, finishes: bool) -> Tape:
    """A product with rows of A in the dtype of accumulators, its result as it is or finished by an epilogue."""
    w = Writer()
    made = w.matmul(w.input(["M", "K"]), w.input(["K", "N"], dtype), dtype=dt.f32)
    return w.body(w.relu(made) if finishes else made)


def convolution(stride: int, channels: int) -> Tape:
    """Windows on images, read with a stride or in runs."""
    w = Writer()
    kernel, image = w.input(["M", 3, 3, channels]), w.input(["B", channels, "H", "W"])
    window = {
        "stride": (stride,) * 2,
        "dilation": (1, 1),
        "low": (Dim.constant(1),) * 2,
        "high": (Dim.constant(1),) * 2,
    }
    return w.body(w.relu(w.conv_windows(kernel, image, **window, grouped=False, taps_first=True)))


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16], ids=str)
@pytest.mark.parametrize("finishes", [False, True])
def test_products_of_any_size(dtype: DType, finishes: bool) -> None:
    body = matmul(dtype, finishes=finishes)
    # Columns in whole panels, with one more and one less; K in no, one and several blocks.
    sizes = [(m, k, n) for m in ROWS for k, n in ((7, 128), (300, 65), (1, 63))]
    sizes += [(9, 0, 70), (14, 2100, 64), (9, 1030, 257), (1, 40, 64), (0, 4, 64), (800, 1030, 5)]
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        for m, k, n in sizes:
            extents = {"M": m, "K": k, "N": n}
            inputs = arrays_of(body, extents)
            expected = run_tape(body, inputs, extents)
            for threads in (1, 3):
                found = native.run([*inputs, np.full_like(expected[0], 7)], extents, threads)
                assert_close(found[2:], expected)


@pytest.mark.parametrize(("stride", "channels"), [(1, 40), (1, 3), (2, 40)])
def test_windows_of_any_size(stride: int, channels: int) -> None:
    body = convolution(stride, channels)
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        for m, high, wide in ((9, 8, 8), (13, 5, 13), (12, 3, 70), (7, 1, 1), (20, 17, 16)):
            extents = {"M": m, "B": 2, "H": high, "W": wide}
            inputs = arrays_of(body, extents)
            expected = run_tape(body, inputs, extents)
            for threads in (1, 3):
                found = native.run([*inputs, np.full_like(expected[0], 7)], extents, threads)
                assert_close(found[2:], expected)


def test_panels_are_multiplied_where_they_are_packed() -> None:
    machine = machines()[0]
    backend = CpuBackend(machine)
    for body in (matmul(dt.f32, finishes=True), convolution(1, 40)):
        text = backend.text(backend.lower(kernel_of(body, machine)))
        assert "first_rows" in text
    # Rows of A that are no runs of accumulators are packed themselves.
    w = Writer()
    narrow = w.body(w.matmul(w.input(["M", "K"], dt.bf16), w.input(["K", "N"], dt.bf16), dtype=dt.f32))
    assert "first_rows" not in backend.text(backend.lower(kernel_of(narrow, machine)))


@pytest.mark.parametrize(("patch", "channels"), [(4, 3), (4, 20), (3, 4)])
def test_patches_of_any_size(patch: int, channels: int) -> None:
    w = Writer()
    kernel, image = w.input(["M", patch, patch, channels]), w.input(["B", channels, "H", "W"])
    window = {"stride": (patch,) * 2, "dilation": (1, 1), "low": (Dim.constant(0),) * 2, "high": (Dim.constant(0),) * 2}
    body = w.body(w.conv_windows(kernel, image, **window, grouped=False, taps_first=True))
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        # Rows of whole registers, with elements left over, and shorter than one.
        for high, wide in ((8, 16 * patch), (9, 33 * patch + 1), (4 * patch, 5 * patch), (patch, patch)):
            extents = {"M": 13, "B": 2, "H": high, "W": wide}
            inputs = arrays_of(body, extents)
            expected = run_tape(body, inputs, extents)
            found = native.run([*inputs, np.full_like(expected[0], 7)], extents, 2)
            assert_close(found[2:], expected)
