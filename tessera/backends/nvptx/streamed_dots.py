"""Dots whose B operand comes from memory: it is copied in steps along K while those before it are multiplied.

Without that all of the operand is in shared memory before the first multiply-add: no thread has anything to do until it
is there, and a multiprocessor has room for one program alone. With two steps at a time there is room for two programs,
of which one multiplies while the other computes what lies between its dots. Elements of K are multiplied in order, so
that no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

from xdsl.ir import Operation

from tessera.backends.nvptx import values
from tessera.backends.nvptx.access_groups import WIDEST, has_index_tiles, run_of
from tessera.backends.nvptx.emit_access import Access
from tessera.backends.nvptx.emit_matmul import copy_exists
from tessera.backends.nvptx.layout import Layout, Tile
from tessera.backends.nvptx.matmul_plan import Share, share_copies
from tessera.backends.nvptx.mma.assembly import commit_copies, copy_async, wait_copies
from tessera.backends.nvptx.row_plan import is_constant
from tessera.backends.nvptx.types import sizes_of
from tessera.ir.base.types import shaped_type
from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.typed_ops import DotOp, KernelOp, LoadOp, LoopOp, TransposeOp
from tessera.types.dtype import f32
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.nvptx.emit import Emitter

STEP = 32
"""Elements of K of a step."""
LEAST_STEPS = 2
"""Steps from which on copies ahead are worth a barrier for each."""
LEAST_ROWS = 32
"""Rows of the A operand from which on multiply-adds take longer than copies."""
STAGES = 2
"""Steps that shared memory holds at a time: one is copied while the other is multiplied."""
RESIDENT = 2
"""Programs that a multiprocessor is to have registers for: on an H200 faster than one at seven of eight sizes."""
_RESERVED = 1 << 10
"""Shared memory that each program takes beside its own."""
_WORD, _SPACED = 4, 4
"""Bytes of an element; rows that padding comes after, at most (`Spacing.for_operand`)."""


@frozen
class StreamedOperand:
    """The B operand of a dot, as it is loaded; `is_transposed` where its columns are K."""

    load: LoadOp
    transpose: TransposeOp | None

    @property
    def is_transposed(self) -> bool:
        return self.transpose is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a step, as memory has them."""
        rows, columns = sizes_of(self.load.result)
        return (rows, STEP) if self.is_transposed else (STEP, columns)

    @property
    def width(self) -> int:
        """Elements that one copy moves, as far as alignment and masks allow."""
        align = min(self.load.align, WIDEST) // _WORD if self.load.pattern == "contiguous" else 1
        found = gcd(self.shape[1], min(align, run_of(self.load)))
        return max(1, found & -found)


def find_streamed(kernel: KernelOp, threads: int) -> dict[DotOp, StreamedOperand]:
    """The dots of a kernel whose B operand is copied in steps."""
    found: dict[DotOp, StreamedOperand] = {}
    for op in kernel.walk():
        operand = _streamed_of(kernel, op, threads) if isinstance(op, DotOp) else None
        if operand is not None and isinstance(op, DotOp):
            found[op] = operand
    return found


def _streamed_of(kernel: KernelOp, dot: DotOp, threads: int) -> StreamedOperand | None:
    owner, transpose = dot.rhs.owner, None
    if isinstance(owner, TransposeOp):
        transpose, owner = owner, owner.block.owner
    if not isinstance(owner, LoadOp) or owner.parent is not dot.parent or len(owner.axes) != 2:
        return None
    ops = [owner] if transpose is None else [owner, transpose]
    types = [shaped_type(value).dtype.name for value in (owner.buffer, owner.result, dot.result)]
    if any(len(list(op.results[0].uses)) != 1 for op in ops) or types != ["f32"] * 3:
        return None
    if has_index_tiles(owner) or owner.pad or owner.windows or not is_constant(kernel, owner.buffer):
        return None
    others = [use.operation for use in dot.lhs.uses if use.operation is not dot and use.operation.parent is dot.parent]
    if any(isinstance(op, DotOp) for op in others):
        return None  # its A operand goes through shared memory for each of several dots, which is what they wait for
    rows, depth = sizes_of(dot.lhs)
    operand = StreamedOperand(owner, transpose)
    # Transposed rows have padding after every few, so how far copies of a thread are apart must be known.
    along = share_copies(operand.shape, threads, operand.width).along
    is_known = transpose is None or threads // along % _SPACED == 0
    is_worth_it = rows >= LEAST_ROWS and depth % STEP == 0 and depth >= LEAST_STEPS * STEP
    return operand if is_known and is_worth_it else None


def resident_of(streamed: Mapping[DotOp, StreamedOperand], shared: int) -> int:
    """How many programs a multiprocessor is to have registers for: no more than its shared memory holds."""
    bytes = max((_shared_bytes(dot, operand) for dot, operand in streamed.items()), default=0)
    return 0 if not streamed else RESIDENT if RESIDENT * (bytes + _RESERVED) <= shared + _RESERVED else 1


def _shared_bytes(dot: DotOp, operand: StreamedOperand) -> int:
    """Shared memory of a dot: its A operand, with padding, and two steps of the other."""
    rows, depth = sizes_of(dot.lhs)
    lines, length = operand.shape
    padding = lines if operand.is_transposed else 0
    return _WORD * (rows * (depth + _SPACED) + STAGES * (lines * length + padding))


