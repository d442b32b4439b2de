"""Sorting rows: each in the memory of one program, together with the places its elements came from."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim
from tessera.types.dtype import DType, i8, i64, u8


def _key(dtype: DType) -> DType:
    """What elements are compared as: every value of `dtype` has its own, in the same order."""
    return u8 if dtype.is_bool else i8 if dtype.name == "i4" else dtype.compute


def _write(call: Call) -> list[SpecOp]:
    """A row a program: keys and places into scratch, sorted there, and out; a result no one wants stays inside."""
    (x,) = call.operands
    rows, count = x.shape
    width = call.choose("sort.tile", [times * call.lanes for times in (2, 1, 4)])
    key = _key(x.dtype)
    b = call.builder([rows])
    row, low, high = b.program_id(0), b.index(0), b.index(count)
    keys, spare_keys = b.scratch([count], key), b.scratch([count], key)
    places, spare_places = b.scratch([count], i64), b.scratch([count], i64)
    column = [Dim.symbol("_j")]
    at = [Dim.symbol("_i"), *column]

    def here(j: SSAValue) -> Place:
        return Place({"_i": row, "_j": j}, ("_j",), (width,), {"_j": count})

    def fill(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = here(j)
        b.store(b.cast(b.load(call.input(b, 0), at, place), key), keys, column, place)
        b.store(b.coordinate_of(column[0], place), places, column, place)
        return carried

    def empty(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = here(j)
        if call.outputs[0] is not None:
            b.store(b.cast(b.load(keys, column, place), x.dtype), call.output(b, 0), at, place)
        if call.outputs[1] is not None:
            b.store(b.load(places, column, place), call.output(b, 1), at, place)
        return carried

    b.loop(low, high, width, fill)
    b.sort(keys, places, [spare_keys, spare_places], high, descending=bool(call.attributes["descending"]))
    b.loop(low, high, width, empty)
    return [b.finish()]


KERNEL = LibraryKernel("sort", "Rows in order and where their elements came from; stable, NaN last.", _write)
