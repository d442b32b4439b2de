"""Kernels whose workers meet in shared memory, each with what it computes, for the tests of barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.arrays import Array
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i32, i64
from tessera.types.shape import TensorType
from tests.tile.kernels import COLUMN, ROW, STEP, K, M, N, verify_kernel

A, B, T = Dim.symbol("a"), Dim.symbol("b"), Dim.symbol("t")
P = Dim.symbol("p")


class Lined(TileBuilder):
    """A builder that gives every op a line of its own."""

    line = 0

    def emit(self, *given: Any, **remainder: Any) -> SpecOp:
        self.line += 1
        self.span = Span("shared.py", self.line)
        return super().emit(*given, **remainder)


def transpose(block: int = 8) -> SpecOp:
    """y = x.T, a block a program: rows go in, columns come out."""
    types = [TensorType.of([M, N], f32), TensorType.of([N, M], f32)]
    grid = [M.ceildiv(block), N.ceildiv(block)]
    b = Lined("transpose", types, symbols=["M", "N"], grid=grid, writes=[1], kind="map")
    rows, columns = (b.index(P * block, {"p": b.program_id(axis)}) for axis in (0, 1))
    zero, shared = b.index(0), b.scratch([block, block], f32, space="shared")
    here = TileRegion({"a": zero, "b": zero}, ("a", "b"), (block, block))
    x = b.load(b.arguments[0], [ROW, COLUMN], _block(("i", rows, M), ("j", columns, N), size=block))
    b.store(x, shared, [A, B], here)
    b.barrier()
    turned = b.load(shared, [B, A], here)
    b.store(turned, b.arguments[1], [COLUMN, ROW], _block(("j", columns, N), ("i", rows, M), size=block))
    return verify_kernel(b.finish())


def _block(*axes: tuple[str, SSAValue, Dim], size: int) -> TileRegion:
    names = tuple(name for name, _, _ in axes)
    bounds = {name: bound for name, _, bound in axes}
    return TileRegion({name: start for name, start, _ in axes}, names, (size,) * len(axes), bounds)


def total(width: int = 16) -> SpecOp:
    """out[i] = sum of row i: `width` lanes, then a tree of halves."""
    types = [TensorType.of([M, N], f32), TensorType.of([M], f32)]
    b = Lined("total", types, symbols=["M", "N"], grid=[M], writes=[1], kind="row")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([width], f32, space="shared")

    def add(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "j": j}, ("j",), (width,), {"j": N})
        return [b.elementwise("add", carried[0], b.load(b.arguments[0], [ROW, COLUMN], region))]

    (lanes,) = b.loop(zero, b.index(N), width, add, [b.full(0.0, (width,), f32)])
    b.store(lanes, shared, [A], TileRegion({"a": zero}, ("a",), (width,)))
    half = width // 2
    while half:
        b.barrier()
        region = TileRegion({"a": zero, "i": row}, ("a",), (half,))
        both = b.elementwise("add", b.load(shared, [A], region), b.load(shared, [A + half], region))
        if half > 1:
            b.store(both, shared, [A], region)
        else:
            b.store(both, b.arguments[1], [ROW + A], region)
        half //= 2
    return verify_kernel(b.finish())


def reversed_blocks(buffers: int = 2, *, waits_after: bool = False, width: int = 8) -> SpecOp:
    """Each block of a row the other way round; with two buffers one barrier a step is enough, with one it takes two."""
    types = [TensorType.of([M, N], f32), TensorType.of([M, N.ceildiv(width) * width], f32)]
    b = Lined("reversed", types, symbols=["M", "N"], grid=[M], writes=[1], kind="row")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([buffers, width], f32, space="shared")

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "k": k, "a": zero}, ("a",), (width,))
        x = b.load(b.arguments[0], [ROW, STEP + A], region, windows=[STEP + A, N])
        b.store(x, shared, [(STEP // width) % buffers, A], region)
        b.barrier()
        turned = b.load(shared, [(STEP // width) % buffers, width - 1 - A], region)
        b.store(turned, b.arguments[1], [ROW, STEP + A], region)
        if waits_after:
            b.barrier()
        return []

    b.loop(zero, b.index(N), width, step)
    return verify_kernel(b.finish())


def prefetch(width: int = 8) -> SpecOp:
    """As `reversed_blocks`, with the next block on its way while this one is read: the wait comes first."""
    types = [TensorType.of([M, N], f32), TensorType.of([M, N.ceildiv(width) * width], f32)]
    b = Lined("prefetched", types, symbols=["M", "N"], grid=[M], writes=[1], kind="row")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([2, width], f32, space="shared")

    def bring(k: SSAValue, next_block: int) -> TileRegion:
        region = TileRegion({"i": row, "k": k, "a": zero}, ("a",), (width,))
        column = STEP + next_block * width + A
        x = b.load(b.arguments[0], [ROW, column], region, windows=[column, N])
        b.store(x, shared, [(STEP // width + next_block) % 2, A], region)
        return region

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        b.barrier()
        region = bring(k, 1)
        turned = b.load(shared, [(STEP // width) % 2, width - 1 - A], region)
        b.store(turned, b.arguments[1], [ROW, STEP + A], region)
        return []

    bring(zero, 0)
    b.loop(zero, b.index(N), width, step)
    return verify_kernel(b.finish())


def heat(width: int = 8) -> SpecOp:
    """K steps of `x[i] = (x[i - 1] + x[i + 1]) / 2` on a block with a halo that stays."""
    line = TensorType.of([N + 2], f32)
    b = Lined("heat", [line, line], symbols=["N", "K"], grid=[N // width], writes=[1], kind="map")
    start, zero = b.index(P * width, {"p": b.program_id(0)}), b.index(0)
    shared = b.scratch([width + 2], f32, space="shared")
    region = TileRegion({"i": start, "a": zero}, ("a",), (width,))
    edge = TileRegion({"i": start, "b": zero}, ("b",), (2,))
    b.store(b.load(b.arguments[0], [ROW + A + 1], region), shared, [A + 1], region)
    b.store(b.load(b.arguments[0], [ROW + B * (width + 1)], edge), shared, [B * (width + 1)], edge)
    b.barrier()

    def step(t: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        left, right = b.load(shared, [A], region), b.load(shared, [A + 2], region)
        b.barrier()
        mean = b.elementwise("mul", b.elementwise("add", left, right), b.full(0.5, (width,), f32))
        b.store(mean, shared, [A + 1], region)
        b.barrier()
        return []

    b.loop(zero, b.index(K), 1, step)
    b.store(b.load(shared, [A + 1], region), b.arguments[1], [ROW + A + 1], region)
    return verify_kernel(b.finish())


def histogram(bins: int = 16, width: int = 8) -> SpecOp:
    """How often each key stands in a row: workers add where keys say, and then look at all bins."""
    types = [TensorType.of([M, N], i64), TensorType.of([M, bins], i32)]
    b = Lined("histogram", types, symbols=["M", "N"], grid=[M], writes=[1], kind="library")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([bins], i32, space="shared")
    every = TileRegion({"i": row, "b": zero}, ("b",), (bins,))
    b.store(b.full(0, (bins,), i32), shared, [B], every)
    b.barrier()

    def count(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "j": j}, ("j",), (width,), {"j": N})
        keys = b.load(b.arguments[0], [ROW, COLUMN], region)
        b.store(b.full(1, (width,), i32), shared, [Dim.symbol("t0")], region, mode="add", indices=[keys])
        return []

    b.loop(zero, b.index(N), width, count)
    b.barrier()
    b.store(b.load(shared, [B], every), b.arguments[1], [ROW, B], every)
    return verify_kernel(b.finish())


def scan(width: int = 8) -> SpecOp:
    """Sums of all elements so far in a row: doubling distances in a block, and a carry from block to block."""
    types = [TensorType.of([M, N], f32), TensorType.of([M, N], f32)]
    b = Lined("scan", types, symbols=["M", "N"], grid=[M], writes=[1], kind="row")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([width], f32, space="shared")

    def step(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "j": j}, ("j",), (width,), {"j": N})
        own = TileRegion({"a": zero}, ("a",), (width,))
        x = b.load(b.arguments[0], [ROW, COLUMN], region)
        distance = 1
        while distance < width:
            b.store(x, shared, [A], own)
            b.barrier()
            x = b.elementwise("add", x, b.load(shared, [A - distance], own, windows=[A - distance, Dim.of(width)]))
            b.barrier()
            distance *= 2
        x = b.elementwise("add", x, carried[0])
        b.store(x, b.arguments[1], [ROW, COLUMN], region)
        b.store(x, shared, [A], own)
        b.barrier()
        last = b.load(shared, [A], TileRegion({"a": b.index(width - 1)}))
        b.barrier()
        return [b.broadcast(last, (width,), ())]

    b.loop(zero, b.index(N), width, step, [b.full(0.0, (width,), f32)])
    return verify_kernel(b.finish())


def matmul(BM: int = 4, BN: int = 8, BK: int = 4) -> SpecOp:
    """c = a @ b: both blocks are loaded as lines, and multiplied as blocks."""
    types = [TensorType.of(shape, f32) for shape in ([M, K], [K, N], [M, N])]
    grid = [M.ceildiv(BM), N.ceildiv(BN)]
    b = Lined("product", types, symbols=["M", "N", "K"], grid=grid, writes=[2], kind="contraction")
    rows = b.index(P * BM, {"p": b.program_id(0)})
    columns = b.index(P * BN, {"p": b.program_id(1)})
    zero = b.index(0)
    left, right = b.scratch([BM, BK], f32, space="shared"), b.scratch([BK, BN], f32, space="shared")
    here = TileRegion({"i": rows, "j": columns, "a": zero, "b": zero, "t": zero})

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        line = here.with_coords(k=k)
        at = [ROW + T // BK, STEP + T % BK]
        x = b.load(b.arguments[0], at, line.along(("t",), (BM * BK,), {}), windows=[at[0], M, at[1], K])
        b.store(x, left, [T // BK, T % BK], line.along(("t",), (BM * BK,), {}))
        at = [STEP + T // BN, COLUMN + T % BN]
        y = b.load(b.arguments[1], at, line.along(("t",), (BK * BN,), {}), windows=[at[0], K, at[1], N])
        b.store(y, right, [T // BN, T % BN], line.along(("t",), (BK * BN,), {}))
        b.barrier()
        lhs = b.load(left, [A, B], here.along(("a", "b"), (BM, BK), {}))
        rhs = b.load(right, [A, B], here.along(("a", "b"), (BK, BN), {}))
        acc = b.dot(lhs, rhs, carried[0])
        b.barrier()
        return [acc]

    (acc,) = b.loop(zero, b.index(K), BK, step, [b.full(0.0, (BM, BN), f32)])
    region = TileRegion({"i": rows, "j": columns}, ("i", "j"), (BM, BN), {"i": M, "j": N})
    b.store(acc, b.arguments[2], [ROW, COLUMN], region)
    return verify_kernel(b.finish())


def butterfly(width: int = 8) -> SpecOp:
    """The sum of a row of `width`, at every element: partners differ in one bit, which no formula of sizes says."""
    types = [TensorType.of([M, width], f32), TensorType.of([M, width], f32)]
    b = Lined("butterfly", types, symbols=["M"], grid=[M], writes=[1], kind="row")
    region = TileRegion({"i": b.program_id(0), "a": b.index(0)}, ("a",), (width,))
    shared = b.scratch([width], f32, space="shared")
    x, bit = b.load(b.arguments[0], [ROW, A], region), 1
    while bit < width:
        if bit > 1:
            b.barrier()
        b.store(x, shared, [A], region)
        b.barrier()
        partner = b.elementwise("xor", b.coordinate_of(A, region), b.full(bit, (width,), i64))
        x = b.elementwise("add", x, b.load(shared, [Dim.symbol("t0")], region, indices=[partner]))
        bit *= 2
    b.store(x, b.arguments[1], [ROW, A], region)
    return verify_kernel(b.finish())


def reverse_lengths(width: int = 8) -> SpecOp:
    """`reversed_blocks` of rows that are as long as memory says: how often workers wait is known to nobody before."""
    types = [TensorType.of([M, N], f32), TensorType.of([M], i64), TensorType.of([M, N.ceildiv(width) * width], f32)]
    b = Lined("measured", types, symbols=["M", "N"], grid=[M], writes=[2], kind="library")
    row, zero = b.program_id(0), b.index(0)
    shared = b.scratch([width], f32, space="shared")
    end = b.fetch(b.arguments[1], [ROW], {"i": row})

    def step(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        region = TileRegion({"i": row, "k": k, "a": zero}, ("a",), (width,))
        x = b.load(b.arguments[0], [ROW, STEP + A], region, windows=[STEP + A, N])
        b.store(x, shared, [A], region)
        b.barrier()
        b.store(b.load(shared, [width - 1 - A], region), b.arguments[2], [ROW, STEP + A], region)
        b.barrier()
        return []

    b.loop(zero, end, width, step)
    return verify_kernel(b.finish())


@dataclass(frozen=True)
class Case:
    """A kernel, and how to see that it is right: buffers for sizes, the last of which holds what is wanted after."""

    make: Callable[[], SpecOp]
    sizes: Mapping[str, int]
    buffers: Callable[[np.random.Generator, Mapping[str, int]], list[Array]]
    wanted: Callable[..., Array]


def _floats(*shapes: Sequence[str | int]) -> Callable[[np.random.Generator, Mapping[str, int]], list[Array]]:
    """Whole numbers as floats, of which sums are exact in any order; the last buffer is zero."""

    def make(rng: np.random.Generator, sizes: Mapping[str, int]) -> list[Array]:
        found = [rng.integers(-8, 8, [Dim.of(dim).evaluate(sizes) for dim in shape]) for shape in shapes]
        found[-1][...] = 0
        return [array.astype(np.float32) for array in found]

    return make


def _reverse_blocks(x: Array, width: int = 8) -> Array:
    rows, columns = x.shape
    padded = np.pad(x, ((0, 0), (0, -columns % width)))
    return padded.reshape(rows, -1, width)[:, :, ::-1].reshape(rows, -1)


def _diffuse(x: Array, steps: int, width: int = 8) -> Array:
    out = np.zeros_like(x)
    for start in range(0, (len(x) - 2) // width * width, width):
        block = x[start : start + width + 2].copy()
        for _ in range(steps):
            block[1:-1] = (block[:-2] + block[2:]) * np.float32(0.5)
        out[start + 1 : start + width + 1] = block[1:-1]
    return out


def _keys(rng: np.random.Generator, sizes: Mapping[str, int]) -> list[Array]:
    return [rng.integers(0, 16, (sizes["M"], sizes["N"])), np.zeros((sizes["M"], 16), np.int32)]


def _lengths(rng: np.random.Generator, sizes: Mapping[str, int]) -> list[Array]:
    x, out = _floats(["M", "N"], ["M", "(N + 7) // 8 * 8"])(rng, sizes)
    return [x, rng.integers(0, sizes["N"] + 1, sizes["M"]), out]


def _reverse_to_lengths(x: Array, lengths: Array) -> Array:
    found = _reverse_blocks(x)
    for row, length in zip(found, lengths, strict=True):
        row[-(-length // 8) * 8 :] = 0
    return found


def _transpose(x: Array) -> Array:
    return x.T


def _sum_rows(x: Array) -> Array:
    return x.sum(1)


def _diffuse_thrice(x: Array) -> Array:
    return _diffuse(x, 3)


def _counts(keys: Array) -> Array:
    return np.stack([np.bincount(row, minlength=16) for row in keys]).astype(np.int32)


def _cumulate(x: Array) -> Array:
    return np.cumsum(x, 1)


def _multiply(x: Array, y: Array) -> Array:
    return x @ y


def _repeat_total(x: Array) -> Array:
    return np.repeat(x.sum(1, keepdims=True), x.shape[1], 1)


def single_buffered() -> SpecOp:
    return reversed_blocks(1, waits_after=True)


_BLOCKS = _floats(["M", "N"], ["M", "(N + 7) // 8 * 8"])
_ODD = {"M": 3, "N": 37}

CASES: dict[str, Case] = {
    "transpose": Case(transpose, {"M": 11, "N": 21}, _floats(["M", "N"], ["N", "M"]), _transpose),
    "total": Case(total, _ODD, _floats(["M", "N"], ["M"]), _sum_rows),
    "double_buffered": Case(reversed_blocks, _ODD, _BLOCKS, _reverse_blocks),
    "single_buffered": Case(single_buffered, _ODD, _BLOCKS, _reverse_blocks),
    "prefetched": Case(prefetch, _ODD, _BLOCKS, _reverse_blocks),
    "heat": Case(heat, {"N": 16, "K": 3}, _floats(["N + 2"], ["N + 2"]), _diffuse_thrice),
    "histogram": Case(histogram, _ODD, _keys, _counts),
    "scan": Case(scan, _ODD, _floats(["M", "N"], ["M", "N"]), _cumulate),
    "product": Case(matmul, {"M": 6, "N": 11, "K": 9}, _floats(["M", "K"], ["K", "N"], ["M", "N"]), _multiply),
    "butterfly": Case(butterfly, {"M": 3}, _floats(["M", 8], ["M", 8]), _repeat_total),
    "measured": Case(reverse_lengths, {"M": 5, "N": 37}, _lengths, _reverse_to_lengths),
}
