"""Matmuls of small images as one: the bits of the reference, and a batch that stays where it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.target.typed_ops import GemmOp
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, kernel_of, run_tape
from tests.backends.cpu.native import assert_close, build, machines


def convolution(images: Any, size: int, *, channels: int = 32, stride: int = 1, dtype: DType = dt.f32) -> Tape:
    """A convolution whose epilogue has a bias for each channel, a residual, and a number for each position."""
    w = Writer()
    ones = (Dim.constant(1),) * 2
    window = {"stride": (stride,) * 2, "dilation": (1, 1), "low": ones, "high": ones}
    kernel, image = w.input([20, 3, 3, channels], dtype), w.input([images, channels, size, size], dtype)
    made = w.conv_windows(kernel, image, **window, grouped=False, taps_first=True)
    extent = (size - 1) // stride + 1
    bias, position = w.input([20, 1, 1], dtype), w.input([extent, extent], dtype)
    residual = w.input([images, 20, extent, extent], dtype)
    return w.body(w.relu(w.mul(w.add(w.add(made, bias), residual), position)))


def gemm_of(body: Tape) -> GemmOp:
    machine = machines()[0]
    target = CpuBackend(machine).lower(kernel_of(body, machine))
    (found,) = [op for op in target.walk() if isinstance(op, SpecOp) and isinstance(op, GemmOp)]
    return found


CASES = {
    "7 by 7": convolution(4, 7),
    "9 by 9, of 3": convolution(3, 9),
    "13 by 13 with a stride": convolution(5, 13, stride=2),
    "bf16": convolution(3, 7, dtype=dt.bf16),
}


@pytest.mark.parametrize("body", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("threads", [1, 3])
def test_bits_are_those_of_the_reference(body: Tape, threads: int) -> None:
    inputs = arrays_of(body, {})
    expected = run_tape(body, inputs, {})
    for machine in machines():
        native = build(kernel_of(body, machine), machine)
        found = native.run([*inputs, np.full_like(expected[0], 7)], {}, threads)
        assert_close(found[len(inputs) :], expected)


def test_images_that_do_not_fill_registers_are_folded() -> None:
    joined = gemm_of(convolution(4, 7))
    assert (joined.batch, joined.n.value) == ((), 4 * 49)
    assert len(joined.regions[0].block.args) == 3


@pytest.mark.parametrize(
    "body",
    [
        convolution(4, 16),
        convolution(1, 7),
        convolution("B", 7),
        convolution(4, 4),
        convolution(4, 7, channels=3),
    ],
    ids=["full registers", "one image", "a batch that is not known", "less than two registers", "short K"],
)
def test_others_keep_their_batch(body: Tape) -> None:
    assert len(gemm_of(body).batch) == 1


def test_weights_of_each_image_keep_their_batch() -> None:
    w = Writer()
    assert len(gemm_of(w.body(w.matmul(w.input([4, 20, 300]), w.input([4, 300, 49])))).batch) == 1
