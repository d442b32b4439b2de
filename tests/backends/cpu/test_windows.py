"""Operands seen through windows: a convolution as a product, its patches gathered into panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tessera.backends.cpu.gemm import GemmPlan, GemmProblem, emit_gemm, scratch_bytes
from tessera.backends.cpu.packing import Operand
from tessera.backends.cpu.windows import WindowElement, split_by_axis
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.target.llvm import convert
from tessera.ir.target.llvm.instructions import TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.jit import build, targets

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Patches:
    """Rows are positions of the output of a convolution over [C, H, W], columns are (channel, y, x) of the kernel."""

    height: int
    width: int
    kernel: int
    stride: int
    pad: int

    @property
    def out(self) -> tuple[int, int]:
        """Height and width of the output."""
        high, wide = ((size + 2 * self.pad - self.kernel) // self.stride + 1 for size in (self.height, self.width))
        return high, wide

    def base(self, f: FunctionText, frame: Sequence[Value]) -> Value:
        return frame[0]

    def start(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return [f.const_i(-self.pad * (self.width + 1)), f.const_i(-self.pad), f.const_i(-self.pad)]

    def row(self, f: FunctionText, row: Value, frame: Sequence[Value]) -> list[Value]:
        y = f.mul(f.udiv(row, self.out[1]), self.stride)
        x = f.mul(f.urem(row, self.out[1]), self.stride)
        return [f.add(f.mul(y, self.width), x), y, x]

    def column(self, f: FunctionText, column: Value, frame: Sequence[Value]) -> list[Value]:
        area = self.kernel * self.kernel
        channel, rest = f.udiv(column, area), f.urem(column, area)
        y, x = f.udiv(rest, self.kernel), f.urem(rest, self.kernel)
        return [f.add(f.mul(channel, self.height * self.width), f.add(f.mul(y, self.width), x)), y, x]

    def extents(self, f: FunctionText, frame: Sequence[Value]) -> list[Value]:
        return [f.const_i(self.height), f.const_i(self.width)]

    def matrix(self, image: Array) -> Array:
        """The patches as NumPy cuts them."""
        padded = np.pad(image, ((0, 0), (self.pad, self.pad), (self.pad, self.pad)))
        view = np.lib.stride_tricks.sliding_window_view(padded, (self.kernel, self.kernel), axis=(1, 2))
        cut = view[:, :: self.stride, :: self.stride]
        return cut.transpose(1, 2, 0, 3, 4).reshape(self.out[0] * self.out[1], -1)


def convolution(target: TargetText, patches: Patches, dtype: DType, operand: str, one_by_one: bool) -> ModuleText:
    """`out = patches @ weights`, or with the patches on the right `weights.T @ patches.T`."""
    module = ModuleText(target)
    f = module.function(
        "run", [*[("ptr", n) for n in ("out", "image", "weights", "scratch")], ("i64", "n"), ("i64", "k")]
    )
    out, image, weights, scratch, n, k = f.arguments
    plan = GemmPlan.of(target, dt.f32)
    gathered = Operand(dtype, windows=patches, frame=(image,))
    if one_by_one:
        gathered = replace(gathered, windows=None, element=WindowElement(patches, dtype))
    m = f.const_i(patches.out[0] * patches.out[1])

    def epilogue(
        g: FunctionText, accs: list[Value], row: Value, column: Value, masks: list[Value] | None, frame: list[Value]
    ) -> None:
        for v, acc in enumerate(accs):
            at = g.add(g.add(g.mul(row, frame[1]), column), v * plan.shape.lanes)
            convert.store(g, acc, g.gep(frame[0], at, "float"), dt.f32, None if masks is None else masks[v])

    if operand == "lhs":
        right = Operand(dt.f32, weights, n, 1)
        emit_gemm(f, plan, GemmProblem(0, m, 0, n, k, gathered, right, scratch, epilogue, (out, n)))
    else:
        left = Operand(dt.f32, weights, 1, n)
        emit_gemm(f, plan, GemmProblem(0, n, 0, m, k, left, gathered.transposed, scratch, epilogue, (out, m)))
    f.ret()
    return module


@pytest.mark.parametrize("target", targets(), ids=lambda target: f"lanes{target.lanes}")
@pytest.mark.parametrize("operand", ["lhs", "rhs"])
@pytest.mark.parametrize(
    ("patches", "dtype"),
    [
        (Patches(12, 10, 3, 1, 1), dt.f32),
        (Patches(9, 17, 3, 2, 0), dt.f32),
        (Patches(31, 5, 5, 1, 2), dt.bf16),
        (Patches(3, 3, 3, 1, 0), dt.f32),
        (Patches(20, 20, 1, 1, 0), dt.f32),
        (Patches(7, 40, 3, 1, 0), dt.f32),
        (Patches(12, 65, 3, 2, 1), dt.f32),
    ],
    ids=str,
)
def test_gathered_patches_are_the_patches(target: TargetText, operand: str, patches: Patches, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    channels, n = 37, 21
    image = rng.normal(size=(channels, patches.height, patches.width)).astype(numpy_dtype(dtype))
    k = channels * patches.kernel**2
    weights = rng.normal(size=(k, n)).astype(np.float32)
    rows = patches.matrix(image).astype(np.float32)
    m = len(rows)
    room = np.empty(scratch_bytes(GemmPlan.of(target, dt.f32)) + 64, np.uint8)
    scratch = room[-room.ctypes.data % 64 :]
    outs: list[Array] = []
    for one_by_one in (False, True):
        out = np.zeros((m, n) if operand == "lhs" else (n, m), np.float32)
        build(convolution(target, patches, dtype, operand, one_by_one))("run", out, image, weights, scratch, n, k)
        outs.append(out)
    np.testing.assert_array_equal(outs[0], outs[1])
    expected = rows.astype(np.float64) @ weights
    np.testing.assert_allclose(outs[0], expected if operand == "lhs" else expected.T, rtol=1e-4, atol=1e-4)


def test_offsets_split_by_axis() -> None:
    m, k, size = (Dim.symbol(name) for name in ("_m", "_k", "N"))
    assert split_by_axis(m // 7 * size + k % 3 - 4, ("_m", "_k")) == (Dim.constant(-4), m // 7 * size, k % 3)
    assert split_by_axis(m * k, ("_m", "_k")) is None
    assert split_by_axis((m + k) // 2, ("_m", "_k")) is None
