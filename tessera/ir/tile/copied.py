"""Where a tile goes on its way between memory and a program, as passes choose it: attributes of loads and stores."""

from __future__ import annotations

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.hopper_limits import MAX_BOX, MAX_STAGES, SPANS

SHARED, REGISTERS = "shared", "registers"
SPACES = (SHARED, REGISTERS)
ROWS, COLUMNS = "rows", "columns"
LAYOUTS = (ROWS, COLUMNS)
PLACE = (
    Attribute("space", "str", "", "where a machine puts it: shared memory, in whole boxes, or registers"),
    Attribute("layout", "str", "", "in shared memory: rows or columns of the tile lie along it"),
    Attribute("swizzle", "int", 0, "bytes of lines there whose pieces change places by line"),
    Attribute("box", "ints", (), "elements along each dim of the buffer that are copied at a time"),
)
"""Attributes that a pass gives an access."""
STAGES = (
    Attribute("stages", "int", 0, "places that it has in shared memory, where no loop says so"),
    Attribute("ring", "int", -1, "the ring of stages that it is copied to: those of one arrive at one barrier"),
)
"""Attributes that passes give a load to shared memory."""


def check_stages(op: SpecOp) -> None:
    """Raises OpError for a load with places in shared memory that it does not go to, or that its loop has."""
    if op.value("ring") < -1 or (op.value("ring") >= 0 and op.value("space") != SHARED):
        op.fail(f"a `ring` is the number of one in shared memory, got {op.value('ring')}")
    around = op.parent_op()
    is_inside = around is not None and around.name == "ttile.for"
    if op.value("stages") and (op.value("space") != SHARED or is_inside):
        op.fail("`stages` are those of a load to shared memory that no loop does; others have those of their loop")
    if not 0 <= op.value("stages") <= MAX_STAGES:
        op.fail(f"there are 1 to {MAX_STAGES} stages, got {op.value('stages')}")


def check_place(op: SpecOp, buffer: BufferAttr, tile: TileAttr) -> None:
    """Raises OpError for places that no machine has."""
    space, layout, swizzle, box = (op.value(attribute.name) for attribute in PLACE)
    if space not in ("", *SPACES):
        op.fail(f"`space` is one of {', '.join(SPACES)}, got {space}")
    if space != SHARED and (layout or swizzle or box):
        op.fail(f"layout, swizzle and box are those of shared memory, and `space` is {space or 'not chosen'}")
    if layout not in ("", *LAYOUTS):
        op.fail(f"`layout` is one of {', '.join(LAYOUTS)}, got {layout}")
    if swizzle not in (0, *SPANS):
        op.fail(f"lines of {', '.join(map(str, SPANS))} bytes are swizzled, got {swizzle}")
    if layout and len(tile.shape) != 2:
        op.fail(f"a tile of {len(tile.shape)} dims has no {layout}")
    if box and (len(box) != len(buffer.shape) or any(not 1 <= size <= MAX_BOX for size in box)):
        op.fail(f"`box` has 1 to {MAX_BOX} elements along each of {len(buffer.shape)} dims, got {list(box)}")
    if box and swizzle and box[-1] * buffer.dtype.bytes != swizzle:
        op.fail(f"a line of {swizzle} bytes is swizzled, and `box` has {box[-1]} elements of {buffer.dtype} in one")
