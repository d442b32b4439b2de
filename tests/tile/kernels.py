"""Small kernels written in the tile language, for the tests of this stage."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f32
from tessera.types.shape import TensorType

M, N, K = Dim.symbol("M"), Dim.symbol("N"), Dim.symbol("K")
ROW, COLUMN, STEP = Dim.symbol("i"), Dim.symbol("j"), Dim.symbol("k")


def verify_kernel(kernel: SpecOp) -> SpecOp:
    """The kernel, verified in a module of its own."""
    verify(ModuleOp([kernel]))
    return kernel


def span(line: int) -> Span:
    return Span("kernels.py", line)


def double(dtype: DType = f32, block: int = 8, *, bound: Dim | None = N, store: Dim = ROW) -> SpecOp:
    """out[i] = x[i] + x[i], `block` elements a program; `bound` and `store` can be made wrong."""
    vector = TensorType.of([N], dtype)
    b = TileBuilder("double", [vector, vector], symbols=["N"], grid=[N.ceildiv(block)], writes=[1], kind="map")
    start = b.index(Dim.symbol("p") * block, {"p": b.program_id(0)})
    region = TileRegion({"i": start}, ("i",), (block,), {} if bound is None else {"i": bound})
    b.span = span(3)
    x = b.load(b.arguments[0], [ROW], region)
    b.span = span(4)
    b.store(b.elementwise("add", x, x), b.arguments[1], [store], region)
    return verify_kernel(b.finish())


def gemm(BM: int = 8, BN: int = 8, BK: int = 4, dtype: DType = f32) -> SpecOp:
    """c = a @ b, one BM x BN block a program."""
    types = [TensorType.of(shape, dtype) for shape in ([M, K], [K, N], [M, N])]
    grid = [M.ceildiv(BM), N.ceildiv(BN)]
    b = TileBuilder("gemm", types, symbols=["M", "N", "K"], grid=grid, writes=[2], kind="contraction")
    rows = b.index(Dim.symbol("p") * BM, {"p": b.program_id(0)})
    columns = b.index(Dim.symbol("p") * BN, {"p": b.program_id(1)})
    coords = {"i": rows, "j": columns}

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = TileRegion({**coords, "k": k})
        lhs = b.load(b.arguments[0], [ROW, STEP], here.along(("i", "k"), (BM, BK), {"i": M, "k": K}))
        rhs = b.load(b.arguments[1], [STEP, COLUMN], here.along(("k", "j"), (BK, BN), {"k": K, "j": N}))
        return [b.dot(lhs, rhs, carried[0])]

    (acc,) = b.loop(b.index(0), b.index(K), BK, step, [b.full(0.0, (BM, BN), f32)])
    region = TileRegion(coords, ("i", "j"), (BM, BN), {"i": M, "j": N})
    b.store(b.cast(acc, dtype), b.arguments[2], [ROW, COLUMN], region)
    return verify_kernel(b.finish())


def softmax(block: int = 32) -> SpecOp:
    """One row a program, `block` lanes, three passes over the row."""
    matrix = TensorType.of([M, N], f32)
    b = TileBuilder("softmax", [matrix, matrix], symbols=["M", "N"], grid=[M], writes=[1], kind="row")
    row = b.program_id(0)
    low, high = b.index(0), b.index(N)

    def lanes(j: SSAValue, pad: float) -> tuple[SSAValue, TileRegion]:
        region = TileRegion({"i": row, "j": j}, ("j",), (block,), {"j": N})
        return b.load(b.arguments[0], [ROW, COLUMN], region, pad=pad), region

    def top(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        return [b.elementwise("max", carried[0], lanes(j, float("-inf"))[0])]

    (tops,) = b.loop(low, high, block, top, [b.full(float("-inf"), (block,), f32)])
    largest = b.broadcast(b.reduce(tops, "max", 0), (block,), ())

    def add(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        x, region = lanes(j, 0.0)
        power = b.clip(b.elementwise("exp", b.elementwise("sub", x, largest)), "j", 0.0, region)
        return [b.elementwise("add", carried[0], power)]

    (sums,) = b.loop(low, high, block, add, [b.full(0.0, (block,), f32)])
    total = b.broadcast(b.reduce(sums, "sum", 0), (block,), ())

    def write(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        x, region = lanes(j, 0.0)
        power = b.elementwise("exp", b.elementwise("sub", x, largest))
        b.store(b.elementwise("div", power, total), b.arguments[1], [ROW, COLUMN], region)
        return []

    b.loop(low, high, block, write)
    return verify_kernel(b.finish())
