"""Which accesses of a lowered kernel make lanes of a warp wait for one bank of shared memory, and what fixes each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import TypeAlias

from xdsl.ir import OpResult, SSAValue

from tessera.backends.nvptx.backend import NvptxBackend
from tessera.backends.nvptx.layout import Layout, Spacing, skew_of
from tessera.backends.nvptx.mma.target_kernels import swizzle_of
from tessera.backends.nvptx.register_estimate import Resources, resources_of
from tessera.backends.nvptx.tensor_cores import SPAN, WGMMA_ROWS
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.types import SharedAttr
from tessera.diagnostics.error import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.swizzle import SWIZZLES, swizzled, why_not_swizzled
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

# Banks of shared memory: how many wavefronts an access of a warp takes, and swizzles in which it takes the fewest.

BANKS = 32
WORD = 4
WARP = 32


@frozen
class Turns:
    """What an access of one warp costs: turns it takes, and those it would take if no two lanes met in a bank."""

    taken: int
    least: int

    @property
    def degree(self) -> int:
        """How many lanes wait for one bank: 1 where none do."""
        return -(-self.taken // self.least)


def turns_of(addresses: Sequence[int | None], width: int) -> Turns:
    """The turns of a warp whose lanes ask for `width` bytes each at these addresses; None for one that does not.

    >>> turns_of([4 * lane for lane in range(32)], 4)
    Turns(taken=1, least=1)
    >>> turns_of([128 * lane for lane in range(32)], 4).degree
    32
    """
    served = WARP if width <= WORD else WARP * WORD // width
    taken = least = 0
    for start in range(0, len(addresses), served):
        words = _words(addresses[start : start + served], width)
        if words:
            banks = [word % BANKS for word in words]
            taken += max(banks.count(bank) for bank in set(banks))
            least += 1
    return Turns(max(taken, 1), max(least, 1))


def _words(addresses: Iterable[int | None], width: int) -> set[int]:
    return {
        word
        for address in addresses
        if address is not None
        for word in range(address // WORD, -(-(address + width) // WORD))
    }


def swizzled_offset(row: int, column: int, line: int) -> int:
    """Where a byte of a tile with lines of 128, 64 or 32 bytes lies, as TMA and tensor cores swizzle it.

    Pieces of 16 bytes of a line change places by the number of the 128 bytes that it lies in, counted to 8, 4 or 2 (PTX
    ISA, tensor swizzling modes).

    >>> [swizzled_offset(row, 0, 32) for row in range(6)]
    [0, 32, 64, 96, 144, 176]
    """
    address = row * line + column
    return address ^ (address >> 7 & line // 16 - 1) << 4


def swizzled_offset_128(row: int, column: int) -> int:
    """Where a byte of a tile with the widest lines lies."""
    return swizzled_offset(row, column, 128)


Address: TypeAlias = Callable[[int | None], int | None]
WIDEST = 16
"""Bytes that one lane moves at once."""


@frozen
class SharedAccess:
    """What one op does to shared memory, at its worst over the warps of a program."""

    op: SpecOp
    what: str
    turns: Turns
    cure: str = ""

    @property
    def span(self) -> Span | None:
        return self.op.span

    @property
    def degree(self) -> int:
        """How many lanes wait for one bank; 1 where none do."""
        return self.turns.degree

    def __str__(self) -> str:
        where = f"{self.span}: " if self.span is not None else ""
        state = "no lanes meet" if self.degree == 1 else f"{self.degree} lanes meet in one bank"
        return f"{where}`{self.op.name}` {self.what}: {state}" + (f"; {self.cure}" if self.cure else "")


def shared_accesses(kernel: SpecOp) -> list[SharedAccess]:
    """Every access of shared memory of a kernel whose lanes are known."""
    if kernel.name == "ttarget.matrix_kernel":
        return list(_of_matrix_kernel(kernel))
    if kernel.name in ("ttarget.warp_kernel", "ttarget.tensor_kernel"):
        return list(_of_warps(kernel))
    if kernel.name != "ttarget.kernel" or kernel.value("threads") <= 1:
        return []
    return list(_of_kernel(kernel))


def conflicts(kernel: SpecOp) -> list[SharedAccess]:
    """Those accesses in which lanes wait for each other."""
    return [access for access in shared_accesses(kernel) if access.degree > 1]


# Programs of threads.


def _of_kernel(kernel: SpecOp) -> Iterator[SharedAccess]:
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        if op.name in ("ttarget.load", "ttarget.store"):
            yield from _of_access(kernel, op)
        elif op.name == "ttarget.transpose" and _is_moved(op):
            yield from _of_transpose(kernel, op)
        elif op.name == "ttarget.broadcast":
            yield from _of_spread(kernel, op)
        elif op.name == "ttarget.dot":
            yield from _of_dot(kernel, op)


def _layout(kernel: SpecOp, value: SSAValue) -> Layout:
    assert isinstance(value.type, VectorAttr)
    shape = tuple(dim.value or 0 for dim in value.type.shape)
    return Layout(shape, kernel.value("threads"), kernel.value("vector"))


def _bytes(value: SSAValue) -> int:
    assert isinstance(value.type, VectorAttr | BufferAttr)
    return max(1, value.type.dtype.bytes)


def _elements(layout: Layout, register: int, warp: int) -> list[int | None]:
    """The element that each lane of a warp has in a register; None for a lane that has none of its own."""
    found: list[int | None] = []
    for thread in range(warp * WARP, (warp + 1) * WARP):
        if layout.is_repeated:
            found.append(thread % layout.size)
            continue
        element = thread * layout.vector + layout.start(register)
        found.append(element if element < layout.size else None)
    return found


def _place(element: int, shape: Sequence[int]) -> list[int]:
    found: list[int] = []
    for extent in reversed(shape):
        found.append(element % extent)
        element //= extent
    return found[::-1]


def _scratch(buffer: SSAValue) -> SpecOp | None:
    """The shared scratch that a buffer is."""
    op = buffer.op if isinstance(buffer, OpResult) else None
    is_shared = isinstance(op, SpecOp) and op.name == "ttarget.scratch" and op.value("space") == "shared"
    return op if is_shared and isinstance(op, SpecOp) else None


def _of_access(kernel: SpecOp, op: SpecOp) -> Iterator[SharedAccess]:
    is_store = op.name == "ttarget.store"
    buffer, block = op.operands[is_store], op.operands[0] if is_store else op.results[0]
    scratch = _scratch(buffer)
    now = scratch.value("swizzle") if scratch is not None else 0
    if not is_store and not now and is_turned(op, _layout(kernel, block)):
        yield from _of_turned(op, _layout(kernel, block), _bytes(block))
        return
    if scratch is None or not op.value("axes") or not op.value("offset").symbols <= set(op.value("coords")):
        return
    turns = _access_turns(kernel, op, buffer, block, now)
    cure = ""
    if turns.degree > 1:
        others = {swizzle: _worst_of(kernel, buffer, swizzle) for swizzle in _swizzles(buffer) if swizzle != now}
        best = min(others, key=lambda swizzle: (others[swizzle], -swizzle), default=now)
        if others and others[best] < _worst_of(kernel, buffer, now):
            cure = (
                f"give the scratch `swizzle = {best}`: {others[best]} meet then"
                if others[best] > 1
                else (f"give the scratch `swizzle = {best}`")
            )
    yield SharedAccess(op, "of shared scratch", turns, cure)


def is_turned(op: SpecOp, layout: Layout) -> bool:
    """Whether a load finds its elements side by side along the first of two axes: such tiles are turned over inside."""
    axes = op.value("axes")
    if len(axes) != 2 or op.value("pattern") != "strided" or len(op.operands) - 1 != len(op.value("coords")):
        return False
    along = op.value("offset").coefficient(axes[0])
    return along is not None and along[0].value == 1 and layout.size % layout.threads == 0 and min(layout.shape) > 1


def _of_turned(op: SpecOp, layout: Layout, size: int) -> Iterator[SharedAccess]:
    """A tile that is read along its first axis, and handed over to those who have it along the last."""
    written, read = turned_turns(layout, size)
    yield SharedAccess(op, "written as it lies", written)
    yield SharedAccess(op, "read the other way round", read)


def turned_turns(layout: Layout, size: int) -> tuple[Turns, Turns]:
    """What it costs to hand a tile over: writes along its first axis, and reads along its last."""
    rows, columns = layout.shape
    skew = skew_of(columns, rows, layout.vector, size)

    def place(row: int, column: int) -> int:
        return size * (column * rows + column // layout.vector * skew + row)

    def written(element: int | None) -> int | None:
        if element is None:
            return None
        column, row = divmod(element, rows)
        return place(row, column)

    def read(element: int | None) -> int | None:
        if element is None:
            return None
        return place(*divmod(element, columns))

    return _worst(Layout((columns, rows), layout.threads), 1, size, written), _worst(layout, 1, size, read)


def _swizzles(buffer: SSAValue) -> list[int]:
    """Orders that rows of a buffer can have."""
    assert isinstance(buffer.type, BufferAttr)
    row = buffer.type.shape[-1].value or 0 if buffer.type.shape else 0
    return [swizzle for swizzle in SWIZZLES if not why_not_swizzled(row, _bytes(buffer), swizzle)]


def _worst_of(kernel: SpecOp, buffer: SSAValue, swizzle: int) -> int:
    """The worst of all accesses of a buffer, were it in this order."""
    found = [1]
    for use in buffer.uses:
        op = use.operation
        if isinstance(op, SpecOp) and op.name in ("ttarget.load", "ttarget.store") and op.value("axes"):
            block = op.operands[0] if op.name == "ttarget.store" else op.results[0]
            if op.value("offset").symbols <= set(op.value("coords")):
                found.append(_access_turns(kernel, op, buffer, block, swizzle).degree)
    return max(found)


def _access_turns(kernel: SpecOp, op: SpecOp, buffer: SSAValue, block: SSAValue, swizzle: int) -> Turns:
    """The turns of a load or store; where its tile begins moves all lanes alike, and is left out."""
    assert isinstance(buffer.type, BufferAttr)
    layout, size = _layout(kernel, block), _bytes(buffer)
    offset: Dim = op.value("offset")
    row = buffer.type.shape[-1].value or 1
    group = access_group(op, layout, size, swizzle)
    cells: dict[int, int] = {}

    def address(element: int | None) -> int | None:
        if element is None:
            return None
        if element not in cells:
            env = dict.fromkeys(op.value("coords"), 0)
            env.update(zip(op.value("axes"), _place(element, layout.shape), strict=True))
            index = offset.evaluate(env)
            cells[element] = size * (swizzled(index, row, swizzle // size) if swizzle else index)
        return cells[element]

    return _worst(layout, group, size * (1 if op.value("pattern") == "uniform" else group), address)


def access_group(op: SpecOp, layout: Layout, size: int, swizzle: int) -> int:
    """Neighbours that a thread moves at once: those that lie together, are aligned and are guarded by nothing."""
    axes = op.value("axes")
    is_guarded = axes[-1] in op.value("guarded") or any(axes[-1] in bound.symbols for bound in op.value("bounds"))
    if op.value("windows") or is_guarded or op.value("pattern") not in ("contiguous", "uniform"):
        return 1
    if op.value("pattern") == "uniform":
        return layout.vector
    most = min(op.value("align"), WIDEST, swizzle or WIDEST)
    return max(1, min(layout.vector, most // size))


def _worst(layout: Layout, group: int, width: int, address: Address) -> Turns:
    found = Turns(1, 1)
    for register in range(0, layout.registers, group):
        for warp in range(max(1, layout.threads // WARP)):
            addresses = [address(element) for element in _elements(layout, register, warp)]
            turns = turns_of(addresses, width)
            found = max(found, turns, key=lambda one: (one.degree, one.taken))
    return found


# Tiles that change hands.


def _is_moved(op: SpecOp) -> bool:
    """Whether anyone but a dot reads the transpose: dots read the tile the other way round."""
    return any(use.operation.name not in ("ttarget.dot", "ttarget.cast") for use in op.result.uses)


def _of_transpose(kernel: SpecOp, op: SpecOp) -> Iterator[SharedAccess]:
    written, read = handed_turns(_layout(kernel, op.operands[0]), _layout(kernel, op.result), _bytes(op.operands[0]))
    yield SharedAccess(op, "written as it lies", written)
    yield SharedAccess(op, "read the other way round", read)


def handed_turns(source: Layout, target: Layout, size: int) -> tuple[Turns, Turns]:
    """What it costs to hand a tile to those who have its transpose: writes in vectors, and reads across."""
    columns = source.shape[1]
    spacing = Spacing.for_transpose(source, target, size)
    group = max(1, min(source.vector, WIDEST // size))

    def written(element: int | None) -> int | None:
        if element is None:
            return None
        line, inside = divmod(element, columns)
        return size * (spacing.start(line, columns) + inside)

    def read(element: int | None) -> int | None:
        if element is None:
            return None
        inside, line = _place(element, target.shape)
        return size * (spacing.start(line, columns) + inside)

    return _worst(source, group, group * size, written), _worst(target, 1, size, read)


def _of_spread(kernel: SpecOp, op: SpecOp) -> Iterator[SharedAccess]:
    source, layout = op.operands[0], _layout(kernel, op.result)
    shape = _layout(kernel, source).shape
    if prod(shape) == 1:
        return
    size = _bytes(source)
    axes: tuple[int, ...] = op.value("axes")

    def address(element: int | None) -> int | None:
        if element is None:
            return None
        places, flat = _place(element, layout.shape), 0
        for axis, extent in zip(axes, shape, strict=True):
            flat = flat * extent + places[axis]
        return size * flat

    yield SharedAccess(op, "read along new axes", _worst(layout, 1, size, address), "")


def _of_dot(kernel: SpecOp, op: SpecOp) -> Iterator[SharedAccess]:
    """Reads of one step of k: of the A operand an element of each row, of the right one neighbours of a row."""
    acc = _layout(kernel, op.result)
    for side, name in ((0, "left"), (1, "right")):
        stored, is_turned, size = _side(op.operands[side])
        columns = _layout(kernel, stored).shape[1]
        width = size * acc.vector if side == 1 and not is_turned else size

        address = _side_address(side, is_turned, columns, size, acc)
        group = acc.vector if width > size else 1
        turns = _worst(acc, group, min(width, WIDEST), address)
        yield SharedAccess(op, f"reads its {name} operand", turns, "")


def _side_address(side: int, is_turned: bool, columns: int, size: int, acc: Layout) -> Address:
    spacing = Spacing.for_operand(side == 0, is_turned, acc.vector, size)

    def address(element: int | None) -> int | None:
        if element is None:
            return None
        row, column = _place(element, acc.shape)
        first, second = (row, 0) if side == 0 else (0, column)
        line, inside = (second, first) if is_turned else (first, second)
        return size * (spacing.start(line, columns) + inside)

    return address


def _side(value: SSAValue) -> tuple[SSAValue, bool, int]:
    """The tile of an operand as it lies in shared memory: behind transposes, and behind casts that lose nothing."""
    is_turned, narrow = False, _bytes(value)
    while isinstance(value, OpResult) and value.op.name in ("ttarget.transpose", "ttarget.cast"):
        op = value.op
        assert isinstance(op, SpecOp)
        if op.name == "ttarget.cast":
            if op.value("rounding"):
                break
            narrow = min(narrow, _bytes(op.operands[0]))
        else:
            is_turned = not is_turned
        value = op.operands[0]
    return value, is_turned, narrow


# Matrix kernels.


def _of_matrix_kernel(kernel: SpecOp) -> Iterator[SharedAccess]:
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        if op.name == "ttarget.store_tile":
            tile = op.operands[2].type
            assert isinstance(tile, SharedAttr)
            yield SharedAccess(op, "stages rows for TMA", staging_turns(tile.dtype.bytes), "")
        elif op.name in ("ttarget.mma_issue", "ttarget.mma_add"):
            lines = [swizzle_of(value) for value in op.operands[1:3] if isinstance(value.type, SharedAttr)]
            worst = max(map(core_matrix_turns, lines), key=lambda turns: turns.degree)
            yield SharedAccess(op, "reads swizzled tiles", worst, "")


def staging_turns(size: int, is_swizzled: bool = True) -> Turns:
    """What a warp's 16 rows of one span cost on their way into shared memory: `stmatrix`, or pairs of 4 bytes."""

    def place(row: int, column: int) -> int:
        return swizzled_offset_128(row, column) if is_swizzled else row * SPAN + column

    if size == 2:
        lanes: list[int | None] = [place(lane & 15, (lane >> 4) * 16) for lane in range(WARP)]
        return turns_of(lanes, 16)
    pairs: list[int | None] = [place(lane >> 2, (lane & 3) * 8) for lane in range(WARP)]
    return turns_of(pairs, 8)


