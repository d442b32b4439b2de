"""Parts of an attention joined: each weighs what its scores are of the sum of all, and they are added in order."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place, TileBuilder
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim

_BLOCK = 32
"""Parts that are looked at together for their maximum and their sum."""
_COLUMNS = 128
_LOW = float("-inf")


def _write(call: Call) -> list[SpecOp]:
    """Programs over batch, heads and columns; a loop over the parts carries the columns of the result."""
    (parts, lse), (out,) = call.operands, call.results
    count, width = parts.shape[2], parts.shape[3]
    columns = width.value if width.value and width.value <= 2 * _COLUMNS else _COLUMNS
    b = call.builder([*parts.shape[:2], width.ceildiv(columns)])
    start = b.index(Dim.symbol("_p") * columns, {"_p": b.program_id(2)})
    coords = {"_b": b.program_id(0), "_h": b.program_id(1), "_e": start}
    row, dtype = [Dim.symbol("_b"), Dim.symbol("_h")], lse.dtype.compute
    bounds = {} if width.value is not None and width.value % columns == 0 else {"_e": width}
    place = Place(coords, ("_e",), (columns,), bounds)

    def logarithms(p: SSAValue) -> tuple[SSAValue, Place]:
        at = Place({**coords, "_s": p}, ("_s",), (_BLOCK,), {"_s": count})
        return b.cast(b.load(call.input(b, 1), call.at(1, [*row, Dim.symbol("_s")]), at), dtype), at

    def larger(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        return [b.elementwise("max", carried[0], b.clip(found, "_s", _LOW, at))]

    low, high = b.index(0), b.index(count)
    tops = b.loop(low, high, _BLOCK, larger, [b.full(_LOW, (_BLOCK,), dtype)])[0]
    top = _finite(call, b, b.reduce(tops, "max", 0))

    def summed(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        found, at = logarithms(p)
        powers = b.elementwise("exp", b.elementwise("sub", found, b.broadcast(top, (_BLOCK,), ())))
        return [b.elementwise("add", carried[0], b.clip(powers, "_s", 0.0, at))]

    total = b.reduce(b.loop(low, high, _BLOCK, summed, [b.full(0.0, (_BLOCK,), dtype)])[0], "sum", 0)
    none = b.elementwise("eq", total, b.full(0.0, (), dtype))
    divisor = b.select(none, b.full(1.0, (), dtype), total)

    def joined(p: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        at = [*row, Dim.symbol("_s")]
        one = b.cast(b.load(call.input(b, 1), call.at(1, at), Place({**coords, "_s": p})), dtype)
        share = b.elementwise("div", b.elementwise("exp", b.elementwise("sub", one, top)), divisor)
        part = b.cast(b.load(call.input(b, 0), call.at(0, [*at, Dim.symbol("_e")]), place.with_coords(_s=p)), dtype)
        return [b.elementwise("fma", b.broadcast(share, (columns,), ()), part, carried[0])]

    acc = b.loop(low, high, 1, joined, [b.full(0.0, (columns,), dtype)])[0]
    made, where = b.cast(acc, out.dtype), [*row, Dim.constant(0), Dim.symbol("_e")]
    if call.outputs[0] is not None:
        b.store(made, call.output(b, 0), where, place)
    if call.epilogue is not None:
        call.epilogue.store(b, made, place, where)
    return [b.finish()]


def _finite(call: Call, b: TileBuilder, top: SSAValue) -> SSAValue:
    """What to take off: where nothing was seen any number will do, and -inf would not."""
    dtype = call.operands[1].dtype.compute
    nothing = b.elementwise("eq", top, b.full(_LOW, (), dtype))
    return b.select(nothing, b.full(0.0, (), dtype), top)


KERNEL = LibraryKernel("attention_join", "Parts of an attention, weighed by their shares of the sum.", _write)
