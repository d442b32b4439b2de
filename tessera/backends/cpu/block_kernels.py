"""What a kernel must be so that its blocks may be kept in memory: row by row, with one owner for each block.

A block is a tile that does not fit registers and is kept in scratch instead. Ops between two dots are applied to one
row after the other, and dots and loops update blocks in place. So every op must see one row at a time, all stores must
agree on which rows there are, and nobody may read a block after it was updated. Each check here says what breaks this.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, OpResult, SSAValue

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.tile import typed_ops as ttile
from tessera.ir.tile.choices import is_shared
from tessera.types.dim import Dim, minimum
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import holds

# Whether a kernel of a user works on its blocks row by row, so that they may be kept in scratch.

_BY_ROW = {
    *("ttile.kernel", "ttile.return", "ttile.yield", "ttile.for", "ttile.program_id", "ttile.index", "ttile.fetch"),
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.load", "ttile.store", "ttile.broadcast", "ttile.reduce", "ttile.arg_reduce"),
}


def is_rowwise(kernel: SpecOp) -> bool:
    """Whether all tiles of two axes have as many rows, and no op reads two rows together.

    Tiles of one axis are then columns, a number for each row, or row vectors that are broadcast down a block.
    """
    if kernel.value("schedule") is None:
        return False  # made by the compiler, with tiles that fit registers
    rows: set[int] = set()
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name not in _BY_ROW:
            return False
        values = [*op.operands, *op.results]
        rows |= {_rows(value) for value in values if _rank(value) == 2}
        if any(_rank(value) > 2 for value in values) or not _keeps_rows(op):
            return False
    return len(rows) == 1 and _stores_rows(kernel, rows.pop())


def _keeps_rows(op: SpecOp) -> bool:
    """Whether the ranks that an op takes and gives can be seen row by row."""
    if isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp):
        return _rank(op.operands[0]) == 2 and op.axis == 1
    if isinstance(op, ttile.BroadcastOp):
        return _rank(op.results[0]) == 2 and (_rank(op.operands[0]) == 0 or op.axes in ((0,), (1,)))
    if isinstance(op, ttile.ForOp):
        return all(_rank(value) != 0 for value in op.operands[2:])
    return True


def _stores_rows(kernel: SpecOp, rows: int) -> bool:
    """Whether every store writes something for each row, and blocks are loaded at the same rows."""
    stores = [op for op in kernel.walk() if isinstance(op, ttile.StoreOp)]
    edges = {(op.axes[:1], op.bounds[:1]) for op in stores}
    loads = [op for op in kernel.walk() if isinstance(op, ttile.LoadOp)]
    edges |= {(op.axes[:1], op.bounds[:1]) for op in loads if _rank(op.results[0]) == 2}
    return len(edges) == 1 and all(_rank(op.operands[0]) >= 1 and _rows(op.operands[0]) == rows for op in stores)


def _rank(value: SSAValue) -> int:
    return len(value.type.shape) if isinstance(value.type, TileAttr) else -1


def _rows(value: SSAValue) -> int:
    assert isinstance(value.type, TileAttr)
    return value.type.shape[0].value or 0


# Which rows of its blocks a kernel computes: those that all of its stores have.


@frozen
class Rows:
    """The rows of a block: its height, and where the block starts and its rows end, if they do before its height.

    Where they end may be read from memory: `ends` are the indices that the bound names.
    """

    height: Dim
    axis: str = ""
    start: SSAValue | None = None
    bound: Dim | None = None
    ends: tuple[tuple[str, SSAValue], ...] = ()

    @property
    def extent(self) -> Dim:
        """How many rows there are, over the name of the axis for where the block starts."""
        return self.height if self.bound is None else minimum(self.height, self.bound - Dim.symbol(self.axis))

    @property
    def coords(self) -> dict[str, SSAValue]:
        """The index that each name in the extent is."""
        return {} if self.start is None else {self.axis: self.start, **dict(self.ends)}

    def is_same(self, other: Rows) -> bool:
        """Whether these are the same rows, by whatever index they start."""
        is_like = self.height == other.height and self.bound == other.bound and is_same_index(self.start, other.start)
        return is_like and self.ends == other.ends


def find_rows(kernel: SpecOp) -> Rows:
    """The rows of a kernel's blocks; raises TargetVerifyError where its stores keep to different ones."""
    found: Rows | None = None
    for op in kernel.walk():
        if not isinstance(op, ttile.StoreOp):
            continue
        rows = _rows_of_store(op)
        if rows is None or (found is not None and not found.is_same(rows)):
            raise TargetVerifyError(
                "all stores of a kernel that multiplies tiles keep to the same rows on CPUs",
                span=op.span,
                notes=() if found is None else (f"another store has {found.extent} rows",),
                fix="store what has other rows in a kernel of its own",
            )
        found = found or rows
    return found or Rows(Dim.constant(1))


