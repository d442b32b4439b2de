"""Which accesses of a lowered kernel have bank conflicts in shared memory, and what fixes each.

Shared memory has 32 banks of 4-byte words. A warp's access takes one wavefront (a cycle of the memory) for each
different word that it wants of the bank with the most of them, so its cost follows from the addresses of its lanes
alone. They are computed here as emission computes them, for each op whose lanes are known without running it, and the
worst warp counts. `benchmarks/results/gpu_banks.json` holds what a profiler counted beside what is foreseen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from xdsl.ir import OpResult, SSAValue

from tessera.backends.nvptx.access_groups import (
    WIDEST,
    Accesses,
    find_adjacent,
    group_of,
    is_transposing,
    transposed_layout,
)
from tessera.backends.nvptx.emit_rows import find_row_slices
from tessera.backends.nvptx.layout import Layout, Spacing, skew_of
from tessera.backends.nvptx.matmul_plan import MatmulPlan, grids_of, plan_of
from tessera.backends.nvptx.mma.target_kernels import swizzle_of
from tessera.backends.nvptx.register_estimate import Resources, resources_of
from tessera.backends.nvptx.tensor_cores import SPAN, WGMMA_ROWS
from tessera.backends.nvptx.text import KernelCode
from tessera.backends.nvptx.typed_ops import (
    CopyAsyncOp,
    MmaAddOp,
    MmaIssueOp,
    MmaSyncOp,
    StoreRowsOp,
    StoreTileOp,
    TensorMmaOp,
)
from tessera.backends.nvptx.types import SharedAttr
from tessera.diagnostics.error import Span
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.ops.blocks import SWIZZLES, swizzle_index, why_not_swizzled
from tessera.ir.target.typed_ops import BroadcastOp, CastOp, DotOp, KernelOp, LoadOp, ScratchOp, StoreOp, TransposeOp
from tessera.types.frozen import frozen

BANKS = 32  # of shared memory
WORD = 4  # bytes of a bank
WARP = 32
"""Threads of a warp."""

Address: TypeAlias = Callable[[int], int]
"""The byte address of an element of a tile."""


@frozen
class Wavefronts:
    """What an access of one warp costs: wavefronts it takes, and those it would take without bank conflicts."""

    taken: int
    least: int

    @property
    def degree(self) -> int:
        """The n of an n-way bank conflict: 1 where there is none."""
        return -(-self.taken // self.least)


def count_wavefronts(addresses: Sequence[int | None], width: int) -> Wavefronts:
    """The wavefronts of a warp whose lanes access `width` bytes each at these addresses; None for an idle lane.

    >>> count_wavefronts([4 * lane for lane in range(32)], 4)
    Wavefronts(taken=1, least=1)
    >>> count_wavefronts([128 * lane for lane in range(32)], 4).degree
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
    return Wavefronts(max(taken, 1), max(least, 1))