def core_matrix_turns(line: int = SPAN, is_swizzled: bool = True) -> Turns:
    """What eight rows of 16 bytes cost, which a tensor core reads at once, in lines of so many bytes."""
    rows = range(WGMMA_ROWS // 8)
    return turns_of([swizzled_offset(row, 0, line) if is_swizzled else row * line for row in rows], 16)


# Kernels of single warps, and with tensor memory.


def _of_warps(kernel: SpecOp) -> Iterator[SharedAccess]:
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        if op.name == "ttarget.copy_async":
            yield SharedAccess(op, "copies rows in pieces of 16 bytes", rows_turns())
        elif op.name in ("ttarget.mma_sync", "ttarget.tensor_mma"):
            yield SharedAccess(op, "reads swizzled tiles", core_matrix_turns())
        elif op.name == "ttarget.store_rows":
            tile = op.operands[1].type
            assert isinstance(tile, SharedAttr)
            size = tile.dtype.bytes
            yield SharedAccess(op, "puts rows together", staging_turns(size) if size == 4 else pairs_turns())
            yield SharedAccess(op, "reads whole rows", rows_turns())


def rows_turns(is_swizzled: bool = True) -> Turns:
    """What four rows of a span cost, whose pieces of 16 bytes are one for each lane."""
    places = [(lane >> 3, (lane & 7) * 16) for lane in range(WARP)]
    return turns_of([swizzled_offset_128(*at) if is_swizzled else at[0] * SPAN + at[1] for at in places], 16)


def pairs_turns(is_swizzled: bool = True) -> Turns:
    """What pairs of 2-byte elements of eight rows cost, as dots of single warps leave them."""
    places = [(lane >> 2, (lane & 3) * 4) for lane in range(WARP)]
    return turns_of([swizzled_offset_128(*at) if is_swizzled else at[0] * SPAN + at[1] for at in places], 4)


# Kernels looked at before they run: what each takes of a GPU, and its bank conflicts in shared memory.


@frozen
class KernelLint:
    """One kernel: its resources, and its accesses of shared memory whose lanes are known."""

    resources: Resources
    accesses: tuple[SharedAccess, ...]

    @property
    def conflicts(self) -> tuple[SharedAccess, ...]:
        """Accesses in which lanes wait for each other."""
        return tuple(access for access in self.accesses if access.degree > 1)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What should be otherwise, a sentence each."""
        found = [str(access) for access in self.conflicts]
        if self.resources.registers.spills:
            found.append(f"{self.resources.name}: {self.resources.registers}")
        return tuple(found)


def lint_kernels(
    targets: Sequence[SpecOp], codes: Sequence[KernelCode], texts: Sequence[bytes], backend: NvptxBackend
) -> tuple[KernelLint, ...]:
    """Look at kernels as Target IR, as code and as PTX."""
    found: list[KernelLint] = []
    for target, code, ptx in zip(targets, codes, texts, strict=True):
        fact = {"name": code.name, "threads": code.threads, "shared": code.shared, "resident": code.resident}
        resources = resources_of(fact, ptx.decode(), backend.machine.cpu)
        found.append(KernelLint(resources, tuple(shared_accesses(target))))
    return tuple(found)
