"""In what order the programs of a kernel are taken, which of them share what they read, and which overlap.

Programs that run together read the same rows of A and columns of B. In groups of some rows of blocks a wave is about as
high as it is wide, which reads the fewest bytes into L2. Two CTAs of a cluster read the same B operand and copy half of
it each, for both (multicast). And a persistent CTA may leave its epilogue to the first steps of its next program, where
it runs beside dots in flight instead of before them. What one program alone reads, and TMA does not take, threads copy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tessera.backends.nvptx.block_times import (
    RATES,
    SECTOR,
    THREADED_LEAST,
    Lines,
    can_copy_by_threads,
    computed_cycles,
    crossing_weight,
    is_pairable,
    step_cycles,
)
from tessera.backends.nvptx.mma.boxes import cut_of
from tessera.backends.nvptx.mma.loops import is_longer
from tessera.backends.nvptx.mma.plan import CopiedOperand, MmaDot, MmaOperand, Plan
from tessera.backends.nvptx.mma.window_boxes import is_windowed
from tessera.backends.nvptx.tensor_cores import CP_ASYNC_BYTES, SPAN
from tessera.backends.nvptx.types import shaped_type, sizes_of, spec_ops
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.choices import DYNAMIC, PRODUCER
from tessera.ir.tile.indexing import known_ends
from tessera.ir.tile.typed_ops import FetchOp, IndexOp, LoadOp, ProgramIdOp, StoreOp
from tessera.types.dim import Dim
from tessera.types.dim import product as product_of
from tessera.types.frozen import frozen

# Which programs overlap their epilogue with the dots of the next one: registers for both, and dots to hide it behind.

PART = 64
"""Columns of a part: as many as leave through shared memory together."""
PIECES = (4, 2)
"""In which a part is computed that is work, the best first: +2.5 % for gelu after 4096 x 4096 x 4096 on an H200."""
_MOST = {1: 192, 2: 192, 3: 104}
"""Registers of a thread for accumulators and those of the epilogue before, by the number of consumers: 3 at most."""
_AFTER = (
    *("ttile.elementwise", "ttile.cast", "ttile.bitcast", "ttile.select", "ttile.constant", "ttile.coordinate"),
    *("ttile.clip", "ttile.broadcast", "ttile.load", "ttile.store", "ttile.index", "ttile.program_id", "ttile.fetch"),
    "ttile.return",
)


@frozen
class Epilogue:
    """The loop of dots, the op that rounds its accumulators, if one does, and all ops that come after."""

    loop: SpecOp
    last: SpecOp
    ops: tuple[SpecOp, ...]

    @property
    def value(self) -> SSAValue:
        """What the epilogue is computed from."""
        return self.last.results[0]


def has_next(kernel: SpecOp, blocks: int) -> bool:
    """Whether one of so many CTAs has a program after its first."""
    total = product_of(kernel.value("grid")).value
    return total is not None and total > blocks


def epilogue_of(kernel: SpecOp, plan: Plan, stores: Collection[SpecOp]) -> Epilogue | None:
    """What programs can leave to the next; `stores` are those that go through shared memory."""
    ops = spec_ops(kernel.regions[0].block)
    loops = [op for op in ops if op.name == "ttile.for"]
    if len(loops) != 1 or len(plan.dots) != 1:
        return None
    (dot,) = plan.dots.values()
    loop = loops[0]
    last = _rounding_of(loop) or loop
    after = [op for op in ops[ops.index(loop) + 1 :] if op is not last]
    if dot.op.parent_block() is not loop.regions[0].block or len(loop.results) != 1:
        return None
    if any(op.name not in _AFTER for op in after) or not _fits(plan, last) or not after:
        return None
    if not all(_is_plain(op, dot, stores) for op in after):
        return None
    return Epilogue(loop, last, tuple(_with_sources(ops, after, {loop, last})))


def _rounding_of(loop: SpecOp) -> SpecOp | None:
    """The one reader of the accumulators, where it makes two bytes of each."""
    users = [use.operation for use in loop.results[0].uses]
    user = users[0] if len(users) == 1 else None
    if not isinstance(user, SpecOp) or user.name != "ttile.cast":
        return None
    dtype = shaped_type(user.results[0]).dtype
    return user if dtype.is_float and dtype.bytes == 2 else None


def has_steps(epilogue: Epilogue, pieces: int = 1) -> bool:
    """Whether there is a step of dots for each piece of each part of the epilogue, and two more."""
    parts = -(-sizes_of(epilogue.value)[1] * pieces // PART)
    return known_ends(epilogue.loop) is not None and is_longer(epilogue.loop, (parts + 1) * epilogue.loop.value("step"))


def pieces_of(epilogue: Epilogue) -> int:
    """In how many steps a part is computed: more than one where it is work, so that dots never wait for it.

    A step starts its dots one after the other, and what is between them must not take longer than they do. Several
    results share the staging buffers, each for a whole part at a time.
    """
    stores = sum(op.name == "ttile.store" for op in epilogue.ops)
    is_work = stores == 1 and any(op.name == "ttile.elementwise" for op in epilogue.ops)
    return next((pieces for pieces in PIECES if is_work and has_steps(epilogue, pieces)), 1)


def _fits(plan: Plan, last: SpecOp) -> bool:
    type = shaped_type(last.results[0])
    rows, columns = type.sizes
    accumulators = rows * columns // (128 * plan.consumers)
    left = accumulators * type.dtype.bytes // 4
    return accumulators + left <= _MOST.get(plan.consumers, 0)


def _is_plain(op: SpecOp, dot: MmaDot, stores: Collection[SpecOp]) -> bool:
    """Whether an op is done some columns at a time, without a branch."""
    wanted = shaped_type(dot.op.results[0])
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TileAttr) and len(value.type.shape) == 2 and value.type.shape != wanted.shape:
            return False
    if op.name != "ttile.store":
        return True
    buffer = shaped_type(op.operands[1])
    return op in stores and is_multiple(buffer.shape[-1] * buffer.dtype.bytes, 16)


def _with_sources(ops: Sequence[SpecOp], after: Sequence[SpecOp], known: set[SpecOp]) -> list[SpecOp]:
    """The ops of the epilogue, with what they read of those before the loop, in order."""
    found: set[Operation] = set(after)
    for op in reversed(ops):
        if op in found:
            owners = {value.owner for value in op.operands}
            found.update(owner for owner in owners if isinstance(owner, SpecOp) and owner not in known)
    return [op for op in ops if op in found]


MULTICAST = ("model", "always", "never")
"""Whether two CTAs share what both read: where it is faster, wherever it can be, or not (`matrix.multicast`)."""
GROUP = 16
"""Rows of blocks that run together, so that a wave reads few rows and few columns."""
_PAIRED_ROWS, NARROW = 128, 64
"""Rows of blocks with two warpgroups, and columns of blocks that wait for memory: two CTAs that keep together read
longer pieces of the A operand (15504 x 24 x 65536, contiguous in M, takes 485 us on an H200 and 566 without)."""
_WAVES = 8
"""Programs of each CTA from which clusters are faster, as measured on an H200: their CTAs start and end together."""


@frozen
class Idle:
    """When a program stores nothing: where the index `low` is not below `high`, of indices that have names."""

    low: SSAValue
    high: Dim
    where: Mapping[str, SSAValue]

    @property
    def makers(self) -> list[SpecOp]:
        """The ops that all of these indices are made by, in order."""
        found = set[Operation]()
        for value in (self.low, *self.where.values()):
            found |= _makers(value)
        (block,) = {op.parent_block() for op in found}
        return [] if block is None else [op for op in spec_ops(block) if op in found]


def idle_of(kernel: SpecOp) -> Idle | None:
    """When programs of a kernel have no effect, where memory says how far they store; None where it does not.

    The rows of a store begin at an index, and end at one that is read before the first loop: a table of blocks of rows
    may have entries for none.
    """
    stores = [op for op in kernel.walk() if isinstance(op, StoreOp)]
    if len(stores) != 1 or stores[0].mode != "set" or stores[0].parent_op() is not kernel:
        return None
    (store,) = stores
    where = dict(zip(store.coords, store.at, strict=True))
    for axis, bound in zip(store.axes, store.bounds, strict=True):
        ends = {name: value for name, value in where.items() if name in bound.symbols}
        makers = set[Operation]().union(*(_makers(value) for value in (where[axis], *ends.values())))
        is_read = any(isinstance(op, FetchOp) for value in ends.values() for op in _makers(value))
        if is_read and axis not in ends and all(_is_plain_index(op, kernel) for op in makers):
            return Idle(where[axis], bound, ends)
    return None


def _is_plain_index(op: Operation, kernel: SpecOp) -> bool:
    """Whether an op is one of indices, outside of loops."""
    return isinstance(op, ProgramIdOp | IndexOp | FetchOp) and op.parent_op() is kernel


def _makers(value: SSAValue) -> set[Operation]:
    """The ops that an index is made by."""
    if not isinstance(value, OpResult):
        return set()
    return {value.op}.union(*(_makers(operand) for operand in value.op.operands))


def is_uneven(kernel: SpecOp) -> bool:
    """Whether programs along the last axis take unequally long: such tiles are scheduled dynamically.

    Loops that begin at the program's own number are none of these: programs share their steps evenly.
    """
    return _is_limit_along(kernel, 0) or is_longer_later(kernel)


def is_longer_later(kernel: SpecOp) -> bool:
    """Whether programs further along the last axis take longer: loops end there where they are, and begin alike."""
    return _is_limit_along(kernel, 1)


def _is_limit_along(kernel: SpecOp, limit: int) -> bool:
    """Whether the first or second limit of a loop depends on where a program is along the last axis."""
    last = len(kernel.value("grid")) - 1
    limits = [op.operands[limit] for op in kernel.walk() if op.name == "ttile.for"]
    return any(last in axes_of(index) for index in limits if not isinstance(index.owner, ProgramIdOp))


def group_of(kernel: SpecOp, plan: Plan, l2: int, blocks: int = 0) -> int:
    """Rows of programs that run together; so many `blocks` run at a time, if it is known."""
    if is_uneven(kernel):
        return max(_cached_group(kernel, plan, l2), _balanced_group(kernel, blocks))
    if not _is_shared(kernel, plan, named=True):
        return 1
    return min(GROUP, _square_group(plan, blocks)) if blocks else GROUP


def _square_group(plan: Plan, blocks: int) -> int:
    """The even number of blocks below each other for which a wave of them is no higher than it is wide.

    It reads the fewest rows and columns then: on an H200, 8 instead of 16 are +1 % where blocks are 192 x 128.
    """
    rows, columns = sizes_of(next(iter(plan.dots)).results[0])
    return max(2, math.isqrt(blocks * columns // rows) // 2 * 2)


def _is_shared(kernel: SpecOp, plan: Plan, *, named: bool = False) -> bool:
    """Whether programs beside each other read the same rows of a dot, and those below each other its columns.

    With `named` also where memory names the matrix that programs below each other read: most of them the same.
    """
    last = len(kernel.value("grid")) - 1
    axes = [(_axes_of_load(dot.lhs.load), _axes_of_load(dot.rhs.load, through=not named)) for dot in plan.dots.values()]
    return any(last in right - left and last - 1 in left - right for left, right in axes)


def _cached_group(kernel: SpecOp, plan: Plan, l2: int) -> int:
    """As many rows of programs as have what loops read in L2."""
    grid, source = kernel.value("grid"), kernel.regions[0].block
    share = 0.0
    for operand in (operand for dot in plan.dots.values() for operand in dot.operands):
        if operand.load is None or operand.load.parent_block() is source:
            continue
        buffer = shaped_type(operand.load.operands[0])
        programs = product_of(grid[axis] for axis in _axes_of_load(operand.load) if axis < len(grid) - 1)
        if buffer.data.bytes.value is None or not programs.value:
            return GROUP
        share += buffer.data.bytes.value / programs.value
    group = GROUP
    while group > 1 and group * share > l2:
        group //= 2
    return group


def _balanced_group(kernel: SpecOp, blocks: int) -> int:
    """As many rows of programs as keep all blocks busy for as long as the longest program takes.

    CTAs take those of the last group at the end. With a mask along both sides, programs of a row take 1 to as many
    steps as there are of them; with fewer rows most blocks wait for the longest.
    """
    grid: Sequence[Dim] = kernel.value("grid")
    rows, columns = product_of(grid[:-1]).value, grid[-1].value
    if not rows or not columns:
        return 1
    return min(rows, -(-2 * blocks // (columns + 1)))


def is_multicast_faster(kernel: SpecOp, plan: Plan, blocks: int) -> bool:
    """Whether so many CTAs have programs enough for clusters to be worth it, or wait for L2 without them."""
    count = product_of(kernel.value("grid")).value or 0
    if len(plan.dots) != 1 or not count:
        return False
    ((op, dot),) = plan.dots.items()
    BM, BN = sizes_of(op.results[0])
    is_narrow = BN < NARROW and plan.rows >= _PAIRED_ROWS and count >= blocks // 2
    if count >= _WAVES * blocks or is_narrow:
        return True
    if (BM, BN) not in RATES or not is_pairable((BM, BN), count, blocks):
        return False
    lines = Lines(
        *(_lines_of(one) for one in (dot.lhs, dot.rhs)), *(_weight_of(*one) for one in ((dot.lhs, BM), (dot.rhs, BN)))
    )
    # An instruction takes as many bytes of K whatever the dtype, and a line of them is the step of the model.
    deep = sizes_of(op.operands[0])[1] * dot.lhs.dtype.bytes / SPAN
    alone, paired = (
        waves * step_cycles(lines, min(number, blocks), computed_cycles((BM, BN), waves) * deep, is_paired=bool(pairs))
        for pairs, number in enumerate((count, count // grid_rows(kernel) * even_rows(kernel)))
        for waves in (-(-number // blocks),)
    )
    return paired < alone


def grid_rows(kernel: SpecOp) -> int:
    """Rows of blocks of a kernel with a static grid; 1 where there is one axis."""
    grid: Sequence[Dim] = kernel.value("grid")
    return (grid[-2].value or 1) if len(grid) > 1 else 1


def even_rows(kernel: SpecOp) -> int:
    """The same with one more where clusters would have half of the last pair to themselves."""
    return grid_rows(kernel) + grid_rows(kernel) % 2


def _is_guarded(kernel: SpecOp, plan: Plan) -> bool:
    """Whether programs of one more row of blocks would touch nothing: what threads access ends at bounds."""
    axis = len(kernel.value("grid")) - 2
    copied = {operand.load for dot in plan.dots.values() for operand in dot.operands}
    for op in kernel.walk():
        if isinstance(op, LoadOp | StoreOp) and op not in copied:
            bounds = dict(zip(op.axes, op.bounds, strict=True))
            moving = [name for name, at in zip(op.coords, op.at, strict=True) if axis in axes_of(at)]
            if any(name not in bounds or bounds[name].value == -1 for name in moving):
                return False
    return True


def _lines_of(operand: MmaOperand) -> int:
    """Lines of memory that an operand of a step has."""
    if not isinstance(operand, CopiedOperand):
        return 0
    return math.prod(operand.box.sizes[:-1]) * operand.box.pieces


def _weight_of(operand: MmaOperand, size: int) -> float:
    """How long a line of an operand takes, whose blocks have so many rows or columns, of one that is not crossed."""
    if not isinstance(operand, CopiedOperand):
        return 1.0
    buffer = shaped_type(operand.load.operands[0])
    width = buffer.sizes[-1] * buffer.dtype.bytes
    # Rows that TMA does not take are copied to whole lines.
    pitch = 0 if width % (SECTOR // 2) else width
    return crossing_weight(pitch, 0 if operand.major == "k" else size * buffer.dtype.bytes)


def multicast_problem(kernel: SpecOp, plan: Plan) -> str:
    """Why two CTAs cannot take programs of neighbouring rows whose B operand both read; empty where they can."""
    grid: Sequence[Dim] = kernel.value("grid")
    if len(plan.dots) != 1:
        return f"clusters share the B operand of one dot, and there are {len(plan.dots)}"
    if is_uneven(kernel) or not _is_shared(kernel, plan):
        return "clusters take programs of neighbouring rows in a fixed order, and these have none"
    (dot,) = plan.dots.values()
    is_even = even_rows(kernel) == grid_rows(kernel) or (grid_rows(kernel) > 1 and _is_guarded(kernel, plan))
    if any(dim.value is None for dim in grid) or not is_even:
        return f"clusters need an even number of rows of blocks, and there are {grid[-2]}"
    if not isinstance(dot.rhs, CopiedOperand):
        return "clusters copy halves of the B operand, and it is not copied"
    if is_windowed(dot.rhs.load):
        return "clusters copy halves of the B operand, and windows of it are walked one after the other"
    if (cut := cut_of(dot.rhs.load)) is not None:
        return f"clusters copy halves of the B operand, and it ends at {cut.end} before its buffer does"
    if half_of(dot.rhs) == "rows" and (rows := max(dot.rhs.box.sizes[:-1])) % 16:
        return f"the B operand has {rows} rows, and its halves are not whole eights"
    return ""


def half_of(operand: CopiedOperand) -> str:
    """What of an operand is halved between two CTAs: its pieces across K where they are even, else rows of each."""
    return "pieces" if operand.major == "mn" and operand.box.pieces % 2 == 0 else "rows"


def _axes_of_load(load: SpecOp | None, *, through: bool = True) -> set[int]:
    return set() if load is None else set[int]().union(*(axes_of(value, through) for value in load.operands[1:]))


def axes_of(index: SSAValue, through: bool = True) -> set[int]:
    """The axes of the grid that an index depends on, also `through` memory."""
    if isinstance(index, BlockArgument) or not isinstance(index, OpResult):
        return set()
    op: Operation = index.op
    if isinstance(op, ProgramIdOp):
        return {op.axis}
    if isinstance(op, FetchOp) and not through:
        return set()
    return set[int]().union(*(axes_of(value, through) for value in op.operands))


# Operands that threads of a producer copy: rows that TMA does not take, of what is read once.

THREADED = (104, 200)
"""Registers of a thread of a producer that copies by itself, and of those of two consumers."""


def threaded_loads(kernel: SpecOp, plan: Plan) -> frozenset[SpecOp]:
    """The loads of a kernel that threads copy, once it is known who copies, and with how many registers.

    What several programs read is copied to rows that TMA takes before, and so is what a cluster shares.
    """
    is_able = kernel.value("roles") == PRODUCER and tuple(kernel.value("registers")) in ((), THREADED)
    if not is_able or kernel.value("multicast") or kernel.value("scheduler") == DYNAMIC:
        return frozenset()
    return find_threaded(kernel, plan)


def find_threaded(kernel: SpecOp, plan: Plan) -> frozenset[SpecOp]:
    """The loads of a kernel that threads could copy: rows begin anywhere, and one program reads each element."""
    columns = sum(sizes_of(dot.op.results[0])[1] for dot in plan.dots.values())
    if kernel.value("kind") != "contraction" or not can_copy_by_threads((plan.rows, columns)):
        return frozenset()
    copied = [one for dot in plan.dots.values() for one in dot.operands if isinstance(one, CopiedOperand)]
    return frozenset(one.load for one in copied if _is_threaded(kernel, one))


def _is_threaded(kernel: SpecOp, operand: CopiedOperand) -> bool:
    buffer, box, cut = shaped_type(operand.load.operands[0]), operand.box, cut_of(operand.load)
    if len(buffer.shape) < 2 or not all(dim.is_static for dim in buffer.shape) or operand.rounds:
        return False
    row_dims = [dim for dim, size in enumerate(box.sizes[:-1]) if size > 1]
    # Threads go from row to row by the bytes of one: rows lie next to each other, with no batch in between.
    if row_dims != [len(buffer.shape) - 2] or (cut is not None and cut.dim != row_dims[0]):
        return False
    is_aligned = buffer.sizes[-1] * buffer.dtype.bytes % CP_ASYNC_BYTES == 0
    is_large = math.prod(buffer.sizes) * buffer.dtype.bytes >= THREADED_LEAST
    return not is_aligned and is_large and _times_read(kernel, operand.load) == 1


def _times_read(kernel: SpecOp, load: SpecOp) -> int | None:
    """How many programs read each element of what is loaded; None where that is not known."""
    axes = _axes_of_load(load)
    others = [extent.value for axis, extent in enumerate(kernel.value("grid")) if axis not in axes]
    known = [extent for extent in others if extent is not None]
    return math.prod(known) if len(known) == len(others) else None
