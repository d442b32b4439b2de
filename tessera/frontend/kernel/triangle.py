"""The grid of a triangle: rows of blocks are taken in pairs, a short one and a long one, so that none is left empty.

Row `r` of a lower triangle has `min(r + 1, C)` blocks. Rows `p` and `R - 1 - p` together have about `R + 1`, whatever
`p` is, so `R / 2` by `R + 1` programs compute what `R` by `R` would, and half of them would have had nothing to do.
"""

from __future__ import annotations

from typing import Any

from tessera.ir.tile.records import INDEX, TileOp
from tessera.types.dim import Dim, maximum, minimum


def is_foldable(b: Any) -> bool:
    """Whether blocks are square, so that those of a triangle can be counted by rows."""
    axes = b.axes
    return b.schedule.triangular is not None and {"_m", "_n"} <= axes.keys() and axes["_m"].size == axes["_n"].size


def folded_grid(b: Any, first: int) -> tuple[list[TileOp], tuple[Dim, ...]]:
    """The ops that place a program in a triangle, and the last two axes of the grid, which begin with axis `first`."""
    is_lower = b.schedule.triangular == "lower"
    long, across = (b.axes["_m"], b.axes["_n"]) if is_lower else (b.axes["_n"], b.axes["_m"])
    rows, columns = long.blocks, across.blocks
    p, q = Dim.symbol("_p"), Dim.symbol("_q")
    count = minimum(p + 1, columns)
    is_second = minimum(1, maximum(0, q + 1 - count))
    apart = rows - 1 - 2 * p
    # Where a row would be paired with itself, the second of the two lies beyond the end and does nothing.
    row = p + is_second * apart + is_second * rows * maximum(0, 1 - apart)
    column = q - is_second * count
    places = [b.new(INDEX), b.new(INDEX)]
    ops = [TileOp("program_id", (), {"axis": first + at}, (place,)) for at, place in enumerate(places)]
    for axis, expr in ((long, row), (across, column)):
        values = {"names": ("_p", "_q"), "expr": expr * axis.size}
        ops.append(TileOp("index", tuple(places), values, (b.coords[axis.name],)))
    return ops, (rows.ceildiv(2), minimum(rows + 1, 2 * columns))
