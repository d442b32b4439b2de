"""Decisions about the threads and rows of a kernel, as passes write them: attributes `nvptx.*` of kernels and ops.

They are discardable attributes, so that Tile IR and Target IR need know nothing of GPUs. Passes of `passes/` write
them, the lowering and the emitters read them; whoever wants to know why a kernel runs as it does reads its IR. What is
decided on Tile IR goes down with the kernel:

    nvptx-plan-threads        how many threads a program has
    nvptx-plan-rows           where a row is kept between loops, and how many warps share it
    nvptx-place-scratch       registers, shared memory or global memory
    nvptx-unroll-loops        iterations one after the other
    nvptx-insert-barriers     where threads wait for each other

On Target IR, where offsets, guards and alignment of accesses are known:

    nvptx-plan-matmuls        threads of a matmul of f32, and steps of it that are copied early
    nvptx-choose-vectors      neighbours of a tile to a thread
    nvptx-schedule-rows       programs to a block, blocks to a multiprocessor
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Generic, TypeVar

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.backends.nvptx.text import WARP, RowLaunch, Widths
from tessera.ir.base.op import DISCARDABLE, SpecOp, plain
from tessera.ir.base.types import TileAttr, attribute_of, shaped_type
from tessera.ir.target.typed_ops import IndexOp as TargetIndexOp
from tessera.ir.target.typed_ops import KernelOp as TargetKernelOp
from tessera.ir.target.typed_ops import LoopOp, ProgramsOp
from tessera.ir.tile.indexing import known_ends, size_expr
from tessera.ir.tile.typed_ops import (
    ArgReduceOp,
    DotOp,
    ForOp,
    IndexOp,
    KernelOp,
    ReduceOp,
)
from tessera.types.dim import Dim, maximum
from tessera.types.frozen import frozen
from tessera.types.numerics import LEAF

# What a tile kernel does with rows, as far as its ops show it: what planning asks before it decides.

_DIVISIBLE = frozenset(
    f"ttile.{name}"
    for names in (
        ("for", "load", "store", "elementwise", "cast", "select", "constant", "broadcast", "reduce", "yield", "return"),
        ("index", "program_id", "coordinate", "round", "bitcast", "clip", "scratch", "arg_reduce", "tree"),
    )
    for name in names
)
"""Ops of a kernel whose loops may be divided among warps."""

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


def is_row_loop(loop: ForOp | LoopOp) -> bool:
    """Whether a loop has others inside: it goes through rows, which those inside go over."""
    return any(op is not loop and isinstance(op, ForOp | LoopOp) for op in loop.walk())


def leaf_loops_in(kernel: SpecOp) -> list[ForOp]:
    """The loops of a kernel that go over rows."""
    return [loop for loop in loops_in(kernel) if not is_row_loop(loop)]


def _is_around_rows(op: Operation | None, kernel: KernelOp) -> bool:
    """Whether loops over rows may be in an op: the kernel, or a loop by single steps that carries nothing."""
    return op is kernel or (isinstance(op, ForOp) and op.step == 1 and not op.results)


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


# Rows that are divided by leaves of reductions.


def leaves_of(kernel: KernelOp) -> Dim | None:
    """The leaves of a kernel's rows, where each of its loops goes over them and warps can divide it; else None."""
    ops, loops = ops_in(kernel), leaf_loops_in(kernel)
    around = [loop.parent_op() for loop in loops_in(kernel)]
    if not loops or not all(_is_around_rows(op, kernel) for op in around) or {loop.step for loop in loops} != {LEAF}:
        return None
    is_line = all(len(value.type.shape) < 2 for op in ops for value in op.results if isinstance(value.type, TileAttr))
    runs = {run_length(loop.low) for loop in loops}
    ends = {(size_expr(loop.low), size_expr(loop.high)) for loop in loops}
    carried = [value for loop in loops for value in loop.results]
    users = {use.operation for value in carried for use in value.uses}
    # Minima and maxima are what warps exchange.
    is_plain = all(isinstance(user, ReduceOp) and user.kind in ("max", "min") for user in users)
    if not is_line or not is_plain or not {op.name for op in ops} <= _DIVISIBLE:
        return None
    if len(runs) == 1 and (run := runs.pop()):
        return Dim.constant(run // LEAF)
    if len(ends) != 1:
        return None
    ((low, high),) = ends
    return high.ceildiv(LEAF) if low is not None and high is not None and low.value == 0 else None


def tile_width(kernel: KernelOp) -> Dim:
    """Elements of a row whose leaves all loops of a kernel go over."""
    width = size_expr(leaf_loops_in(kernel)[0].high)
    assert width is not None, "a loop over leaves ends where a row does"
    return width


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


# The same in Target IR.


def programs_in(kernel: TargetKernelOp) -> ProgramsOp:
    """The op that goes through the grid."""
    (found,) = [op for op in kernel.body.block.ops if isinstance(op, ProgramsOp)]
    return found


def is_constant(kernel: TargetKernelOp, buffer: SSAValue) -> bool:
    """Whether a buffer is an argument that the kernel does not write."""
    return isinstance(buffer, BlockArgument) and buffer.index not in kernel.writes


def row_width(kernel: TargetKernelOp) -> Dim:
    """Elements of a row, which all loops of a kernel go over, or of a run of one."""
    loop = next(op for op in kernel.walk() if isinstance(op, LoopOp) and not is_row_loop(op))
    assert isinstance(loop.high.owner, TargetIndexOp)
    run = run_length(loop.low)
    return Dim.constant(run) if run else loop.high.owner.expr


def shared_widths(kernel: TargetKernelOp) -> Widths | None:
    """The symbolic widths of rows that warps share; None where the width is known."""
    width = row_width(kernel)
    if width.value is not None:
        return None
    most = kernel.warps_per_row * ROW_BLOCKS.of(kernel) * LEAVES.of(kernel) * LEAF
    return Widths(width, 1, most, MULTIPLE.of(kernel))


def launch_of_rows(kernel: TargetKernelOp) -> RowLaunch | None:
    """How rows of a symbolic width are launched: a warp to each leaf; None where the width is known.

    Blocks of one warp would be more than a multiprocessor holds or starts in time: rows of one leaf share one.
    """
    width = row_width(kernel)
    if width.value is not None:
        return None
    leaves, blocks = width.ceildiv(LEAF), ROW_BLOCKS.of(kernel)
    if blocks > 1:
        return RowLaunch(leaves.ceildiv(blocks) * WARP, Dim.constant(1))
    rows = maximum(1, 2 * ROWS_OF_ONE - ROWS_OF_ONE * leaves)
    return RowLaunch(leaves * rows * WARP, rows)


def symbol_of_width(width: Dim) -> str:
    """The name of the one size that a width is; empty where it is another expression."""
    names = list(width.symbols)
    return names[0] if len(names) == 1 and width == Dim.symbol(names[0]) else ""


ROWS_OF_ONE = 4
"""Rows of one leaf that share a block."""

T = TypeVar("T")


@frozen
class Decision(Generic[T]):
    """A decision: the name of its attribute, and what holds of an op that has none."""

    name: str
    default: T

    def __post_init__(self) -> None:
        kinds: dict[type[object], str] = {int: "count", bool: "bool", str: "str"}
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
MEMORY, REGISTERS = "memory", "registers"
"""Where a row is between the loops that go over it."""

# Of a `ttile.kernel`.
THREADS = Decision("nvptx.threads", 1)
"""Threads of one program."""
ALIGN = Decision("nvptx.align", ALIGNED)
"""Bytes that the kernel's arguments begin at a multiple of."""
ROWS = Decision("nvptx.rows", MEMORY)
"""Where a program keeps its row between loops: in memory or in registers."""
WARPS_PER_ROW = Decision("nvptx.warps_per_row", 0)
"""Warps that divide the leaves of a row among them; 0 where a program has all of its threads in every iteration."""
ROW_BLOCKS = Decision("nvptx.row_blocks", 1)
"""Blocks of a cluster whose warps share a row; each has so many warps of it."""
CARRIES_ROWS = Decision("nvptx.carries_rows", False)
"""Whether a program that goes through rows has the next one in registers while it computes one."""
MULTIPLE = Decision("nvptx.multiple", 1)
"""A number that the symbolic width of its rows, one size, is a multiple of: launches with other widths take another."""
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
NEAR_ROWS = Decision("nvptx.near_rows", 1)
"""Rows of a tile, one after the other, of which one thread has the same columns."""

# Of a `ttarget.kernel`.
PROGRAMS = Decision("nvptx.programs", 1)
"""Programs that a block runs side by side."""
BLOCKS = Decision("nvptx.blocks", 0)
"""Blocks that a multiprocessor holds at least, which bounds the registers of a thread; 0 for any number."""
LAUNCHED = Decision("nvptx.launched", 0)
"""Blocks that are launched for each multiprocessor, which share the programs; 0 for one to each program."""
STREAMED = Decision("nvptx.streamed", False)
"""Whether rows are copied to shared memory while the ones before them are computed."""
SLOTS = Decision("nvptx.slots", 0)
"""Programs that run at a time where each has scratch in global memory; 0 for any number."""
FETCHES_LINES = Decision("nvptx.fetches_lines", False)
"""Whether reads of less than 128 bytes of a row bring the whole line to L2, where other blocks find it."""
