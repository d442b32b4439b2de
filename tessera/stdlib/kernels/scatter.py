"""Writing rows by index: a copy, unless it is in place, then one index after the other: equal ones have one answer."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, minimum

_BLOCK = 4096
"""Elements that one program copies."""


def _copy(call: Call) -> SpecOp:
    """The operand into the result, as one long line."""
    size = call.operands[0].size
    width = 4 * call.lanes
    result = call.outputs[0]
    assert result is not None
    b = call.builder([size.ceildiv(_BLOCK)], "copy", {call.inputs[0]: (size,), result: (size,)})
    start = Dim.symbol("_p") * _BLOCK
    program = {"_p": b.program_id(0)}

    def move(i: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = Place({"_i": i}, ("_i",), (width,), {"_i": size})
        at = [Dim.symbol("_i")]
        b.store(b.load(call.input(b, 0), at, place), call.output(b, 0), at, place)
        return carried

    b.loop(b.index(start, program), b.index(minimum(size, start + _BLOCK), program), width, move)
    return b.finish()


def _write(call: Call) -> list[SpecOp]:
    """`out[o, indices[n], j]` for all n in order: programs over o and blocks of j, which no other program writes."""
    x, indices, _ = call.operands
    outer, _, inner = x.shape
    is_vector = inner.value != 1
    width = call.choose("scatter.tile", [times * call.lanes for times in (4, 2, 1, 8)]) if is_vector else 1
    b = call.builder([outer, inner.ceildiv(width)] if is_vector else [outer])
    coords = {"_o": b.program_id(0)}
    if is_vector:
        coords["_j"] = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(1)})
    bounds = {} if inner.value is not None and inner.value % width == 0 else {"_j": inner}
    narrow = call.narrow_accumulator
    outer_at, column = Dim.symbol("_o"), Dim.symbol("_j") if is_vector else Dim.constant(0)

    def put(n: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        number, row = Dim.symbol("_n"), Dim.symbol("_r")
        here = {**coords, "_n": n, "_r": b.fetch(call.input(b, 1), [number], {"_n": n})}
        place = Place(here, ("_j",), (width,), bounds) if is_vector else Place(here)
        update = b.load(call.input(b, 2), [outer_at, number, column], place)
        if call.attributes["mode"] == "add":
            update = b.elementwise("add", b.load(call.output(b, 0), [outer_at, row, column], place), update)
            update = update if narrow is None else b.round(update, format=narrow)
        b.store(update, call.output(b, 0), [outer_at, row, column], place, checked=call.attributes["checked"])
        return carried

    b.loop(b.index(0), b.index(indices.shape[0]), 1, put)
    writer = b.finish()
    return [writer] if call.attributes["in_place"] else [_copy(call), writer]


KERNEL = LibraryKernel("scatter", "Rows replaced or added to by index, in the order of the indices.", _write)