def _words(addresses: Iterable[int | None], width: int) -> set[int]:
    return {
        word
        for address in addresses
        if address is not None
        for word in range(address // WORD, -(-(address + width) // WORD))
    }


def swizzled_offset(row: int, column: int, line: int = SPAN) -> int:
    """The offset of a byte of a tile with lines of 128, 64 or 32 bytes, as TMA and tensor cores swizzle it.

    Pieces of 16 bytes of a line are exchanged by the number of the 128 bytes that it is in, counted to 8, 4 or 2 (PTX
    ISA, tensor swizzling modes).

    >>> [swizzled_offset(row, 0, 32) for row in range(6)]
    [0, 32, 64, 96, 144, 176]
    """
    address = row * line + column
    return address ^ (address >> 7 & line // 16 - 1) << 4


@frozen
class SharedAccess:
    """What one op does to shared memory, at its worst over the warps of a program."""

    op: SpecOp
    what: str
    wavefronts: Wavefronts
    fix: str = ""

    @property
    def span(self) -> Span | None:
        return self.op.span

    @property
    def degree(self) -> int:
        """The n of an n-way bank conflict; 1 where there is none."""
        return self.wavefronts.degree

    def __str__(self) -> str:
        where = f"{self.span}: " if self.span is not None else ""
        state = "no bank conflict" if self.degree == 1 else f"{self.degree}-way bank conflict"
        return f"{where}`{self.op.name}` {self.what}: {state}" + (f"; {self.fix}" if self.fix else "")


def shared_accesses(kernel: SpecOp) -> list[SharedAccess]:
    """Every access of shared memory of a kernel whose lanes are known."""
    plan = plan_of(kernel) if isinstance(kernel, KernelOp) else None
    found = [] if plan is None else _of_matmul(plan)
    adjacent = find_adjacent(kernel, find_row_slices(kernel)) if isinstance(kernel, KernelOp) else {}
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or (plan is not None and op.parent_op() in (plan.matmul.loop, plan.matmul.tail)):
            continue
        if not isinstance(kernel, KernelOp):
            found += _of_mma_op(op)
        elif kernel.threads > 1:
            found += _of_thread_op(kernel, op, adjacent)
    return found


def _of_matmul(plan: MatmulPlan) -> list[SharedAccess]:
    """Copies to the stages of a matmul, and reads of one step."""
    found: list[SharedAccess] = []
    for what, addresses, width in plan.shared_accesses():
        warps = [addresses[at : at + WARP] for at in range(0, len(addresses), WARP)]
        counts = [count_wavefronts(warp, width) for warp in warps]
        found.append(SharedAccess(plan.matmul.loop, what, max(counts, key=lambda one: (one.degree, one.taken))))
    return found


def conflicts(kernel: SpecOp) -> list[SharedAccess]:
    """Those accesses that have bank conflicts."""
    return [access for access in shared_accesses(kernel) if access.degree > 1]


# Programs of threads.


Adjacent: TypeAlias = Mapping[LoadOp | StoreOp, Accesses]
"""Accesses that one instruction makes together, by each of them."""


def _of_thread_op(kernel: KernelOp, op: SpecOp, adjacent: Adjacent) -> Iterator[SharedAccess]:
    if isinstance(op, LoadOp | StoreOp):
        yield from _of_access(kernel, op, adjacent)
    elif isinstance(op, TransposeOp) and _is_moved(op):
        source = _layout(kernel, op.block)
        yield from _transposing(op, transpose_wavefronts(source, _layout(kernel, op.result), _bytes(op.block)))
    elif isinstance(op, BroadcastOp):
        yield from _of_broadcast(kernel, op)
    elif isinstance(op, DotOp):
        yield from _of_dot(kernel, op)


def _layout(kernel: KernelOp, value: SSAValue) -> Layout:
    assert isinstance(value.type, VectorAttr)
    shape = tuple(dim.value or 0 for dim in value.type.shape)
    plan = plan_of(kernel)
    grid = plan.grid if plan is not None and shape == plan.sizes else grids_of(kernel).get(shape)
    return Layout(shape, kernel.threads, kernel.vector, grid, find_row_slices(kernel).get(shape, 0))


def _bytes(value: SSAValue) -> int:
    return max(1, shaped_type(value).dtype.bytes)


def _elements(layout: Layout, register: int, warp: int) -> list[int | None]:
    """The element that each lane of a warp has in a register; None for a lane that has none of its own."""
    found: list[int | None] = []
    for thread in range(warp * WARP, (warp + 1) * WARP):
        if layout.is_repeated:
            found.append(thread % layout.size)
            continue
        if layout.grid is not None:
            row, column = layout.grid.element(thread, register, layout.shape, layout.threads)
            found.append(row * layout.shape[1] + column)
            continue
        element = thread * layout.vector + layout.start(register)
        found.append(element if element < layout.size else None)
    return found


def _worst(layout: Layout, group: int, width: int, address: Address) -> Wavefronts:
    """The most that any warp's access takes, `group` registers at a time."""
    found = Wavefronts(1, 1)
    for register in range(0, layout.registers, group):
        for warp in range(max(1, layout.threads // WARP)):
            elements = _elements(layout, register, warp)
            addresses = [None if element is None else address(element) for element in elements]
            found = max(found, count_wavefronts(addresses, width), key=lambda one: (one.degree, one.taken))
    return found


def _unravel(element: int, shape: Sequence[int]) -> list[int]:
    found: list[int] = []
    for extent in reversed(shape):
        found.append(element % extent)
        element //= extent
    return found[::-1]


# Loads and stores.


def _block(op: LoadOp | StoreOp) -> SSAValue:
    return op.block if isinstance(op, StoreOp) else op.result


def _of_access(kernel: KernelOp, op: LoadOp | StoreOp, adjacent: Adjacent) -> Iterator[SharedAccess]:
    if op in adjacent and adjacent[op][0] is not op:
        return  # the first of them stands for all
    scratch = op.buffer.op if isinstance(op.buffer, OpResult) else None
    is_shared = isinstance(scratch, ScratchOp) and scratch.space == "shared"
    now = scratch.swizzle if isinstance(scratch, ScratchOp) and is_shared else 0
    layout = _layout(kernel, _block(op))
    if isinstance(op, LoadOp) and not now and is_transposing(op, layout):
        read = transposed_layout(op, layout)
        yield from _transposing(op, transposed_load_wavefronts(layout, _bytes(_block(op)), read))
    elif is_shared and _is_known(op):
        wavefronts = _access_wavefronts(kernel, op, now, len(adjacent.get(op, (op,))))
        fix = _swizzle_fix(kernel, op.buffer, now) if wavefronts.degree > 1 and op not in adjacent else ""
        yield SharedAccess(op, "of shared scratch", wavefronts, fix)


def _is_known(op: LoadOp | StoreOp) -> bool:
    return bool(op.axes) and op.offset.symbols <= set(op.coords)


def _swizzle_fix(kernel: KernelOp, buffer: SSAValue, now: int) -> str:
    """The swizzle of a scratch in which its accesses have fewer conflicts than they have now, if there is one."""
    shape = shaped_type(buffer).shape
    row = shape[-1].value or 0 if shape else 0
    able = (one for one in SWIZZLES if one != now and not why_not_swizzled(row, _bytes(buffer), one))
    degrees = {swizzle: _worst_degree(kernel, buffer, swizzle) for swizzle in able}
    best = min(degrees, key=lambda swizzle: (degrees[swizzle], -swizzle), default=now)
    if not degrees or degrees[best] >= _worst_degree(kernel, buffer, now):
        return ""
    left = f": a {degrees[best]}-way conflict is left" if degrees[best] > 1 else ""
    return f"give the scratch `swizzle = {best}`{left}"


def _worst_degree(kernel: KernelOp, buffer: SSAValue, swizzle: int) -> int:
    """The worst of all accesses of a buffer, were it in this order."""
    accesses = [use.operation for use in buffer.uses]
    known = [op for op in accesses if isinstance(op, LoadOp | StoreOp) and _is_known(op)]
    return max([1, *(_access_wavefronts(kernel, op, swizzle).degree for op in known)])


def _access_wavefronts(kernel: KernelOp, op: LoadOp | StoreOp, swizzle: int, together: int = 1) -> Wavefronts:
    """Those of a load or store; where its tile begins moves all lanes alike, and is left out.

    It moves what so many ops `together` do, each an element behind that of the one before.
    """
    layout, size = _layout(kernel, _block(op)), _bytes(op.buffer)
    row = shaped_type(op.buffer).shape[-1].value or 1
    group = group_of(op, layout, size, swizzle)
    cells: dict[int, int] = {}

    def address(element: int) -> int:
        if element not in cells:
            env = dict.fromkeys(op.coords, 0)
            env.update(zip(op.axes, _unravel(element, layout.shape), strict=True))
            index = op.offset.evaluate(env)
            cells[element] = size * (swizzle_index(index, row, swizzle // size) if swizzle else index)
        return cells[element]

    return _worst(layout, group, size * (together if op.pattern == "uniform" else together * group), address)


# Tiles that threads exchange through shared memory.


def _transposing(op: SpecOp, wavefronts: tuple[Wavefronts, Wavefronts]) -> Iterator[SharedAccess]:
    yield SharedAccess(op, "written in its memory order", wavefronts[0])
    yield SharedAccess(op, "read transposed", wavefronts[1])


def transposed_load_wavefronts(layout: Layout, size: int, read: Layout) -> tuple[Wavefronts, Wavefronts]:
    """What it costs to transpose a tile as it is loaded: writes along its first axis, and reads along its last.

    `read` says which thread loads which elements.
    """
    rows, columns = layout.shape
    skew = skew_of(columns, rows, layout.vector, size)

    def address(row: int, column: int) -> int:
        return size * (column * rows + column // layout.vector * skew + row)

    def write_address(element: int) -> int:
        column, row = divmod(element, rows)
        return address(row, column)

    written = _worst(read, read.vector, read.vector * size, write_address)
    return written, _worst(layout, 1, size, lambda element: address(*divmod(element, columns)))


def _is_moved(op: TransposeOp) -> bool:
    """Whether anyone but a dot reads the transpose: dots read the tile itself in the other order."""
    return any(not isinstance(use.operation, DotOp | CastOp) for use in op.result.uses)


def transpose_wavefronts(source: Layout, target: Layout, size: int) -> tuple[Wavefronts, Wavefronts]:
    """What it costs to give a tile to the threads that have its transpose: writes in vectors, and reads across."""
    columns = source.shape[1]
    spacing = Spacing.for_transpose(source, target, size)
    group = max(1, min(source.vector, WIDEST // size))

    def address(line: int, inside: int) -> int:
        return size * (spacing.start(line, columns) + inside)

    written = _worst(source, group, group * size, lambda element: address(*divmod(element, columns)))
    return written, _worst(target, 1, size, lambda element: address(*_unravel(element, target.shape)[::-1]))


def _of_broadcast(kernel: KernelOp, op: BroadcastOp) -> Iterator[SharedAccess]:
    layout, shape = _layout(kernel, op.result), _layout(kernel, op.block).shape
    replicas = _layout(kernel, op.block).replicas
    if prod(shape) == 1 or (replicas and tuple(op.axes) == (0,)):
        return  # every thread has what it broadcasts
    size = _bytes(op.block)

    def address(element: int) -> int:
        indices, flat = _unravel(element, layout.shape), 0
        for axis, extent in zip(op.axes, shape, strict=True):
            flat = flat * extent + indices[axis]
        return size * flat

    yield SharedAccess(op, "read along new axes", _worst(layout, 1, size, address))


def _of_dot(kernel: KernelOp, op: DotOp) -> Iterator[SharedAccess]:
    """Reads of one step of K: of the A operand an element of each row, of the B operand neighbours of a row."""
    acc = _layout(kernel, op.result)
    for operand, name in enumerate(("A", "B")):
        stored, is_transposed, size = _stored_operand(op.operands[operand])
        columns = _layout(kernel, stored).shape[1]
        group = acc.vector if operand == 1 and not is_transposed else 1
        address = _operand_address(operand, is_transposed, columns, size, acc)
        wavefronts = _worst(acc, group, min(group * size, WIDEST), address)
        yield SharedAccess(op, f"reads its {name} operand", wavefronts)


def _operand_address(operand: int, is_transposed: bool, columns: int, size: int, acc: Layout) -> Address:
    spacing = Spacing.for_operand(operand == 0, is_transposed, acc.vector, size)

    def address(element: int) -> int:
        row, column = _unravel(element, acc.shape)
        first, second = (row, 0) if operand == 0 else (0, column)
        line, inside = (second, first) if is_transposed else (first, second)
        return size * (spacing.start(line, columns) + inside)

    return address


def _stored_operand(value: SSAValue) -> tuple[SSAValue, bool, int]:
    """The tile of an operand that is in shared memory: behind transposes, and behind casts that lose nothing."""
    is_transposed, narrow = False, _bytes(value)
    while isinstance(value, OpResult) and isinstance(value.op, TransposeOp | CastOp):
        op = value.op
        if isinstance(op, TransposeOp):
            is_transposed = not is_transposed
        elif op.rounding:
            break
        else:
            narrow = min(narrow, _bytes(op.block))
        value = op.block
    return value, is_transposed, narrow


# Kernels of tensor cores, whose tiles are swizzled as TMA has them.


def _of_mma_op(op: SpecOp) -> Iterator[SharedAccess]:
    if isinstance(op, StoreTileOp):
        yield SharedAccess(op, "stages rows for TMA", staging_wavefronts(_shared_bytes(op.staging)))
    elif isinstance(op, StoreRowsOp):
        size = _shared_bytes(op.staging)
        yield SharedAccess(op, "puts rows together", staging_wavefronts(size) if size == 4 else fragment_wavefronts())
        yield SharedAccess(op, "reads whole rows", row_wavefronts())
    elif isinstance(op, CopyAsyncOp):
        yield SharedAccess(op, "copies rows in pieces of 16 bytes", row_wavefronts())
    elif isinstance(op, MmaSyncOp | TensorMmaOp):
        yield SharedAccess(op, "reads swizzled tiles", core_matrix_wavefronts())
    elif isinstance(op, MmaIssueOp | MmaAddOp):
        lines = [swizzle_of(value) for value in (op.lhs, op.rhs) if isinstance(value.type, SharedAttr)]
        worst = max(map(core_matrix_wavefronts, lines), key=lambda one: one.degree)
        yield SharedAccess(op, "reads swizzled tiles", worst)


def _shared_bytes(tile: SSAValue) -> int:
    assert isinstance(tile.type, SharedAttr)
    return tile.type.dtype.bytes


def _in_spans(cells: Iterable[tuple[int, int]], width: int, is_swizzled: bool, line: int = SPAN) -> Wavefronts:
    """What lanes with `width` bytes each at rows and columns of a tile in lines of so many bytes cost."""
    offsets = [swizzled_offset(row, at, line) if is_swizzled else row * line + at for row, at in cells]
    return count_wavefronts(offsets, width)


def staging_wavefronts(size: int, is_swizzled: bool = True) -> Wavefronts:
    """What a warp's 16 rows of one span cost as they are written: by `stmatrix`, or two elements of 4 bytes a lane."""
    if size == 2:
        return _in_spans(((lane & 15, (lane >> 4) * 16) for lane in range(WARP)), 16, is_swizzled)
    return _in_spans(((lane >> 2, (lane & 3) * 8) for lane in range(WARP)), 8, is_swizzled)


def core_matrix_wavefronts(line: int = SPAN, is_swizzled: bool = True) -> Wavefronts:
    """What eight rows of 16 bytes cost, which a tensor core reads together, in lines of so many bytes."""
    return _in_spans(((row, 0) for row in range(WGMMA_ROWS // 8)), 16, is_swizzled, line)


def row_wavefronts(is_swizzled: bool = True) -> Wavefronts:
    """What four rows of a span cost, whose pieces of 16 bytes are one for each lane."""
    return _in_spans(((lane >> 3, (lane & 7) * 16) for lane in range(WARP)), 16, is_swizzled)


def fragment_wavefronts(is_swizzled: bool = True) -> Wavefronts:
    """What two 2-byte elements a lane of eight rows cost, as `mma.sync` leaves them."""
    return _in_spans(((lane >> 2, (lane & 3) * 4) for lane in range(WARP)), 4, is_swizzled)


# Kernels looked at before they run: what each takes of a GPU, and its bank conflicts in shared memory.


@frozen
class KernelLint:
    """One kernel: its resources, and its accesses of shared memory whose lanes are known."""

    resources: Resources
    accesses: tuple[SharedAccess, ...]

    @property
    def conflicts(self) -> tuple[SharedAccess, ...]:
        """Accesses that have bank conflicts."""
        return tuple(access for access in self.accesses if access.degree > 1)

    @property
    def complaints(self) -> tuple[str, ...]:
        """What should be otherwise, a sentence each."""
        found = [str(access) for access in self.conflicts]
        if self.resources.registers.spills:
            found.append(f"{self.resources.name}: {self.resources.registers}")
        return tuple(found)


def lint_kernels(
    targets: Sequence[SpecOp], codes: Sequence[KernelCode], texts: Sequence[bytes], architecture: str
) -> tuple[KernelLint, ...]:
    """Look at kernels as Target IR, as code and as PTX."""
    found: list[KernelLint] = []
    for target, code, ptx in zip(targets, codes, texts, strict=True):
        fact = {"name": code.name, "threads": code.threads, "shared": code.shared, "resident": code.resident}
        resources = resources_of(fact, ptx.decode(), architecture)
        found.append(KernelLint(resources, tuple(shared_accesses(target))))
    return tuple(found)
