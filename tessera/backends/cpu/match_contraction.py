"""Recognize a contraction among tiles: a loop over K that adds the dot of two loaded tiles to what it carries.

On a CPU the blocks of such a kernel say nothing about how it should run: its caches want panels that are packed once
for many blocks. So the whole grid becomes one `gemm` op, which chooses its own blocking, and what follows the loop
becomes the epilogue on a row of accumulators. Every element is the same chain of multiply-adds over k = 0, 1, 2, ...,
so the bits are those of the tile kernel. Only what the schedule writes is recognized; dots of any other form keep their
loops, on blocks in scratch.

The matmuls of a batch of small images are then one, as far as that fills register blocks: an image of 7 by 7 positions
has 49 columns, and a register block of four vectors 64 lanes. Columns of all images together are cut into blocks that
are full but for the last; operands and results are found from the column as they were from image and column, lane by
lane where a vector reaches into the next image.

    batch = [4], n = 49, rhs_offset = 784*_b0 + ... + _n    ->    n = 196, rhs_offset = 784*(_n floordiv 49) + ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.ir import OpResult, SSAValue

from tessera.backends.cpu.gemm import FEW_ROWS
from tessera.backends.cpu.packing import split_offset
from tessera.ir.base.index_maps import linear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr
from tessera.ir.target.limits import CPU_MATRIX_INSTRUCTIONS
from tessera.ir.target.typed_ops import GemmOp, LoadOp, StoreOp
from tessera.ir.tile import typed_ops as ttile
from tessera.ir.tile.lower_to_target import access_pattern
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine
from tessera.types.promotion import holds

_GAIN = 1.1
"""How many times fewer columns are computed at least."""
_DEEPEST_FREE = 256
"""K from which on storing a vector lane by lane is little beside computing it."""
_IMAGE = "_b0"


@frozen
class Match:
    """What was found. `starts` says which index op is the row (count of batch dims) or column (one more) start."""

    loop: ttile.ForOp
    before: tuple[SpecOp, ...]
    after: tuple[SpecOp, ...]
    lhs_load: ttile.LoadOp
    rhs_load: ttile.LoadOp
    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    starts: dict[SSAValue, int]

    def values(self) -> dict[str, Any]:
        """The attributes of the `gemm` op."""
        found: dict[str, Any] = {"batch": self.batch, "m": self.m, "n": self.n, "k": self.k}
        for name, load in (("lhs", self.lhs_load), ("rhs", self.rhs_load)):
            buffer = load.operands[0].type
            assert isinstance(buffer, BufferAttr)
            found[f"{name}_offset"] = linear(load.map, buffer.shape)
            found[f"{name}_windows"] = load.windows
            found[f"{name}_dtype"] = buffer.dtype
        return found


def match_contraction(kernel: SpecOp) -> Match | None:
    """The contraction a kernel is, or None: a grid of batch, row and column blocks; one such loop; stores after."""
    ops = [op for op in kernel.regions[0].block.ops if isinstance(op, SpecOp)]
    loops = [op for op in ops if isinstance(op, ttile.ForOp)]
    if len(loops) != 1 or len(loops[0].results) != 1:
        return None
    (loop,) = loops
    loads = _operand_loads(loop)
    if loads is None:
        return None
    left, right = loads
    at = ops.index(loop)
    grid = kernel.value("grid")
    bounds = (*left.bounds, right.bounds[1])
    k = _length_of(loop, bounds[1])
    if len(grid) < 2 or right.bounds[0] != bounds[1] or k is None:
        return None
    starts = _starts(left, right, kernel)
    if starts is None or not _is_around(ops[:at], ops[at + 1 :]):
        return None
    return Match(
        loop=loop,
        before=tuple(op for op in ops[:at] if isinstance(op, ttile.ProgramIdOp | ttile.IndexOp)),
        after=tuple(op for op in ops[at + 1 :] if not isinstance(op, ttile.ReturnOp)),
        lhs_load=left,
        rhs_load=right,
        batch=tuple(grid[:-2]),
        m=bounds[0],
        n=bounds[2],
        k=k,
        starts=starts,
    )


def _operand_loads(loop: ttile.ForOp) -> tuple[ttile.LoadOp, ttile.LoadOp] | None:
    """The loads of both operands, where the body is nothing but loads, casts and one dot."""
    body = loop.regions[0].block
    allowed = ("ttile.load", "ttile.cast", "ttile.dot", "ttile.yield")
    if any(op.name not in allowed for op in body.ops):
        return None
    dots = [op for op in body.ops if isinstance(op, ttile.DotOp)]
    if len(dots) != 1 or dots[0].operands[2] is not body.args[1]:
        return None
    last = body.last_op
    if last is None or list(last.operands) != [dots[0].results[0]]:
        return None
    accumulator = _dtype_of(dots[0].results[0])
    loads = [_load_behind(value, accumulator) for value in dots[0].operands[:2]]
    if loads[0] is None or loads[1] is None:
        return None
    left, right = loads[0], loads[1]
    if left.axes != ("_m", "_k") or right.axes != ("_k", "_n"):
        return None
    if any(len(load.operands) != 1 + len(load.coords) or load.pad for load in (left, right)):
        return None
    return left, right


def _load_behind(value: SSAValue, accumulator: DType) -> ttile.LoadOp | None:
    """The load a value comes from; packing converts once, so no cast but that to the accumulator may lose anything."""
    passed: list[DType] = []
    while isinstance(value, OpResult) and isinstance(value.op, ttile.CastOp):
        passed.append(_dtype_of(value))
        value = value.op.operands[0]
    kept = passed[1:] if passed[:1] == [accumulator] else passed
    if not all(holds(dtype, _dtype_of(value)) for dtype in kept):
        return None
    op = value.op if isinstance(value, OpResult) else None
    return op if isinstance(op, ttile.LoadOp) else None


def _dtype_of(value: SSAValue) -> DType:
    assert isinstance(value.type, TileAttr)
    return value.type.dtype


def _starts(left: ttile.LoadOp, right: ttile.LoadOp, kernel: SpecOp) -> dict[SSAValue, int] | None:
    """The index ops that give the first row and the first column: blocks of the last two axes of the grid."""
    grid = kernel.value("grid")
    count = len(grid) - 2
    found: dict[SSAValue, int] = {}
    for load, name, axis in ((left, "_m", count), (right, "_n", count + 1)):
        coords = dict(zip(load.coords, load.operands[1:], strict=True))
        axes: tuple[str, ...] = load.axes
        extent, tile = load.bounds[axes.index(name)], load.results[0].type
        assert isinstance(tile, TileAttr)
        size = tile.shape[axes.index(name)]
        if extent.value == -1 or grid[axis] != extent.ceildiv(size):
            return None
        if not _is_block_of(coords[name], axis, size) or not _are_batch(coords, count):
            return None
        found[coords[name]] = axis
    return found


def _is_block_of(start: SSAValue, axis: int, size: Dim) -> bool:
    """Whether an index is `size` times the program id along an axis."""
    op = start.op if isinstance(start, OpResult) else None
    if not isinstance(op, ttile.IndexOp) or len(op.operands) != 1:
        return False
    (name,) = op.names
    return op.expr == Dim.symbol(name) * size and _is_program(op.operands[0], axis)


def _are_batch(coords: dict[str, SSAValue], count: int) -> bool:
    """Whether all coordinates beside `_m`, `_n` and `_k` are program ids along the first axes of the grid, by name."""
    batch = {f"_b{axis}": axis for axis in range(count)}
    others = {name: value for name, value in coords.items() if name not in ("_m", "_n", "_k")}
    return all(name in batch and _is_program(value, batch[name]) for name, value in others.items())


def _is_program(value: SSAValue, axis: int) -> bool:
    op = value.op if isinstance(value, OpResult) else None
    return isinstance(op, ttile.ProgramIdOp) and op.axis == axis


def _length_of(loop: SpecOp, end: Dim) -> Dim | None:
    """How far a loop that adds to zero goes along K; None where that is neither all of it nor a segment.

    Operands of a batch of segments end at `end`, which depends on the segment: the last may have less.
    """
    low, high, start = (value.op if isinstance(value, OpResult) else None for value in loop.operands)
    if (
        not isinstance(low, ttile.IndexOp)
        or not isinstance(high, ttile.IndexOp)
        or not isinstance(start, ttile.ConstantOp)
    ):
        return None
    if low.expr.value != 0 or start.value("value") != 0:
        return None
    if high.expr == end:
        return end
    parts = end.coefficient("_b0")
    if parts is None or parts[0] != -high.expr or "_b0" in parts[1].symbols:
        return None
    is_even = (parts[1] % high.expr).value == 0
    return high.expr if is_even else minimum(high.expr, end)


_BEFORE = ("ttile.program_id", "ttile.index", "ttile.constant")
_AFTER = (
    *("ttile.load", "ttile.store", "ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select"),
    *("ttile.constant", "ttile.coordinate", "ttile.round", "ttile.return"),
)


def _is_around(before: Sequence[SpecOp], after: Sequence[SpecOp]) -> bool:
    """Whether nothing is computed before the loop, and what follows works on whole blocks, element by element."""
    if any(op.name not in _BEFORE for op in before):
        return False
    tiles = [result.type for op in after for result in op.results]
    ranks = {len(tile.shape) for tile in tiles if isinstance(tile, TileAttr)}
    return all(op.name in _AFTER for op in after) and ranks <= {2}


# Which matrix instruction of a CPU multiplies a contraction, if any does.


def instruction_choices(machine: Machine) -> tuple[str, ...]:
    """What `matrix.instruction` can be: those that change no bits where they help, one that does, or none at all."""
    return (AUTOMATIC, *(name for name in CPU_MATRIX_INSTRUCTIONS if machine.has(name)), PLAIN)


def choose_instruction(match: Match, accumulator: DType, machine: Machine, asked: str) -> dict[str, Any]:
    """The attributes of a `gemm` op for the first instruction of a machine that takes its operands as they are stored.

    Unasked it is one whose bits are those of a chain of multiply-adds: results do not depend on the machine. Packing
    copies strided memory to its tiles, and converts nothing on the way.
    """
    values = match.values()
    if asked == PLAIN or not _are_strided(values):
        return {}
    lhs, rhs = values["lhs_dtype"], values["rhs_dtype"]
    for name, one in CPU_MATRIX_INSTRUCTIONS.items():
        if machine.has(name) and (one.is_exact or name == asked) and one.takes(lhs, rhs, accumulator):
            return {"unit": name, "instruction": (one.rows, one.columns[0], one.k_bytes // lhs.bytes)}
    return {}


def units_of(kernel: SpecOp) -> list[str]:
    """The matrix instructions of a `ttarget.kernel`."""
    return [op.unit for op in kernel.walk() if isinstance(op, GemmOp) and op.unit]


def inexact_accumulations(kernel: SpecOp) -> tuple[str, ...]:
    """What a `ttarget.kernel` adds up in the order of an instruction, and not in that of a chain of multiply-adds."""
    found = (CPU_MATRIX_INSTRUCTIONS[unit] for unit in units_of(kernel))
    return tuple(f"sums of {one.operands[0]} by {one.name}" for one in found if not one.is_exact)


def _are_strided(values: dict[str, Any]) -> bool:
    operands = (("lhs", ("_m", "_k")), ("rhs", ("_k", "_n")))
    return all(
        not values[f"{name}_windows"] and split_offset(values[f"{name}_offset"], axes) is not None
        for name, axes in operands
    )


# Small images.


def join_images(op: GemmOp, lanes: int, vectors: int) -> None:
    """Join the batch of a matmul into its columns, where register blocks of `vectors` are then full."""
    sizes = [dim.value for dim in (*op.batch, op.n, op.k, op.m)]
    known = [size for size in sizes if size is not None]
    if len(op.batch) != 1 or len(known) < len(sizes) or op.unit:
        return
    images, columns, k, rows = known
    if images < 2 or rows <= FEW_ROWS or k < _DEEPEST_FREE or columns < 2 * lanes:
        return
    computed = images * _count_columns(columns, lanes, vectors)
    if computed < _GAIN * _count_columns(images * columns, lanes, vectors) or not _can_join(op):
        return
    column = Dim.symbol("_n")
    env = {"_n": column % columns, _IMAGE: column // columns}
    epilogue = op.regions[0].block
    for part in list(epilogue.ops):
        if isinstance(part, LoadOp | StoreOp):
            _join_access(part, env, epilogue.args[0], images * columns)
    epilogue.erase_arg(epilogue.args[0])
    op.rhs_offset = op.rhs_offset.substitute(env)
    op.rhs_windows = tuple(dim.substitute(env) for dim in op.rhs_windows)
    op.batch, op.n = (), Dim.constant(images * columns)


def _count_columns(columns: int, lanes: int, vectors: int) -> int:
    """Columns that are computed for so many: whole register blocks, and the last in a power of two of registers."""
    whole, left = divmod(columns, lanes * vectors)
    last = 0 if not left else next(lanes << bit for bit in range(8) if lanes << bit >= left)
    return whole * lanes * vectors + last


def _can_join(op: GemmOp) -> bool:
    """Whether A is one for all images, and what follows takes image and column for the address of an access only."""
    if any(_IMAGE in dim.symbols for dim in (op.lhs_offset, *op.lhs_windows)):
        return False
    image, _, column, _ = op.regions[0].block.args
    users = [use.operation for value in (image, column) for use in value.uses]
    return all(isinstance(user, LoadOp | StoreOp) and _is_plain(user, image, column) for user in users)


def _is_plain(access: LoadOp | StoreOp, image: SSAValue, column: SSAValue) -> bool:
    """Whether an access names image and column as the maps of operands do, and goes along columns."""
    first = 1 if isinstance(access, LoadOp) else 2
    named = dict(zip(access.coords, access.operands[first:], strict=False))
    is_named = all((value is image) == (name == _IMAGE) for name, value in named.items())
    is_set = isinstance(access, LoadOp) or access.mode == "set"
    return is_named and named.get("_n") is column and access.axes == ("_m", "_n") and is_set


def _join_access(access: SpecOp, env: dict[str, Dim], image: SSAValue, columns: int) -> None:
    assert isinstance(access, LoadOp | StoreOp)
    first = 1 if isinstance(access, LoadOp) else 2
    places = {value: name for name, value in zip(access.coords, access.operands[first:], strict=False)}
    access.operands = [value for value in access.operands if value is not image]
    access.coords = tuple(name for name in access.coords if name != places.get(image))
    access.offset = access.offset.substitute(env)
    access.windows = tuple(dim.substitute(env) for dim in access.windows)
    access.pattern = access_pattern(access.offset, access.axes)
    bounds = zip(access.guarded, access.bounds, strict=True)
    access.bounds = tuple(Dim.constant(columns) if name == "_n" else bound for name, bound in bounds)