def _rows_of_store(store: ttile.StoreOp) -> Rows | None:
    tile = store.operands[0].type
    assert isinstance(tile, TileAttr)
    if not tile.shape:
        return None
    axis, bound = store.axes[0], store.bounds[0]
    if bound.value == -1:
        return Rows(tile.shape[0])
    coords = dict(zip(store.coords, store.operands[2:], strict=False))
    ends = tuple((name, index) for name, index in coords.items() if name != axis and name in bound.symbols)
    return Rows(tile.shape[0], axis, coords[axis], bound, ends)


def is_same_index(left: SSAValue | None, right: SSAValue | None) -> bool:
    """Whether two indices are one, or computed alike from the same."""
    if left is right:
        return True
    if not isinstance(left, OpResult) or not isinstance(right, OpResult):
        return False
    one, other = left.op, right.op
    if not isinstance(one, SpecOp) or not isinstance(other, SpecOp) or one.name != other.name:
        return False
    if not isinstance(one, ttile.IndexOp | ttile.ProgramIdOp) or one.values() != other.values():
        return False
    return all(is_same_index(a, b) for a, b in zip(one.operands, other.operands, strict=True))


# What dots on CPUs ask of their kernel: B in memory, and which tiles of one axis are rows rather than columns.

_BY_ELEMENT = ("ttile.elementwise", "ttile.cast", "ttile.round", "ttile.bitcast", "ttile.select", "ttile.clip")
_MADE = (*_BY_ELEMENT, "ttile.load", "ttile.constant", "ttile.coordinate")


def row_vectors_of(kernel: SpecOp) -> set[SSAValue]:
    """Tiles of one axis that run along rows: those broadcast down a block, and all they are computed from.

    Any other tile of one axis is a column. Raises TargetVerifyError for one that is used as both.
    """
    found: set[SSAValue] = set()
    waiting = [op.operands[0] for op in kernel.walk() if isinstance(op, ttile.BroadcastOp) and op.axes == (1,)]
    while waiting:
        value = waiting.pop()
        if value in found or not isinstance(value.type, TileAttr) or len(value.type.shape) != 1:
            continue
        op = value.op if isinstance(value, OpResult) else None
        is_number = isinstance(op, ttile.BroadcastOp) and _rank(op.operands[0]) == 0
        if not isinstance(op, SpecOp) or (op.name not in _MADE and not is_number) or _is_written(kernel, op):
            raise TargetVerifyError(
                "what is broadcast down a block is loaded from read-only memory, or computed from such, on CPUs",
                span=op.span if isinstance(op, SpecOp) else None,
            )
        found.add(value)
        # Indices that elements are read by run along the row as those do.
        waiting += op.operands if op.name in _BY_ELEMENT or isinstance(op, ttile.LoadOp) else []
    for value in found:
        for use in value.uses:
            user = use.operation
            is_broadcast = isinstance(user, ttile.BroadcastOp) and user.axes == (1,)
            if not is_broadcast and not any(result in found for result in user.results):
                assert isinstance(user, SpecOp)
                raise TargetVerifyError("a tile is used along rows and down columns of a block", span=user.span)
    return found


def _is_written(kernel: SpecOp, load: SpecOp) -> bool:
    """Whether a load reads what the kernel may write."""
    if not isinstance(load, ttile.LoadOp):
        return False
    arguments: list[SSAValue] = list(kernel.regions[0].block.args)
    return load.operands[0] not in arguments or arguments.index(load.operands[0]) in kernel.value("writes")


