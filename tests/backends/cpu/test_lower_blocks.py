"""Kernels with products inside, written in the tile language: machine code equals the interpreter at ragged sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.passes.compare_accesses import compare_accesses
from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types import dtype as dt
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType, f32, i64
from tessera.types.shape import TensorType
from tests.backends.cpu.native import assert_close, build, fill, interpret, machines

M, N, K = (Dim.symbol(name) for name in "MNK")
I, J, D = (Dim.symbol(name) for name in "ijd")  # noqa: E741 - names of coordinates
BM, BN, BK = 16, 32, 8
RAGGED = ({"M": 16, "N": 32, "K": 8}, {"M": 37, "N": 45, "K": 19}, {"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 70, "K": 0})


def agree(kernel: SpecOp, sizes: Mapping[str, int], ulps: int = 0) -> None:
    arrays = fill(kernel, sizes, seed=3)
    expected = interpret(kernel, arrays, sizes)
    for machine in machines():
        compare_accesses(kernel, lower_kernel(kernel, machine))
        assert_close(build(kernel, machine).run(arrays, sizes, threads=2), expected, ulps)


def builder(
    name: str, shapes: Sequence[Sequence[DimLike]], dtypes: Sequence[DType], writes: Sequence[int]
) -> TileBuilder:
    """A kernel with a block of rows and one of columns to a program."""
    types = [TensorType.of(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    grid = [M.ceildiv(BM), N.ceildiv(BN)]
    return TileBuilder(name, types, symbols=["M", "N", "K"], grid=grid, writes=writes, kind="library")


def block(b: TileBuilder) -> TileRegion:
    rows = b.index(Dim.symbol("p") * BM, {"p": b.program_id(0)})
    columns = b.index(Dim.symbol("p") * BN, {"p": b.program_id(1)})
    return TileRegion({"i": rows, "j": columns}, ("i", "j"), (BM, BN), {"i": M, "j": N})


def dot(b: TileBuilder, region: TileRegion, start: float = 0.0) -> SSAValue:
    """The block of `arguments[0] @ arguments[1]`."""

    def step(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = region.with_coords(d=d)
        lhs = b.load(b.arguments[0], [I, D], here.along(("i", "d"), (BM, BK), {"i": M, "d": K}))
        rhs = b.load(b.arguments[1], [D, J], here.along(("d", "j"), (BK, BN), {"d": K, "j": N}))
        return [b.dot(b.cast(lhs, f32), b.cast(rhs, f32), carried[0])]

    (total,) = b.loop(b.index(0), b.index(K), BK, step, [b.full(start, (BM, BN), f32)])
    return total


def linear(dtype: DType = f32) -> SpecOp:
    """out = relu(x @ w + bias): a row of biases for all rows of a block."""
    b = builder("linear", [[M, K], [K, N], [N], [M, N]], [dtype] * 4, [3])
    region = block(b)
    bias = b.cast(b.load(b.arguments[2], [J], region.along(("j",), (BN,), {"j": N})), f32)
    doubled = b.elementwise("add", bias, b.full(1.0, (BN,), f32))
    total = b.elementwise("add", dot(b, region), b.broadcast(doubled, (BM, BN), (1,)))
    b.store(b.cast(b.elementwise("relu", total), dtype), b.arguments[3], [I, J], region)
    return b.finish()


@pytest.mark.parametrize("dtype", [f32, dt.bf16, dt.f16], ids=str)
@pytest.mark.parametrize("sizes", RAGGED, ids=str)
def test_a_row_of_biases(sizes: Mapping[str, int], dtype: DType) -> None:
    agree(linear(dtype), sizes)


def scale() -> SpecOp:
    """out = (x @ w + 2) * scale of the row, and where each row of the block is largest."""
    b = builder("scaled", [[M, K], [K, N], [M], [M, N], [M, N.ceildiv(BN)]], [f32, f32, f32, f32, i64], [3, 4])
    region = block(b)
    total = dot(b, region, 2.0)
    rows = region.along(("i",), (BM,), {"i": M})
    scale = b.broadcast(b.load(b.arguments[2], [I], rows), (BM, BN), (0,))
    total = b.elementwise("mul", total, scale)
    b.store(total, b.arguments[3], [I, J], region)
    inside = b.clip(total, "j", float("-inf"), region)
    best = b.arg_reduce(inside, b.coordinate_of(J, region), "argmax", 1)
    b.store(best, b.arguments[4], [I, J // BN], rows)
    return b.finish()


@pytest.mark.parametrize("sizes", RAGGED, ids=str)
def test_a_scale_of_rows_and_indices_of_maxima(sizes: Mapping[str, int]) -> None:
    agree(scale(), sizes)


def two_dots() -> SpecOp:
    """out = softmax-like powers of (x @ w), times v: what lies between products walks over rows."""
    b = builder("twice", [[M, K], [K, N], [N, 16], [M, N.ceildiv(BN), 16]], [f32] * 4, [3])
    region = block(b)
    scores = b.clip(dot(b, region), "j", 0.0, region)
    top = b.broadcast(b.reduce(scores, "max", 1), (BM, BN), (0,))
    weights = b.clip(b.elementwise("sub", scores, top), "j", 0.0, region)
    zero = b.index(0)
    values = TileRegion({**region.coords, "e": zero}, ("j", "e"), (BN, 16), {"j": N})
    v = b.load(b.arguments[2], [J, Dim.symbol("e")], values)
    out = b.dot(weights, v, b.full(0.0, (BM, 16), f32))
    there = TileRegion({**region.coords, "e": zero}, ("i", "e"), (BM, 16), {"i": M})
    b.store(out, b.arguments[3], [I, J // BN, Dim.symbol("e")], there)
    return b.finish()


@pytest.mark.parametrize("sizes", RAGGED, ids=str)
def test_a_dot_of_what_was_made_of_another(sizes: Mapping[str, int]) -> None:
    agree(two_dots(), sizes)


def reduce_dot(axis: int) -> SpecOp:
    b = builder("reduced", [[M, K], [K, N], [N if axis == 0 else M]], [f32] * 3, [2])
    region = block(b)
    name = "j" if axis == 0 else "i"
    rest = region.along((name,), (BN if axis == 0 else BM,), {name: N if axis == 0 else M})
    b.store(b.reduce(dot(b, region), "max", axis), b.arguments[2], [Dim.symbol(name)], rest)
    return b.finish()


def test_what_needs_all_rows_at_once_is_refused() -> None:
    for machine in machines():
        with pytest.raises(TargetVerifyError, match="reduces tiles along their rows"):
            lower_kernel(reduce_dot(0), machine)
        lower_kernel(reduce_dot(1), machine)


def rounded_operands(first: DType, second: DType) -> SpecOp:
    """out = x @ (w in other dtypes, one after the other)."""
    b = builder("rounded", [[M, K], [K, N], [M, N]], [f32] * 3, [2])
    region = block(b)

    def step(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = region.with_coords(d=d)
        lhs = b.load(b.arguments[0], [I, D], here.along(("i", "d"), (BM, BK), {"i": M, "d": K}))
        rhs = b.load(b.arguments[1], [D, J], here.along(("d", "j"), (BK, BN), {"d": K, "j": N}))
        return [b.dot(lhs, b.cast(b.cast(rhs, first), second), carried[0])]

    (total,) = b.loop(b.index(0), b.index(K), BK, step, [b.full(0.0, (BM, BN), f32)])
    b.store(total, b.arguments[2], [I, J], region)
    return b.finish()


def test_an_operand_in_wider_numbers_and_back_is_what_it_was() -> None:
    agree(rounded_operands(dt.f64, f32), RAGGED[1])


@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.i32], ids=str)
def test_an_operand_that_is_rounded_before_its_dot_is_refused(dtype: DType) -> None:
    with pytest.raises(TargetVerifyError, match=f"f32 is rounded to {dtype} before a dot"):
        lower_kernel(rounded_operands(dtype, f32), machines()[0])


def computed_operand() -> SpecOp:
    """out = x @ relu(w)."""
    b = builder("computed", [[M, K], [K, N], [M, N]], [f32] * 3, [2])
    region = block(b)

    def step(d: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = region.with_coords(d=d)
        lhs = b.load(b.arguments[0], [I, D], here.along(("i", "d"), (BM, BK), {"i": M, "d": K}))
        rhs = b.load(b.arguments[1], [D, J], here.along(("d", "j"), (BK, BN), {"d": K, "j": N}))
        return [b.dot(lhs, b.elementwise("relu", rhs), carried[0])]

    (total,) = b.loop(b.index(0), b.index(K), BK, step, [b.full(0.0, (BM, BN), f32)])
    b.store(total, b.arguments[2], [I, J], region)
    return b.finish()


def test_an_operand_that_is_computed_is_refused() -> None:
    with pytest.raises(TargetVerifyError, match="the B operand of a dot is read from memory"):
        lower_kernel(computed_operand(), machines()[0])


def two_heights(second: Mapping[str, Dim], *, is_line: bool = False, shift: int = 0) -> SpecOp:
    """out = x @ w, and the same once more within other bounds, or a row of it elsewhere."""
    b = builder("heights", [[M, K], [K, N], [M, N], [M, N]], [f32] * 4, [2, 3])
    region = block(b)
    total = dot(b, region)
    b.store(total, b.arguments[2], [I, J], region)
    there = region
    if shift:
        later = b.index(Dim.symbol("i") + shift, {"i": region.coords["i"]})
        there = TileRegion({**region.coords, "i": later}, ("i", "j"), (BM, BN), {"i": M, "j": N})
    if is_line:
        line = b.load(b.arguments[1], [Dim.constant(0), J], region.along(("j",), (BN,), {"j": N}))
        b.store(line, b.arguments[3], [Dim.constant(0), J], region.along(("j",), (BN,), {"j": N}))
    else:
        b.store(total, b.arguments[3], [I, J], there.along(("i", "j"), (BM, BN), dict(second)))
    return b.finish()


@pytest.mark.parametrize(
    "kernel",
    [
        two_heights({"i": Dim.constant(7), "j": N}),
        two_heights({"j": N}),
        two_heights({"i": M, "j": N}, shift=3),
        two_heights({}, is_line=True),
    ],
    ids=["another bound", "no bound", "another region", "along a row"],
)
def test_stores_that_keep_to_different_rows_are_refused(kernel: SpecOp) -> None:
    with pytest.raises(TargetVerifyError, match="all stores of a kernel that multiplies tiles keep to the same rows"):
        lower_kernel(kernel, machines()[0])


def test_stores_of_the_same_rows_need_not_share_their_index() -> None:
    for sizes in RAGGED:
        agree(two_heights({"i": M, "j": N}), sizes)


def added_rows(bound: DimLike) -> SpecOp:
    """out = x @ w + y, where y has rows up to a bound."""
    b = builder("added", [[M, K], [K, N], [M, N], [M, N]], [f32] * 4, [3])
    region = block(b)
    more = b.load(b.arguments[2], [I, J], region.along(("i", "j"), (BM, BN), {"i": Dim.of(bound), "j": N}))
    b.store(b.elementwise("add", dot(b, region), more), b.arguments[3], [I, J], region)
    return b.finish()


def test_a_load_that_ends_before_the_stores_is_refused() -> None:
    agree(added_rows(M), RAGGED[1])
    with pytest.raises(TargetVerifyError, match="`i` of this load ends at 7"):
        lower_kernel(added_rows(7), machines()[0])
