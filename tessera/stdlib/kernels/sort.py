"""Sorting rows: each in the memory of one program, together with the places its elements came from.

Where only the first few are wanted, and that is cheaper, they are selected instead (`select.py`).
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place
from tessera.stdlib.kernels import select
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType, i8, i64, u8


def _key(dtype: DType) -> DType:
    """What elements are compared as: every value of `dtype` has its own, in the same order."""
    return u8 if dtype.is_bool else i8 if dtype.name == "i4" else dtype.compute


def _write(call: Call) -> list[SpecOp]:
    """In order as a whole, or only the first few: as the static model has it, unless somebody chooses."""
    if int(call.attributes.get("keep", -1)) < 0:
        return _write_sorted(call)
    ways = ["select", "sort"] if select.is_selected(call) else ["sort", "select"]
    return select.write(call) if call.choose("topk.way", ways) == "select" else _write_sorted(call)


def _write_sorted(call: Call) -> list[SpecOp]:
    """A row a program: keys and places into scratch, sorted there, and out; a result no one wants stays inside."""
    (x,), (values, _) = call.operands, call.results
    rows, count = x.shape
    # A row has what is kept of it, which the shape rule knows and a kernel does not.
    kept = count if values.shape[1] == count else minimum(values.shape[1], count)
    width = call.choose("sort.tile", [times * call.lanes for times in (2, 1, 4)])
    key = _key(x.dtype)
    b = call.builder([rows])
    row, low, high = b.program_id(0), b.index(0), b.index(count)
    keys, spare_keys = b.scratch([count], key), b.scratch([count], key)
    places, spare_places = b.scratch([count], i64), b.scratch([count], i64)
    column = [Dim.symbol("_j")]
    at = [Dim.symbol("_i"), *column]

    def here(j: SSAValue, extent: Dim = count) -> Place:
        return Place({"_i": row, "_j": j}, ("_j",), (width,), {"_j": extent})

    def fill(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = here(j)
        b.store(b.cast(b.load(call.input(b, 0), at, place), key), keys, column, place)
        b.store(b.coordinate_of(column[0], place), places, column, place)
        return carried

    def empty(j: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        place = here(j, kept)
        if call.outputs[0] is not None:
            b.store(b.cast(b.load(keys, column, place), x.dtype), call.output(b, 0), at, place)
        if call.outputs[1] is not None:
            b.store(b.load(places, column, place), call.output(b, 1), at, place)
        return carried

    b.loop(low, high, width, fill)
    b.sort(keys, places, [spare_keys, spare_places], high, descending=bool(call.attributes["descending"]))
    b.loop(low, high if kept == count else b.index(kept), width, empty)
    return [b.finish()]


KERNEL = LibraryKernel("sort", "Rows in order and where their elements came from; stable, NaN last.", _write)
