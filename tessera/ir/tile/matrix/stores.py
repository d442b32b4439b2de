"""How tiles leave a kernel on matrix units: which stores go through shared memory, and in which boxes."""

from __future__ import annotations

from collections.abc import Iterable

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.hopper_limits import ROWS, SPAN
from tessera.ir.tile.copied import COLUMNS, REGISTERS, SHARED
from tessera.ir.tile.matrix.boxes import Box, UnfitError, box_of
from tessera.ir.tile.matrix.plan import Units
from tessera.types.dtype import DType, bf16, f16


def stores_in(kernel: SpecOp) -> list[SpecOp]:
    """All stores of a kernel."""
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.store"]


def shared_stores(kernel: SpecOp, units: Units) -> dict[SpecOp, Box]:
    """The stores that go through shared memory, each with the boxes in which the copy engine takes them.

    Where threads move them on, they are whole spans: rows leave 16 bytes at a time. Raises `UnfitError` for a store
    that says it goes there and cannot.
    """
    found: dict[SpecOp, Box] = {}
    for op in stores_in(kernel):
        box, space = _box_out(op), op.value("space")
        is_able = box is not None and (units.sends or _columns_of(op) % _span_of(op) == 0)
        if space == SHARED and not is_able:
            raise UnfitError("a store says that it goes through shared memory, and is not made of whole spans there")
        if box is not None and op.value("box") and tuple(op.value("box")) != box.sizes:
            raise UnfitError(f"`box` is {list(op.value('box'))}, and what is stored at a time is {list(box.sizes)}")
        if op.value("swizzle") not in (0, SPAN):
            raise UnfitError(f"rows leave in lines of {SPAN} bytes, and `swizzle` is {op.value('swizzle')}")
        if op.value("layout") == COLUMNS:
            raise UnfitError("a store says that columns lie along memory, and rows leave")
        if box is not None and is_able and space != REGISTERS:
            found[op] = box
    return found


def _box_out(op: SpecOp) -> Box | None:
    """The boxes of a store that the copy engine can make; None for one element by element."""
    try:
        box = box_of(op, op.operands[0], 2)
    except UnfitError:
        return None
    type = op.operands[0].type
    assert isinstance(type, TileAttr)
    is_staged = type.dtype in (bf16, f16) or type.dtype.bytes == 4
    if box.inner != 1 or op.value("mode") != "set" or not is_staged:
        return None
    # Each consumer stores 64 rows at a time.
    rows = [size if size == 1 else ROWS for size in box.sizes[:-1]]
    return Box(1, (*rows, box.sizes[-1]), box.pieces)


def _columns_of(store: SpecOp) -> int:
    type = store.operands[0].type
    assert isinstance(type, TileAttr)
    return type.shape[-1].value or 0


def _span_of(store: SpecOp) -> int:
    """Elements of a span of the buffer that a store goes to."""
    type = store.operands[0].type
    assert isinstance(type, TileAttr)
    return SPAN // type.dtype.bytes


def stored_dtypes(stores: Iterable[SpecOp]) -> list[DType]:
    """The dtypes of tiles that stores take, by name."""
    types = [op.operands[0].type for op in stores]
    return sorted({type.dtype for type in types if isinstance(type, TileAttr)}, key=lambda dtype: dtype.name)


def staged_rows(units: Units, consumers: int) -> tuple[int, int]:
    """Rows of a span on their way out, and in how many places: each consumer of Hopper's has two of 64."""
    return (ROWS, 2 * consumers) if units.sends else (ROWS * consumers, 1)


def staging_bytes(units: Units, consumers: int, stores: Iterable[SpecOp]) -> int:
    """Shared bytes for tiles on their way out."""
    rows, places = staged_rows(units, consumers)
    return rows * SPAN * places * len(stored_dtypes(stores))