def check_memory(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for shared memory: rows go through all ops one after the other, and none waits."""
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.results and is_shared(op.results[0]):
            raise TargetVerifyError("a kernel that multiplies tiles has no shared memory on CPUs", span=op.span)


def check_dots(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for what no loop over rows computes."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        if isinstance(op, ttile.DotOp):
            find_load(op.operands[1], op)
        elif isinstance(op, ttile.ReduceOp | ttile.ArgReduceOp) and op.axis == 0:
            raise TargetVerifyError(
                "a kernel with dots reduces tiles along their rows on CPUs, not down their columns",
                span=op.span,
                fix="transpose the dot, or reduce in a kernel of its own",
            )


def find_load(value: SSAValue, dot: SpecOp) -> tuple[ttile.LoadOp, bool]:
    """The load that the operand of a dot comes from, and whether it is read transposed.

    The dot reads that memory itself, so raises TargetVerifyError where another op makes the operand, or a cast between
    them changes numbers.
    """
    is_transposed, casts = False, list[tuple[DType, DType]]()
    while isinstance(value, OpResult) and isinstance(value.op, ttile.CastOp | ttile.TransposeOp):
        is_transposed ^= isinstance(value.op, ttile.TransposeOp)
        source = value.op.operands[0]
        assert isinstance(value.type, TileAttr)
        assert isinstance(source.type, TileAttr)
        casts.append((source.type.dtype, value.type.dtype))
        value = source
    fix = "store the tile to scratch first, and load it from there"
    load = value.op if isinstance(value, OpResult) else None
    if not isinstance(load, ttile.LoadOp):
        raise TargetVerifyError("the B operand of a dot is read from memory on CPUs", span=dot.span, fix=fix)
    memory = casts[-1][0] if casts else None
    for _, target in casts:
        if memory is not None and not holds(target, memory):
            raise TargetVerifyError(
                f"{memory} is rounded to {target} before a dot, which reads memory itself on CPUs",
                span=dot.span,
                fix=fix,
            )
    return load, is_transposed


# Owners of blocks: dots and loops update blocks in place, so nobody may want a block as it was before.

_CUTS = ("ttile.dot", "ttile.for", "ttile.barrier")
"""Between two of these rows go through all ops one after the other: each row is read before it is written."""


def check_owners(kernel: SpecOp) -> None:
    """Raises TargetVerifyError where a block that is changed in place is wanted later as it was before."""
    for op in kernel.walk():
        if isinstance(op, ttile.DotOp) and not is_fresh(op.operands[2]):
            _check_owned(op, op.operands[2])
        elif isinstance(op, ttile.ForOp):
            for start in op.operands[2:]:
                if isinstance(start.type, TileAttr):
                    _check_owned(op, start)
            _check_carried(op)


def is_fresh(accumulator: SSAValue) -> bool:
    """Whether a dot starts from zero, and so from no block at all."""
    maker = accumulator.op if isinstance(accumulator, OpResult) else None
    return isinstance(maker, ttile.ConstantOp) and not maker.value("value")


def _check_owned(op: SpecOp, value: SSAValue) -> None:
    """A value that `op` changes is made beside it, and used before it alone."""
    block = op.parent
    assert block is not None
    order = {one: number for number, one in enumerate(block.ops)}
    others = [_op_in_block(use.operation, block) for use in value.uses if use.operation is not op]
    is_once = sum(use.operation is op for use in value.uses) == 1
    is_before = all(other is not None and order[other] < order[op] for other in others)
    if _block_of(value) is not block or not is_once or not is_before:
        what = "a dot adds to its accumulator" if isinstance(op, ttile.DotOp) else "a loop changes what it starts from"
        raise TargetVerifyError(
            f"{what} in place on CPUs, and this block is used once more",
            span=op.span,
            fix="compute the block once more where it is used, or store it first",
        )


def _check_carried(loop: SpecOp) -> None:
    """What a body ends with overwrites the carried block, when nothing reads that any more."""
    body = loop.regions[0].block
    last = body.last_op
    assert last is not None
    order = {one: number for number, one in enumerate(body.ops)}
    cuts = [number for one, number in order.items() if one.name in _CUTS]
    for inner, end in zip(body.args[1:], last.operands, strict=True):
        if end is inner or not isinstance(end.type, TileAttr):
            continue
        maker = end.op if isinstance(end, OpResult) else None
        if maker is None or maker.parent is not body or sum(other is end for other in last.operands) > 1:
            raise _carry_error(loop)
        if isinstance(maker, ttile.ForOp) and _start_of(maker, end) is not inner:
            raise _carry_error(loop)
        # The accumulator of the last dot has the same buffer, and is the first to be written.
        first = _first_written(maker)
        for use in inner.uses:
            user = _op_in_block(use.operation, body)
            if user is None or any(order.get(first, 0) <= cut <= order[user] and user is not first for cut in cuts):
                raise _carry_error(loop)


def _first_written(maker: Operation) -> Operation:
    """The op that first writes the buffer of a result: accumulators of dots share it."""
    while isinstance(maker, ttile.DotOp):
        accumulator = maker.operands[2]
        if not isinstance(accumulator, OpResult) or is_fresh(accumulator):
            break
        maker = accumulator.op
    return maker


def _start_of(loop: Operation, result: SSAValue) -> SSAValue:
    """What a result of a loop starts from."""
    return next(value for one, value in zip(loop.results, loop.operands[2:], strict=True) if one is result)


def _carry_error(loop: SpecOp) -> TargetVerifyError:
    return TargetVerifyError(
        "a loop with dots makes each block that it carries from the one before, in place, on CPUs",
        span=loop.span,
        fix="carry each block once and in the same position, and read it before the next one is made",
    )


def _block_of(value: SSAValue) -> Block | None:
    owner = value.owner
    return owner if isinstance(owner, Block) else owner.parent


def _op_in_block(op: Operation, block: Block) -> Operation | None:
    """The op of a block that another is, or is inside of."""
    found: Operation | None = op
    while found is not None and found.parent is not block:
        found = found.parent_op()
    return found
