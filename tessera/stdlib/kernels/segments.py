"""Joining partial results of a contraction by an aligned binary tree, in one pass over any number of them.

A program has a block of the result and goes over the partial results in order, as a binary counter goes up: level `j`
holds the sum of an aligned run of 2^j of them. Each one that comes is added to the levels that its number carries over,
from the lowest up, so every sum is one of the tree, and at most one for each level is held.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.segments import MOST_SEGMENTS
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, bool_, i64

_BLOCK = 256
"""Elements of the result that a program has."""


def _is_number(b: TileBuilder, expr: Dim, wanted: int, region: TileRegion) -> SSAValue:
    """Whether an expression has a value, for each element."""
    return b.elementwise("eq", b.coordinate_of(expr, region), b.full(wanted, region.sizes, i64))


def _levels_of(count: Dim) -> int:
    most = count.value if count.value is not None else MOST_SEGMENTS
    return max(1, most.bit_length())


def _write_join(call: Call) -> list[SpecOp]:
    """[count, elements]: programs over blocks of elements, each with a loop over the parts."""
    (parts,), (out,) = call.operands, call.results
    count, size = parts.shape[0], product(out.shape)
    shapes: dict[int, tuple[Dim, ...]] = {call.inputs[0]: (count, size)}
    if call.outputs[0] is not None:
        shapes[call.outputs[0]] = (size,)
    b = call.builder([size.ceildiv(_BLOCK)], shapes=shapes)
    start = b.index(Dim.symbol("_p") * _BLOCK, {"_p": b.program_id(0)})
    region = TileRegion({"_e": start}, ("_e",), (_BLOCK,), {"_e": size})
    dtype: DType = parts.dtype
    levels = _levels_of(count)
    number = Dim.symbol("_s")

    def step(index: SSAValue, held: list[SSAValue]) -> list[SSAValue]:
        here = region.with_coords(_s=index)
        added = b.load(call.input(b, 0), (number, Dim.symbol("_e")), here)
        kept: list[SSAValue] = []
        for level, old in enumerate(held):
            # Of a number that ends in `level` ones, those levels are taken, and it goes on to this one.
            reaches = _is_number(b, number % (1 << level), (1 << level) - 1, here)
            is_taken = _is_number(b, number // (1 << level) % 2, 1, here)
            is_free = b.elementwise("xor", is_taken, b.full(True, region.sizes, bool_))
            kept.append(b.select(b.elementwise("and", reaches, is_free), added, old))
            added = b.select(b.elementwise("and", reaches, is_taken), b.elementwise("add", old, added), added)
        return kept

    nothing = [b.full(0, region.sizes, dtype) for _ in range(levels)]
    held = b.loop(b.index(0), b.index(count), 1, step, nothing)
    total = held[0]
    for level, run in enumerate(held[1:], 1):
        is_there = _is_number(b, count // (1 << level) % 2, 1, region)
        is_first = _is_number(b, count % (1 << level), 0, region)
        joined = b.select(is_first, run, b.elementwise("add", run, total))
        total = b.select(is_there, joined, total)
    b.store(b.cast(total, out.dtype), call.output(b, 0), (Dim.symbol("_e"),), region)
    return [b.finish()]


JOIN_SEGMENTS = LibraryKernel("join_segments", "Partial results joined by an aligned binary tree.", _write_join)
