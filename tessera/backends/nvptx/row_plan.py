"""Decisions about the threads and rows of a kernel, as passes write them: attributes `nvptx.*` of kernels and ops.

They are discardable attributes, so that Tile IR and Target IR need know nothing of GPUs. Passes of `passes/` write
them, the lowering and the emitters read them; whoever wants to know why a kernel runs as it does reads its IR. What is
decided on Tile IR goes down with the kernel:

    nvptx-plan-threads        how many threads a program has
    nvptx-plan-rows           where a row is kept between loops, and how many warps share it
    nvptx-rematerialize-rows  what is rematerialized in place of being kept
    nvptx-place-scratch       registers, shared memory or global memory
    nvptx-unroll-loops        iterations one after the other
    nvptx-insert-barriers     where threads wait for each other

On Target IR, where offsets, guards and alignment of accesses are known:

    nvptx-choose-vectors      neighbours of a tile to a thread
    nvptx-schedule-rows       programs to a block, blocks to a multiprocessor, prefetching, moves by `ldmatrix`
    nvptx-defer-accumulators          accumulators that are almost never used
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Generic, TypeVar

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import DISCARDABLE, SpecOp, plain
from tessera.ir.base.types import BufferAttr, TileAttr, attribute_of, shaped_type
from tessera.ir.target.limits import ROW_WARPS, is_multiple
from tessera.ir.target.typed_ops import IndexOp as TargetIndexOp
from tessera.ir.tile.indexing import known_ends, size_expr
from tessera.ir.tile.typed_ops import (
    ArgReduceOp,
    DotOp,
    ElementwiseOp,
    ForOp,
    IndexOp,
    KernelOp,
    LoadOp,
    ReduceOp,
    StoreOp,
)
from tessera.types.dim import Dim
from tessera.types.dtype import bf16
from tessera.types.frozen import frozen
from tessera.types.numerics import LEAF

# What a tile kernel does with rows, as far as its ops show it: what planning asks before it decides.

ROW_OPS = frozenset(
    f"ttile.{name}"
    for names in (
        ("for", "load", "store", "elementwise", "cast", "select", "constant", "broadcast", "reduce", "yield", "return"),
        ("index", "program_id", "coordinate", "round", "bitcast"),
    )
    for name in names
)
"""Ops of a kernel whose rows registers may hold as they are in memory."""
_DIVISIBLE = ROW_OPS | {"ttile.clip", "ttile.scratch", "ttile.arg_reduce"}
"""Ops of a kernel whose loops may be divided among warps."""
CHEAP = frozenset(
    ("add", "sub", "mul", "div", "fma", "neg", "abs", "max", "min", "relu", "exp", "eq", "ne", "lt", "le", "gt", "ge")
)
"""Functions that take few instructions, so that many of them unrolled still compile soon."""
ELEMENTS_PER_THREAD = 64
"""Iterations of a warp that shares a row, at most: 64 elements of 4 bytes leave registers for two other values each."""
INSTRUCTIONS = 4900
"""Instructions that are unrolled for a thread, all iterations together: more take seconds to compile with ptxas."""

# How long an iteration is.

_NO_INSTRUCTION = frozenset(("constant", "broadcast", "index", "yield"))
_ONE_INSTRUCTION = frozenset(
    name
    for names in (
        ("add", "sub", "mul", "fma", "neg", "abs", "max", "min", "relu", "eq", "ne", "lt", "le", "gt", "ge", "isnan"),
        ("not", "and", "or", "xor", "shl", "shr", "floor", "ceil", "round", "trunc", "sign", "isinf", "sqrt"),
    )
    for name in names
)
_LENGTHS = {"exp": 12, "exp2": 12, "div": 8, "reciprocal": 8, "sin": 90, "cos": 90, "tan": 120, "pow": 60, "atan2": 60,
    "tanh": 50}  # fmt: skip
_LENGTH = 25
"""Instructions of a function, about, as counted in PTX: of those that are one, of some others, and of the rest."""


def count_instructions(ops: Sequence[SpecOp]) -> int:
    """Instructions of an iteration of each loop, about, in Tile IR or Target IR; at least 1."""
    return sum(_length(op) for op in ops if (op.parent_op() or op).name in ("ttile.for", "ttarget.loop")) or 1


def _length(op: SpecOp) -> int:
    name = op.spec.short_name
    if name == "elementwise":
        fn: str = op.value("fn")
        return 1 if fn in _ONE_INSTRUCTION else _LENGTHS.get(fn, _LENGTH)
    return 0 if name in _NO_INSTRUCTION else 1


# Shapes.


def ops_in(kernel: SpecOp) -> list[SpecOp]:
    """All ops inside a kernel or loop."""
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]


def loops_in(kernel: SpecOp) -> list[ForOp]:
    """All loops of a kernel, nested ones too."""
    return [op for op in kernel.walk() if isinstance(op, ForOp)]


def tile_sizes(kernel: Operation) -> list[int]:
    """Elements of each tile that an op of a kernel, or of a loop, gives."""
    tiles = [value.type for op in kernel.walk() for value in op.results if isinstance(value.type, TileAttr)]
    return [prod(dim.value or 1 for dim in tile.shape) for tile in tiles]


def trip_count(loop: ForOp) -> int | None:
    """How often a loop runs, where that is known."""
    ends = known_ends(loop)
    return None if ends is None else -(-(ends[1] - ends[0]) // loop.step)


# What a kernel does.


def reduces_rows(kernel: SpecOp) -> bool:
    """Whether every tile that a loop carries is reduced once its loop is over: softmax, norms, sums over an axis.

    A program of such a kernel goes over its row, or some columns side by side, in loops that stand one after the
    other, and each lane accumulates its own elements.
    """
    loops = loops_in(kernel)
    carried = [value for loop in loops for value in loop.results]
    is_flat = all(loop.parent_op() is kernel for loop in loops) and not any(
        isinstance(op, DotOp) for op in kernel.walk()
    )
    return bool(carried) and is_flat and all(map(_is_reduced, carried))


def _is_reduced(value: SSAValue) -> bool:
    return any(isinstance(use.operation, ReduceOp | ArgReduceOp) for use in value.uses)


def reduces_whole_tiles(kernel: SpecOp, size: int) -> bool:
    """Whether the largest tiles, of `size` elements, are single rows that are reduced whole."""
    for op in kernel.walk():
        if isinstance(op, ReduceOp | ArgReduceOp):
            sizes = [dim.value or 1 for dim in shaped_type(op.operands[0]).shape]
            if sizes[op.axis] == prod(sizes) == size:
                return True
    return False


def has_bf16_rows(kernel: SpecOp) -> bool:
    """Whether a program reads one row of bf16, and nothing else is kept of it.

    Such a row takes half a register an element, and `ldmatrix` moves it.
    """
    ops = ops_in(kernel)
    loads = [op for op in ops if isinstance(op, LoadOp)]
    types = [load.results[0].type for load in loads]
    buffers = {load.buffer for load in loads}
    has_one_row = sum(isinstance(one.type, BufferAttr) and len(one.type.shape) > 1 for one in buffers) <= 1
    is_narrow = all(isinstance(type, TileAttr) and type.dtype is bf16 for type in types) and has_one_row
    return is_narrow and {op.name for op in ops} <= ROW_OPS and all(map(_is_cheap, ops))


def _is_cheap(op: SpecOp) -> bool:
    """Whether an op on each element of a row is a few instructions: a function of `CHEAP`, of no wide dtype."""
    type = op.results[0].type if op.results else None
    if not isinstance(type, TileAttr) or prod(dim.value or 1 for dim in type.shape) == 1:
        return True
    return type.dtype.bytes <= 4 and (not isinstance(op, ElementwiseOp) or op.fn in CHEAP)


# Rows that are divided by leaves of reductions.


def leaves_of(kernel: KernelOp) -> Dim | None:
    """The leaves of a kernel's rows, where each of its loops goes over them and warps can divide it; else None."""
    ops, loops = ops_in(kernel), loops_in(kernel)
    if not loops or not all(loop.parent_op() is kernel and loop.step == LEAF for loop in loops):
        return None
    is_line = all(len(value.type.shape) < 2 for op in ops for value in op.results if isinstance(value.type, TileAttr))
    runs = {run_length(loop.low) for loop in loops}
    ends = {(size_expr(loop.low), size_expr(loop.high)) for loop in loops}
    carried = [value for loop in loops for value in loop.results]
    users = {use.operation for value in carried for use in value.uses}
    # Minima and maxima are what warps exchange.
    is_plain = all(isinstance(user, ReduceOp) and user.kind in ("max", "min") for user in users)
    if not is_line or not is_plain or not {op.name for op in ops} <= _DIVISIBLE | {"ttile.tree"}:
        return None
    if len(runs) == 1 and (run := runs.pop()):
        return Dim.constant(run // LEAF)
    if len(ends) != 1:
        return None
    ((low, high),) = ends
    return high.ceildiv(LEAF) if low is not None and high is not None and low.value == 0 else None


def reduced_columns(kernel: KernelOp) -> int:
    """Elements of the tiles of rows and columns whose rows a kernel joins; 0 where it does not."""
    sources = [op.operands[0].type for op in ops_in(kernel) if isinstance(op, ReduceOp | ArgReduceOp) and op.axis == 0]
    shapes = [[dim.value or 1 for dim in type.shape] for type in sources if isinstance(type, TileAttr)]
    return max((prod(shape) for shape in shapes if len(shape) > 1), default=0)


def run_length(low: SSAValue) -> int:
    """Elements of the run that a loop of leaves is over, where a program has one of several of its row; else 0."""
    names = list(low.owner.names) if isinstance(low.owner, IndexOp | TargetIndexOp) else []
    if len(names) != 1:
        return 0
    assert isinstance(low.owner, IndexOp | TargetIndexOp)
    parts = low.owner.expr.coefficient(names[0])
    step = None if parts is None or parts[1].value != 0 else parts[0].value
    return step if step is not None and step > 0 and step % LEAF == 0 else 0


# Rows that several warps divide among them.


def choose_warps(kernel: KernelOp, most: int, unaligned: int) -> int:
    """Warps that share a row of known width; 0 where one has it: up to `most` iterations, or loops that stay whole.

    One has up to `unaligned` iterations where rows do not begin at 16 bytes, if they are of 2-byte elements.
    """
    ops, width = ops_in(kernel), divisible_width(kernel)
    if width is None or width.value is None:
        return 0
    iterations = width.value // WARP
    length = count_instructions(ops)
    if iterations <= (unaligned if width.value % 8 else most) and iterations * length <= INSTRUCTIONS:
        return 0
    own = min(_iterations_of_a_warp(ops), INSTRUCTIONS // length)
    return next((count for count in ROW_WARPS if iterations // count <= own), 0)


def has_divisible_symbolic_rows(kernel: KernelOp) -> bool:
    """Whether warps can share rows whose width is known at run time only, as many for each as it needs."""
    width = divisible_width(kernel)
    return width is not None and width.value is None and not is_multiple(width, WARP)


def divisible_width(kernel: KernelOp) -> Dim | None:
    """Elements of a row of a kernel whose loops can be divided among warps; None for any other.

    Warps can divide a loop where no iteration meets another in memory, and nothing that depends on what iterations
    carry is stored in it: what they carry is known only when all warps before are done.
    """
    ops = ops_in(kernel)
    width = _end_of(loops_in(kernel), kernel)
    if width is None or not {op.name for op in ops} <= _DIVISIBLE or not all(map(_has_lanes, ops)):
        return None
    is_apart = all(_is_apart(kernel, op) for op in ops if isinstance(op, LoadOp | StoreOp))
    return width if is_apart and not any(map(_stores_carried, loops_in(kernel))) else None


def _stores_carried(loop: ForOp) -> bool:
    """Whether a loop stores anything that depends on what its iterations carry."""
    late: set[SSAValue] = set(loop.body.block.args[1:])
    for op in loop.body.block.ops:
        if late & set(op.operands):
            late.update(op.results)
            if isinstance(op, StoreOp):
                return True
    return False


def _end_of(loops: Sequence[ForOp], kernel: KernelOp) -> Dim | None:
    """Where all loops end, which run over a row alike from 0 on, one after the other; None where they do not."""
    ends: set[tuple[Dim, Dim]] = set()
    for loop in loops:
        low, high = size_expr(loop.low), size_expr(loop.high)
        if loop.parent_op() is not kernel or loop.step != WARP or low is None or high is None:
            return None
        ends.add((low, high))
    if len(ends) != 1:
        return None
    ((begin, end),) = ends
    return end if begin.value == 0 and end.symbols <= set(kernel.symbols) else None


def _iterations_of_a_warp(ops: Sequence[SpecOp]) -> int:
    types = [op.results[0].type for op in ops if op.results]
    widest = max((type.dtype.bytes for type in types if isinstance(type, TileAttr) and type.shape), default=4)
    return ELEMENTS_PER_THREAD * 4 // max(4, widest)


def _has_lanes(op: SpecOp) -> bool:
    """Whether an op gives single elements, or one to a lane."""
    types = [value.type for value in op.results if isinstance(value.type, TileAttr)]
    return all(prod(dim.value or 0 for dim in type.shape) in (1, WARP) for type in types)


def _is_apart(kernel: SpecOp, op: LoadOp | StoreOp) -> bool:
    """Whether no iteration meets another in memory: arguments are read or written, scratch is indexed by the loop."""
    loop, indices = op.parent_op(), list(op.at)
    index: SSAValue | None = loop.regions[0].block.args[0] if loop is not kernel and loop is not None else None
    if isinstance(op, StoreOp) and (op.mode != "set" or (index is not None and index not in indices)):
        return False
    if not isinstance(op.buffer, BlockArgument):
        return index is not None and indices == [index]
    users = {use.operation.name for use in op.buffer.uses}
    return users == {op.name}


T = TypeVar("T")


@frozen
class Decision(Generic[T]):
    """A decision: the name of its attribute, and what holds of an op that has none."""

    name: str
    default: T

    def __post_init__(self) -> None:
        kinds: dict[type[object], str] = {tuple: "pairs", int: "count", bool: "bool", str: "str"}
        DISCARDABLE[self.name] = kinds[type(self.default)]

    def of(self, op: Operation) -> T:
        """What was decided for an op."""
        found = op.attributes.get(self.name)
        return self.default if found is None else plain(found)

    def write(self, op: Operation, value: T) -> None:
        """Decide it for an op; what holds without an attribute needs none."""
        if value == self.default:
            op.attributes.pop(self.name, None)
        else:
            op.attributes[self.name] = attribute_of("any", value)


ALIGNED = 16
"""Bytes that arguments begin at a multiple of, unless said otherwise; the runtime sees to it."""
MEMORY, REGISTERS, REMATERIALIZED = "memory", "registers", "rematerialized"
"""Where a row is between the loops that go over it."""

# Of a `ttile.kernel`.
THREADS = Decision("nvptx.threads", 1)
"""Threads of one program."""
ALIGN = Decision("nvptx.align", ALIGNED)
"""Bytes that the kernel's arguments begin at a multiple of."""
ROWS = Decision("nvptx.rows", MEMORY)
"""Where a program keeps its row between loops: in memory, in registers, or nowhere, since it is computed twice."""
WARPS_PER_ROW = Decision("nvptx.warps_per_row", 0)
"""Warps that divide the loops of a program among them; 0 where a program has all of its threads in every iteration."""

LEAVES = Decision("nvptx.leaves", 0)
"""Leaves of a row that each of the warps that share it has, at most; 0 where rows are not divided by leaves."""

# Of a `ttile.scratch`.
SPACE = Decision("nvptx.space", "private")
"""private (global memory), shared, or registers."""

# Of a `ttile.for`.
UNROLL = Decision("nvptx.unroll", 1)
"""Iterations that are written one after the other; 0 for all of them."""

# Of a `ttile.kernel` and of the `ttarget.kernel` that it becomes.
MOST_NEIGHBOURS = Decision("nvptx.most_neighbours", 16)
"""Neighbours of a tile that one thread has at most, as the author of the kernel asks."""

# Of a `ttarget.kernel`.
PROGRAMS = Decision("nvptx.programs", 1)
"""Programs that a block runs side by side."""
BLOCKS = Decision("nvptx.blocks", 0)
"""Blocks that a multiprocessor holds at least, which bounds the registers of a thread; 0 for any number."""
LAUNCHED = Decision("nvptx.launched", 0)
"""Blocks that are launched for each multiprocessor, which share the programs; 0 for one to each program."""
SLOTS = Decision("nvptx.slots", 0)
"""Programs that run at a time where each has scratch in global memory; 0 for any number."""
USES_MATRICES = Decision("nvptx.uses_matrices", False)
"""Whether lanes are numbered as `ldmatrix` deals out elements."""
SECTIONS = Decision("nvptx.sections", 0)
"""Sections of eight iterations that a warp has of a row of symbolic width."""
WIDENS_IN_EACH_LOOP = Decision("nvptx.widens_in_each_loop", False)
"""Whether bf16 stay as they are in memory and every loop widens them anew: as f32 they would fill all registers."""
FETCHES_LINES = Decision("nvptx.fetches_lines", False)
"""Whether reads of less than 128 bytes of a row bring the whole line to L2, where other blocks find it."""
KEEPS_ROWS_ONLY = Decision("nvptx.keeps_rows_only", False)
"""Whether warps that share a row keep nothing of it between loops but the row: what they compute takes no time."""
COMPUTES_LATE = Decision("nvptx.computes_late", False)
"""Whether a warp computes nothing of its iterations until the warps before it are done: fewer registers."""

# Of a `ttarget.load` or `ttarget.store`.
PREFETCH = Decision("nvptx.prefetch", "")
"""row: the next program's is copied to shared memory while this one computes; line: all programs read the same."""
BY_MATRIX = Decision("nvptx.by_matrix", False)
"""Whether eight iterations are moved by one `ldmatrix` or `stmatrix`."""

# Of a `ttarget.loop`.
DEFERRED = Decision[tuple[tuple[int, int], ...]]("nvptx.deferred", ())
"""Accumulators that are computed only if another is not finite: each with that other one, by number."""
