"""Matmuls by multiply-adds of threads: which loops are such, and how threads divide what these multiply.

A product is a loop that does nothing but load a tile of each operand and add their dot to an accumulator. Its tiles are
copied to shared memory some steps ahead. A thread has some rows by some columns of the accumulator and reads what it
multiplies from shared memory. So how wide rows of either operand can be
copied, and how a result can be stored, decides nothing about how threads multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from xdsl.ir import Block, OpResult, SSAValue

from tessera.backends.nvptx.access_groups import WIDEST, has_index_tiles, run_of
from tessera.backends.nvptx.layout import Layout, ThreadGrid
from tessera.backends.nvptx.matmul_blocks import FEW, HELD, PIECE, is_read_by_k, lanes_across
from tessera.backends.nvptx.row_plan import Decision, is_constant, programs_in
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.typed_ops import BroadcastOp, DotOp, IndexOp, KernelOp, LoadOp, LoopOp, TailOp, TransposeOp
from tessera.types.frozen import frozen

# Of a `ttarget.kernel`.
STAGES = Decision("nvptx.stages", 0)
"""Steps of a matmul that shared memory holds at a time; 0 where a kernel is no matmul."""
ACROSS = Decision("nvptx.across", 0)
"""Threads of a matmul along the columns of its result."""

LANES_OF_K = 8
"""Elements along K that lanes side by side copy of an operand which is transposed on the way: a sector of memory."""
PREFETCHED = 32
"""Elements of both operands that a thread reads before it has multiplied those before, where it may read any number."""
_ALLOWED = frozenset(
    f"ttarget.{name}"
    for names in (
        ("programs", "loop", "tail", "yield", "return", "index", "load", "store", "dot", "transpose", "elementwise"),
        ("select", "cast", "bitcast", "round", "constant", "coordinate", "clip", "broadcast"),
    )
    for name in names
)
"""Ops of a kernel around a matmul: none moves elements of its result between threads."""


@frozen
class Operand:
    """An operand of a matmul: how it is loaded, in whole steps and in the last, and which axis of that is K."""

    load: LoadOp
    last: LoadOp | None
    is_lhs: bool
    k_axis: int

    @property
    def extent(self) -> int:
        """Rows of a step of the left operand, columns of the right one."""
        return sizes_of(self.load.result)[1 - self.k_axis]

    @property
    def depth(self) -> int:
        """Elements of K of a step."""
        return sizes_of(self.load.result)[self.k_axis]

    @property
    def width(self) -> int:
        """Elements that one copy moves, as far as alignment and masks allow."""
        loads = [self.load] if self.last is None else [self.load, self.last]
        size = shaped_type(self.load.buffer).dtype.bytes
        runs = [min(load.align, WIDEST) // size if load.pattern == "contiguous" else 1 for load in loads]
        found = gcd(sizes_of(self.load.result)[1], min([*runs, *(run_of(load) for load in loads)]))
        return max(1, found & -found)


@frozen
class Matmul:
    """A loop that adds up dots of two operands; `tail` is its last step, where that has less of K."""

    loop: LoopOp
    tail: TailOp | None
    lhs: Operand
    rhs: Operand

    @property
    def steps(self) -> int | None:
        """Steps of the loop, the last included, where they are known."""
        owners = [value.owner for value in (self.loop.low, self.loop.high)]
        known = [owner.expr.value if isinstance(owner, IndexOp) and not owner.at else None for owner in owners]
        return None if known[0] is None or known[1] is None else -(-(known[1] - known[0]) // self.loop.step)

    @property
    def operands(self) -> tuple[Operand, Operand]:
        return self.lhs, self.rhs


@frozen
class Panel:
    """An operand of a step in shared memory: `extent` lines of `depth` along K, or the other way around.

    With `is_by_k` elements along K are neighbours. Lines are apart so that what lanes read or write together is in
    different banks.
    """

    extent: int
    depth: int
    is_by_k: bool
    is_transposed: bool
    """Whether elements come in the other order from memory: one by one, or through registers."""

    @property
    def pitch(self) -> int:
        """Elements from one line to the next: pieces of a line are an odd number where lanes go across lines."""
        length = self.depth if self.is_by_k else self.extent
        pieces = -(-length // PIECE)
        return PIECE * (pieces | 1 if self.is_by_k or self.is_transposed else pieces)

    @property
    def steps(self) -> tuple[int, int]:
        """Elements of shared memory from one row, or column, to the next, and from one K to the next."""
        return (self.pitch, 1) if self.is_by_k else (1, self.pitch)

    @property
    def elements(self) -> int:
        return self.pitch * (self.extent if self.is_by_k else self.depth)


@frozen
class Part:
    """One copy of a thread: rows and columns behind its first one; in the tile for `all` threads, or for some."""

    row: int
    column: int
    is_row_checked: bool = False
    is_column_checked: bool = False


@frozen
class Share:
    """How threads share the copies of a tile: `along` of them side by side along a row, `width` elements each."""

    along: int
    width: int
    active: int
    """Threads that take part, the first ones."""
    parts: tuple[Part, ...]


def share_copies(shape: tuple[int, int], threads: int, width: int, along: int = 0) -> Share:
    """Who copies what of a tile of rows and columns; `along` threads go along a row, by default as many as it takes.

    >>> [(part.row, part.column) for part in share_copies((16, 128), 256, 4).parts]
    [(0, 0), (8, 0)]
    """
    rows, units = shape[0], shape[1] // width
    along = min(along or units, units, threads)
    down = threads // along
    parts = [
        Part(row, column * width, row + down > rows, column + along > units)
        for row in range(0, rows, down)
        for column in range(0, units, along)
    ]
    return Share(along, width, down * along, tuple(parts))


@frozen
class MatmulPlan:
    """How threads divide a matmul: `rows` x `columns` of the result to each of `across` by `down` threads."""

    matmul: Matmul
    threads: int
    across: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of a block of the result."""
        return self.matmul.lhs.extent, self.matmul.rhs.extent

    @property
    def down(self) -> int:
        return self.threads // self.across

    @property
    def rows(self) -> int:
        return self.matmul.lhs.extent // self.down

    @property
    def columns(self) -> int:
        return self.matmul.rhs.extent // self.across

    def panel(self, operand: Operand) -> Panel:
        """Where an operand is in shared memory."""
        is_contiguous = operand.k_axis == 1
        own = self.rows if operand.is_lhs else self.columns
        is_by_k = is_contiguous and is_read_by_k(own)
        return Panel(operand.extent, operand.depth, is_by_k, is_contiguous and not is_by_k)

    @property
    def grid(self) -> ThreadGrid:
        """Where threads are over the result: as many neighbours to each as it reads of an operand in one piece."""
        counts = zip(self.matmul.operands, (self.rows, self.columns), strict=True)
        near = [1 if self.panel(operand).is_by_k else gcd(count, PIECE) for operand, count in counts]
        return ThreadGrid(self.across, lanes_across(self.across, self.down), *near)

    def is_held(self, operand: Operand) -> bool:
        """Whether an operand goes through registers, from which it is stored transposed; copies move single words."""
        return self.panel(operand).is_transposed and self.rows * self.columns >= HELD

    def share(self, operand: Operand) -> Share:
        """Who copies what of an operand in each step."""
        rows, columns = sizes_of(operand.load.result)
        if self.panel(operand).is_transposed:
            width = min(operand.width, PIECE) if self.is_held(operand) else 1
            return share_copies((rows, columns), self.threads, width, LANES_OF_K // width)
        return share_copies((rows, columns), self.threads, operand.width)

    def shared_accesses(self) -> Iterator[tuple[str, Sequence[int], int]]:
        """What threads write and read of shared memory together: words for people, an address of each, and bytes.

        All other accesses of a step are so many bytes further on, for all threads alike.
        """
        near = (self.grid.rows, self.grid.columns)
        for number, (operand, name) in enumerate(zip(self.matmul.operands, "AB", strict=True)):
            panel, share = self.panel(operand), self.share(operand)
            by_extent, by_k = panel.steps
            by_row, by_column = (by_extent, by_k) if operand.k_axis == 1 else (by_k, by_extent)
            cells = [divmod(thread, share.along) for thread in range(share.active)]
            written = [4 * (row * by_row + column * share.width * by_column) for row, column in cells]
            yield f"copy of the {name} operand", written, 4 if panel.is_transposed else 4 * share.width
            own = [self.grid.place(thread)[number] for thread in range(self.threads)]
            width = self.piece if panel.is_by_k else near[number]
            yield f"read of the {name} operand", [4 * near[number] * by_extent * at for at in own], 4 * width

    @property
    def piece(self) -> int:
        """Elements of K that are read while others are multiplied: few where a thread has many rows or columns."""
        counts = list(zip(self.matmul.operands, (self.rows, self.columns), strict=True))
        if any(self.panel(operand).is_by_k for operand, _ in counts):
            return PIECE // 2 if any(self.panel(operand).is_by_k and own > FEW for operand, own in counts) else PIECE
        return next((piece for piece in (PIECE, PIECE // 2) if piece * (self.rows + self.columns) <= PREFETCHED), 1)

    @property
    def staged(self) -> int:
        """Elements of a step that a thread holds between memory and shared memory."""
        moved = [self.share(operand) for operand in self.matmul.operands if self.is_held(operand)]
        return sum(share.width * len(share.parts) for share in moved)

    @property
    def stage_bytes(self) -> int:
        """Bytes of shared memory of a step."""
        return 4 * sum(self.panel(operand).elements for operand in self.matmul.operands)


def plan_of(kernel: KernelOp) -> MatmulPlan | None:
    """The plan of a kernel that was found to be a matmul; None where it is none."""
    if not STAGES.of(kernel):
        return None
    found = matmul_in(kernel)
    assert found is not None, f"`@{kernel.symbol}` has stages of a matmul"
    return MatmulPlan(found, kernel.threads, ACROSS.of(kernel))


# Which kernels are products.


def matmul_in(kernel: KernelOp) -> Matmul | None:
    """The only matmul of a kernel; None where it has none, or does more with its result than threads do alone."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op is not kernel]
    if not {op.name for op in ops} <= _ALLOWED:
        return None
    around = programs_in(kernel).body.block
    loops = [op for op in around.ops if isinstance(op, LoopOp)]
    tails = [op for op in around.ops if isinstance(op, TailOp)]
    dots = [op for op in ops if isinstance(op, DotOp)]
    transposes = [op for op in ops if isinstance(op, TransposeOp)]
    if len(loops) != 1 or len(tails) > 1 or len(dots) != 1 + len(tails):
        return None
    inner = [loops[0].body.block, *(tail.body.block for tail in tails)]
    if any(op.parent not in inner for op in (*dots, *transposes)):
        return None
    found = _matmul_of(kernel, loops[0], tails[0] if tails else None)
    if found is None or any(isinstance(op, BroadcastOp) and _is_result(op.block, found) for op in ops):
        return None
    return found


def _is_result(value: SSAValue, matmul: Matmul) -> bool:
    return isinstance(value.type, VectorAttr) and value.type.sizes == (matmul.lhs.extent, matmul.rhs.extent)


def _matmul_of(kernel: KernelOp, loop: LoopOp, tail: TailOp | None) -> Matmul | None:
    loads = _operands_of(kernel, loop.body.block)
    lasts: Sequence[tuple[LoadOp, int] | None] = (None, None)
    if tail is not None:
        is_next = list(tail.carried) == list(loop.results) and (tail.low, tail.high) == (loop.low, loop.high)
        found = _operands_of(kernel, tail.body.block) if is_next else None
        if found is None or any(_is_guarded_along(load, axis) for load, axis in loads or ()):
            return None
        lasts = found
    if loads is None:
        return None
    made = [
        Operand(load, None if last is None else last[0], number == 0, axis)
        for number, ((load, axis), last) in enumerate(zip(loads, lasts, strict=True))
    ]
    return Matmul(loop, tail, made[0], made[1])


def _operands_of(kernel: KernelOp, block: Block) -> list[tuple[LoadOp, int]] | None:
    """The loads of both operands of the dot of a step, with the axis that is K; None where it does anything else."""
    ops = list(block.ops)
    dots = [op for op in ops if isinstance(op, DotOp)]
    if len(dots) != 1 or len(block.args) != 2 or dots[0].acc is not block.args[1]:
        return None
    (dot,), found = dots, list[tuple[LoadOp, int]]()
    known: list[object] = [dot, ops[-1]]
    for k_axis, value in enumerate((dot.rhs, dot.lhs)):
        if isinstance(value, OpResult) and isinstance(value.op, TransposeOp):
            known.append(value.op)
            k_axis, value = 1 - k_axis, value.op.block
        load = value.owner
        if not isinstance(load, LoadOp) or not _is_copied(kernel, load, block, k_axis):
            return None
        known.append(load)
        found.append((load, k_axis))
    is_whole = all(op in known for op in ops) and list(ops[-1].operands) == [dot.result]
    return found[::-1] if is_whole and dot.result.type == block.args[1].type else None


def _is_copied(kernel: KernelOp, load: LoadOp, block: Block, k_axis: int) -> bool:
    """Whether a tile can be copied as memory has it: f32 that the loop goes along, with zeros where nothing is."""
    if load.parent is not block or len(load.axes) != 2 or has_index_tiles(load) or load.pad:
        return False
    is_f32 = all(shaped_type(value).dtype.name == "f32" for value in (load.buffer, load.result))
    walked = [name for name, at in zip(load.coords, load.at, strict=True) if at is block.args[0]]
    is_single = len(list(load.result.uses)) == 1
    return is_f32 and is_single and is_constant(kernel, load.buffer) and walked == [load.axes[k_axis]]


def _is_guarded_along(load: LoadOp, k_axis: int) -> bool:
    return load.axes[k_axis] in load.guarded


def is_guarded_along_k(operand: Operand) -> bool:
    """Whether whole steps may reach beyond the end of K."""
    return _is_guarded_along(operand.load, operand.k_axis)


# Accumulators of dots in other kernels, whose rows threads do not share evenly: rows of threads, each with some of the
# columns. Elements of a tile go to threads in the order of memory. Where a row is a power of two, all that a thread has
# is in the same columns, and what it reads of either operand is multiplied with all it reads of the other. With 96
# columns each of its elements would be in another row and in other columns: it would read 30 times from shared memory,
# in vectors, for 96 multiply-adds. Which thread has an element changes no bit of it.

_LEAST_ACROSS, _MOST_ACROSS = 8, 32
"""Threads along a row: a warp at most, and so many that what they read together is a sector."""
_PLACED = frozenset(
    f"ttarget.{name}"
    for names in (
        ("load", "store", "elementwise", "constant", "broadcast", "select", "cast", "dot", "transpose"),
        ("loop", "tail", "yield"),
    )
    for name in names
)
"""Ops that find elements by their coordinates, or have them where they are."""

Grids = Mapping[tuple[int, ...], ThreadGrid]


def grids_of(kernel: KernelOp) -> Grids:
    """The layouts of accumulators of a kernel that are not in the order of memory, by their shape."""
    if STAGES.of(kernel) or kernel.warps_per_row:
        return {}
    shapes = {sizes_of(op.result) for op in kernel.walk() if isinstance(op, DotOp)}
    grids = {shape: _grid_over(shape, kernel) for shape in shapes}
    return {shape: grid for shape, grid in grids.items() if grid is not None and _is_placed(kernel, shape)}


def _grid_over(shape: Sequence[int], kernel: KernelOp) -> ThreadGrid | None:
    """Threads over a tile, as many along a row as divide it; None where the order of memory is as good."""
    rows, columns = shape
    group = Layout(tuple(shape), kernel.threads, kernel.vector).group
    if group % columns == 0 or columns % group == 0:
        return None
    across = min(_MOST_ACROSS, columns & -columns)
    down = kernel.threads // max(across, 1)
    if across < _LEAST_ACROSS or rows % down or kernel.threads % across:
        return None
    return ThreadGrid(across, across, 1, gcd(columns // across, PIECE))


def _is_placed(kernel: KernelOp, shape: Sequence[int]) -> bool:
    """Whether all that is done with tiles of a shape is done wherever their elements are."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or not any(_has_shape(value, shape) for value in (*op.operands, *op.results)):
            continue
        if op.name not in _PLACED or (op.name == "ttarget.broadcast" and _has_shape(op.operands[0], shape)):
            return False
        if isinstance(op, LoadOp) and op.pattern != "contiguous":
            return False
        if op.name == "ttarget.transpose" and not all(isinstance(use.operation, DotOp) for use in op.results[0].uses):
            return False
    return True


def _has_shape(value: SSAValue, shape: Sequence[int]) -> bool:
    return isinstance(value.type, VectorAttr) and tuple(value.type.sizes) == tuple(shape)
