"""Loads of lanes that lie a few elements apart, run backwards, or are narrower than what is gathered at a time."""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.types import bytes_of, vector

_FARTHEST = 4
"""The most elements from lane to lane; farther apart, an address for each lane costs no more."""


def can_pick(step: int | None, lanes: int) -> bool:
    """Whether lanes so far apart are picked from vectors; None is a step that is not known."""
    return step is not None and 1 <= abs(step) <= _FARTHEST and lanes > 1 and lanes & (lanes - 1) == 0


def load_apart(
    f: FunctionText, first: Value, stored: str, lanes: int, step: int, mask: Value | None, pad: Value | None
) -> Value:
    """Elements `step` apart from the address of lane 0 on; lanes that `mask` leaves out read `pad` (zero).

    Nothing is touched outside of the stretch from the first lane to the last, and under a mask nothing but its lanes.
    """
    apart, back = abs(step), min(step, 0) * (lanes - 1)
    begin = f.gep(first, f.const_i(back), stored) if back else first
    place = [step * lane - back for lane in range(lanes)]
    starts = [part * lanes for part in range(apart - 1)] + [(apart - 1) * (lanes - 1)]
    found: Value | None = None
    done: dict[int, int] = {}
    for start in starts:
        here = {lane: at - start for lane, at in enumerate(place) if lane not in done and at < start + lanes}
        address = f.gep(begin, f.const_i(start), stored) if start else begin
        part = _load(f, address, vector(stored, lanes), {at: lane for lane, at in here.items()}, mask, pad)
        if found is None:
            found = f.shuffle(part, None, [here.get(lane, -1) for lane in range(lanes)])
        else:
            picked = {**done, **{lane: lanes + at for lane, at in here.items()}}
            found = f.shuffle(found, part, [picked.get(lane, -1) for lane in range(lanes)])
        done.update({lane: lane for lane in here})
    assert found is not None
    return found


def _load(
    f: FunctionText, address: Value, type_: str, lanes: dict[int, int], mask: Value | None, pad: Value | None
) -> Value:
    """A vector of neighbours, of which those are read that a lane inside wants."""
    if mask is None:
        return f.load(address, type_)
    count = mask.lanes
    none = f.lane_mask(0, count)
    wanted = f.shuffle(mask, none, [lanes.get(element, count) for element in range(count)])
    return f.masked_load(address, type_, wanted, pad)


def gather_narrow(f: FunctionText, pointers: Value, stored: str, mask: Value, pad: Value) -> Value:
    """Elements of one or two bytes from any addresses, each taken from the aligned word around it.

    The machine gathers words: of anything narrower LLVM makes a branch and a load for each lane, which takes long to
    compile and to run. A word that holds an element lies in the page of that element, so nothing is read that is not
    there, and lanes outside of the mask are not read.
    """
    at = f.cast("ptrtoint", pointers, "i64")
    words = f.cast("inttoptr", f.op("and", at, f.const("i64", -4, mask.lanes)), "ptr")
    zero = f.const("i32", 0, mask.lanes)
    found = f.gather(words, vector("i32", mask.lanes), mask, zero, 4)
    bits = f.op(
        "shl", f.op("and", f.cast("trunc", at, "i32"), f.const("i32", 3, mask.lanes)), f.const("i32", 3, mask.lanes)
    )
    whole = f.cast("trunc", f.op("lshr", found, bits), f"i{8 * bytes_of(stored)}")
    return f.select(mask, f.bitcast(whole, vector(stored, mask.lanes)), pad)
