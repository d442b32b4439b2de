"""Kernels of grouped contractions: blocks of rows that each have one matrix, and outer products of groups of rows.

Which rows and which matrix a program has, it reads from memory before its first copy: tensor cores then run as for one
matmul. A block computes all of its rows, and stores those of its group; the others belong to another block.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.ragged import ROWS
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import f32, f64

_COLUMNS = (256, 128)
"""Columns of a block on tensor cores: the first of which there is one whole, else the last."""
_STEP = 64
"""K of a step there: two-byte floats that fill a line of shared memory."""
_PLAIN_COLUMNS = 64
"""Columns of a block that threads multiply."""
_PLAIN_STEP = 16
"""K of a step of theirs."""
_OUTER = 64
"""Rows and columns of a block of an outer product."""


def _sizes_of(call: Call) -> tuple[int, int]:
    """The columns of a block and the K of a step."""
    left, right = (operand.dtype for operand in call.operands[:2])
    is_tensor_cores = bool(call.machine.instructions) and left.bytes == 2 and left is right
    if call.machine.is_gpu and not is_tensor_cores:
        return _PLAIN_COLUMNS, _PLAIN_STEP
    if not is_tensor_cores:
        return _COLUMNS[-1], _STEP
    # Wide blocks read fewer rows for each column; few columns would leave most of one empty.
    most = call.results[0].shape[-1].value or 0
    return next((one for one in _COLUMNS if one <= most), _COLUMNS[-1]), _STEP


def _add_up(
    b: TileBuilder,
    call: Call,
    shape: tuple[int, int],
    limits: Sequence[SSAValue],
    operands: Sequence[tuple[Sequence[Dim], TileRegion]],
    step: int,
) -> SSAValue:
    """The sum of dots over the coordinate `_k` between limits; operands are where the first two of the call are."""
    dtype = f64 if f64 in (type.dtype for type in (*call.operands[:2], *call.results)) else f32

    def body(index: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        parts = [
            b.cast(b.load(call.input(b, number), at, region.with_coords(_k=index)), dtype)
            for number, (at, region) in enumerate(operands)
        ]
        return [b.dot(parts[0], parts[1], carried[0])]

    (acc,) = b.loop(limits[0], limits[1], step, body, [b.full(0, shape, dtype)])
    return b.cast(acc, call.results[0].dtype)


def _write_blocks(call: Call) -> list[SpecOp]:
    """One program for each block of rows and each block of columns.

    Rows that the block does not store are those of the next group, which a program of its own multiplies by their
    matrix: what they are here, NaN and infinities among it, nobody sees.
    """
    (rows, k), (_, _, n) = call.operands[0].shape, call.operands[1].shape
    columns, step = _sizes_of(call)
    b = call.builder([call.operands[2].shape[0], n.ceildiv(columns)])
    block, names = {"_p": b.program_id(0)}, ("_matrix", "_i", "_end")
    coords = {name: b.fetch(call.input(b, 2 + at), [Dim.symbol("_p")], block) for at, name in enumerate(names)}
    matrix = Dim.symbol("_matrix")
    coords["_g"] = b.index(maximum(matrix, 0), coords)
    coords["_j"] = b.index(Dim.symbol("_j") * columns, {"_j": b.program_id(1)})
    g, i, j, kk = (Dim.symbol(name) for name in ("_g", "_i", "_j", "_k"))
    place = TileRegion(coords)
    end = minimum(Dim.symbol("_end"), rows)
    # TMA copies whole boxes, and CPUs compute as many rows as are stored.
    left = place.along(("_i", "_k"), (ROWS, step), {"_i": rows if call.machine.is_gpu else end, "_k": k})
    right = place.along(("_k", "_j"), (step, columns), {"_k": k, "_j": n})
    made = _add_up(b, call, (ROWS, columns), (b.index(0), b.index(k)), (((i, kk), left), ((g, kk, j), right)), step)
    # Rows of no group have no columns.
    out = place.along(("_i", "_j"), (ROWS, columns), {"_j": minimum(matrix + 1, 1) * n})
    made = b.clip(made, "_j", 0, out)
    out = out.along(out.axes, out.sizes, {"_i": end, "_j": n})
    b.store(made, call.output(b, 0), (i, j), out)
    return [b.finish()]


def _write_outer(call: Call) -> list[SpecOp]:
    """One program for each block of each matrix: K are the rows of its group, from where it begins to where it ends."""
    (rows, k), (_, n) = call.operands[0].shape, call.operands[1].shape
    step = _sizes_of(call)[1]
    b = call.builder([call.results[0].shape[0], k.ceildiv(_OUTER), n.ceildiv(_OUTER)])
    coords = {"_g": b.program_id(0)}
    for axis, name in enumerate(("_i", "_j"), 1):
        coords[name] = b.index(Dim.symbol(name) * _OUTER, {name: b.program_id(axis)})
    limits: list[SSAValue] = []
    for name, more in (("_low", 0), ("_end", 1)):
        read = b.fetch(call.input(b, 2), [Dim.symbol("_g") + more], coords)
        limits.append(b.index(minimum(maximum(Dim.symbol(name), 0), rows), {name: read}))
    coords["_end"] = limits[1]
    g, i, j, kk, end = (Dim.symbol(name) for name in ("_g", "_i", "_j", "_k", "_end"))
    place = TileRegion(coords)
    left = place.along(("_i", "_k"), (_OUTER, step), {"_i": k, "_k": end})
    right = place.along(("_k", "_j"), (step, _OUTER), {"_k": end, "_j": n})
    made = _add_up(b, call, (_OUTER, _OUTER), limits, (((kk, i), left), ((kk, j), right)), step)
    out = place.along(("_i", "_j"), (_OUTER, _OUTER), {"_i": k, "_j": n})
    b.store(made, call.output(b, 0), (g, i, j), out)
    return [b.finish()]


RAGGED_BLOCKS = LibraryKernel("ragged_blocks", "Blocks of rows, each by a matrix that a table names.", _write_blocks)
RAGGED_OUTER = LibraryKernel("ragged_outer", "Outer products of groups of rows.", _write_outer)