class StepCopies:
    """The copies of one streamed operand, from memory to a stage."""

    def __init__(self, emitter: Emitter, operand: StreamedOperand, place: Callable[[Index, Index], Value]) -> None:
        f, self.emitter, self.operand = emitter.f, emitter, operand
        self.share: Share = share_copies(operand.shape, emitter.threads, operand.width)
        self.at: tuple[Index, Index] = (
            f.udiv(emitter.thread, self.share.along),
            f.mul(f.urem(emitter.thread, self.share.along), self.share.width),
        )
        self.first = f.cast("trunc", f.mul(place(*self.at), _WORD), "i32")

    def start(self, k: Index, stage: Value, distance: Callable[[int, int], int]) -> None:
        """Start the copies of the step from an element of K on; `distance` is that of elements in a stage."""
        emitter, f, load = self.emitter, self.emitter.f, self.operand.load
        env = emitter.index_values(load.coords, load.at)
        layout = Layout((emitter.threads,), emitter.threads)
        access = Access(emitter, load, layout, shaped_type(load.buffer).dtype, env, (), emitter.buffers[load.buffer])
        k_axis = 1 if self.operand.is_transposed else 0
        target = f.op("add", self.first, stage)
        for part in self.share.parts:
            here = dict(env)
            for number, (axis, own, more) in enumerate(zip(load.axes, self.at, (part.row, part.column), strict=True)):
                here[axis] = f.add(f.add(here[axis], own), more)
                if number == k_axis:
                    here[axis] = f.add(here[axis], k)
            mask = access.mask(here, 0, owner=False)
            to = (target, _WORD * distance(part.row, part.column))
            exists = copy_exists(emitter, self.share, self.at, part, self.operand.shape)
            copy_async(f, to, (access.address(here), 0), _WORD * self.share.width, mask, exists)
        commit_copies(f)


def wait_for_step(emitter: Emitter) -> None:
    """Wait until what all threads copied of a step is there."""
    wait_copies(emitter.f, 0)
    emitter.wait()


# Tiles that lie aside in local memory while such a dot multiplies what it has nothing to do with. It reads one element
# of its A operand for every few multiply-adds, and waits for shared memory unless it reads ahead, which takes
# registers. Where accumulators of another dot are live beside its own, and an A operand that waits for the next
# iteration, none are left, and the assembler reads each element right before it is used. A store and a load of such a
# tile are nothing beside thousands of multiply-adds.

LEAST_ASIDE = 16
"""Registers of a tile from which on it is worth setting aside."""
_TOGETHER = 4
"""Elements that one access of local memory moves."""


def set_inputs_aside(emitter: Emitter, loop: LoopOp) -> None:
    """Tiles that iterations of a loop only multiply, as A operands of streamed dots: each reads them anew."""
    for value, tile in emitter.tiles.items():
        inside = [use.operation for use in value.uses if loop.is_ancestor(use.operation)]
        is_read = all(isinstance(op, DotOp) and op in emitter.streamed and op.lhs is value for op in inside)
        if inside and is_read and _is_large(tile):
            tile.aside = store_aside(emitter, emitter.registers(tile))


def set_others_aside(emitter: Emitter, dot: DotOp) -> Callable[[], None]:
    """Tiles that ops behind a dot read and that were made before it; what is given reads them again."""
    behind: set[Operation] = set()
    at = dot.next_op
    while at is not None:
        behind.add(at)
        at = at.next_op
    moved: list[tuple[Tile, Value]] = []
    for value, tile in emitter.tiles.items():
        is_used = value not in dot.operands and any(use.operation in behind for use in value.uses)
        if is_used and _is_large(tile):
            moved.append((tile, store_aside(emitter, tile.registers)))

    def restore() -> None:
        for tile, area in moved:
            tile.registers = load_aside(emitter, area, len(tile.registers))

    return restore


def _is_large(tile: Tile) -> bool:
    """Whether a tile has many registers, in whole words, and nothing else stands for it."""
    is_plain = tile.aside is None and tile.transposed is None and tile.narrow is None and not tile.packed
    return (
        is_plain and tile.dtype is f32 and len(tile.registers) >= LEAST_ASIDE and len(tile.registers) % _TOGETHER == 0
    )


def store_aside(emitter: Emitter, registers: Sequence[Value]) -> Value:
    """Put what a thread holds into local memory; where it is."""
    f = emitter.f
    area = f.alloca("float", len(registers), align=_WORD * _TOGETHER)
    for at in range(0, len(registers), _TOGETHER):
        whole = values.pack(f, list(registers[at : at + _TOGETHER]))
        place = f.gep(area, _WORD * at, "i8")
        # Volatile: LLVM would keep in registers what it sees stored and loaded.
        f.line(f"store volatile {whole}, ptr {place.text}, align {_WORD * _TOGETHER}")
    return area


def load_aside(emitter: Emitter, area: Value, count: int) -> list[Value]:
    """So many elements that were put aside."""
    f, type_ = emitter.f, f"<{_TOGETHER} x float>"
    found: list[Value] = []
    for at in range(0, count, _TOGETHER):
        place = f.gep(area, _WORD * at, "i8")
        whole = f.raw(type_, f"load volatile {type_}, ptr {place.text}, align {_WORD * _TOGETHER}")
        found += [f.extract(whole, lane) for lane in range(_TOGETHER)]
    return found
