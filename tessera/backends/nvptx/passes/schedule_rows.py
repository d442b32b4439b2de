"""Decide how blocks go through the rows of a kernel: programs side by side, prefetched rows, moves by matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx import row_plan, row_prefetch
from tessera.backends.nvptx.passes.plan_rows import IN_REGISTERS
from tessera.backends.nvptx.row_warps import exchanged_bytes
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.backends.nvptx.text import WARP
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import VectorAttr, shaped_type
from tessera.ir.target.limits import ROW_WARPS
from tessera.ir.target.typed_ops import ElementwiseOp, KernelOp, LoadOp, LoopOp, ScratchOp, StoreOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

# What kernels reach on an H200 with these numbers is recorded in `benchmarks/results/gpu-rows.json`, and for other
# widths in `gpu-row-lengths.json` and `gpu-widths.json` (`python -m benchmarks.gpu rows` and `widths`).

RESIDENT = 16
"""Blocks for each multiprocessor that share the programs, where those have scratch in global memory."""
BLOCK = 128
"""Threads of a block that runs several small programs side by side."""
HELD_STATIC = 3
"""Blocks of programs that keep a row each that a multiprocessor holds: as many as 144 registers a thread allow."""
LAUNCHED_STATIC = 24
"""Blocks launched for each multiprocessor: several times what it holds, so that none waits long at the end."""
DEEP = 32
"""Iterations unrolled whose loads all come first: a kernel with such a loop has few blocks and many registers."""
HELD, HELD_LONG, HELD_CHEAP = 16, 24, 32
"""Warps that share rows and that a multiprocessor has at least, by the registers of a thread: 128, 80 or 64.

Exponentials of a row stay in registers; where it waits long for its sums, as one that eight warps have, there are more
rows if registers do. Where nothing is kept of rows but the rows, they take half a register for a 2-byte element.
"""
LONG_WARPS, LONG_ITERATIONS = 8, 48
"""Warps that wait so long for each other, and iterations of a warp that 80 registers do for."""
LAUNCHED_PER_HELD = 2
"""Blocks of shared rows that are launched for each that a multiprocessor holds."""
OTHER_SHARED = 2 << 10
"""Bytes of shared memory that a block leaves for others, beside what its warps exchange."""


@frozen
class ScheduleRows(Pass):
    """Write on every `ttarget.kernel` of threads how blocks go through its grid, and on its accesses how they move.

    A kernel that keeps rows in registers has few warps on a multiprocessor, too few to read memory while others
    compute. So its blocks stay, take several rows one after the other, and copy the next row to shared memory with
    `cp.async` meanwhile, which takes no registers: `nvptx.prefetch` of loads, `nvptx.launched` of the kernel. Rows of
    two-byte elements go from and to shared memory by matrices, eight iterations in one instruction: `nvptx.by_matrix`.
    Shared memory decides how much of that fits beside how many blocks (`nvptx.blocks`).

    Before: `ttarget.kernel @softmax` with `threads = 32` and loops of `unroll = 0`. After: `nvptx.programs = 4`,
    `nvptx.blocks = 3`, `nvptx.launched = 24`, its first load with `nvptx.prefetch = "row"`.
    """

    machine: str = "sm_90a"

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp) and op.threads:
                if row_plan.LEAVES.of(op):
                    schedule_leaves(op)
                elif op.warps_per_row:
                    schedule_divided_rows(op, GPUS[self.machine])
                else:
                    schedule_programs(op, GPUS[self.machine])
                if any(map(_is_global_scratch, op.walk())):
                    row_plan.SLOTS.write(op, GPUS[self.machine].blocks * RESIDENT * row_plan.PROGRAMS.of(op))


def schedule_leaves(kernel: KernelOp) -> None:
    """Blocks of rows of symbolic width stay and take several rows; others have one row each."""
    if row_prefetch.row_width(kernel).value is None:
        row_plan.LAUNCHED.write(kernel, LAUNCHED_PER_HELD * 4)


def _is_global_scratch(op: Operation) -> bool:
    """Whether an op gives memory of which every program that runs has its own."""
    return isinstance(op, ScratchOp) and op.space == "private" and shaped_type(op.result).bytes.value != 0


# Programs that are not divided: several to a block, rows of static width.


@frozen
class StaticChoice:
    """Rows that are prefetched, accesses that go by matrices, and how many blocks a multiprocessor holds then."""

    rows: tuple[row_prefetch.StaticRow, ...]
    held: int
    uses_matrices: bool = False
    lines: tuple[LoadOp, ...] = ()
    stores: tuple[StoreOp, ...] = ()


def schedule_programs(kernel: KernelOp, machine: Machine) -> None:
    """Decide for a kernel whose programs have all of their threads in every iteration."""
    programs = max(1, BLOCK // kernel.threads)
    row_plan.PROGRAMS.write(kernel, programs)
    has_deep_loop = any(isinstance(op, LoopOp) and op.unroll >= DEEP for op in kernel.walk())
    row_plan.FETCHES_LINES.write(kernel, has_deep_loop)
    choice = choose_static_rows(kernel, machine, programs)
    if not choice.rows:
        row_plan.BLOCKS.write(kernel, int(has_deep_loop))
        return
    row_plan.BLOCKS.write(kernel, choice.held)
    row_plan.LAUNCHED.write(kernel, LAUNCHED_STATIC)
    for row in choice.rows:
        row_plan.PREFETCH.write(row.load, row_prefetch.ROW)
    if choice.uses_matrices:
        row_plan.USES_MATRICES.write(kernel, True)
        row_plan.WIDENS_IN_EACH_LOOP.write(kernel, any(row.count > WARP * IN_REGISTERS for row in choice.rows))
        for op in (*choice.lines, *choice.stores):
            row_plan.BY_MATRIX.write(op, True)


def choose_static_rows(kernel: KernelOp, machine: Machine, programs: int) -> StaticChoice:
    """As many blocks as may be, or one less where that leaves shared memory for more that goes by matrices."""
    if len(row_prefetch.programs_in(kernel).grid) != 1 or kernel.threads != WARP:
        return StaticChoice((), HELD_STATIC)
    choices: list[StaticChoice] = []
    for held in (HELD_STATIC, HELD_STATIC - 1):
        rows = _rows_that_fit(kernel, machine.shared // held, programs)
        choices.append(choose_matrices(kernel, StaticChoice(tuple(rows), held), machine, programs))
    return max(choices, key=lambda choice: 1 + len(choice.lines) if choice.uses_matrices else 0)


def _rows_that_fit(kernel: KernelOp, available: int, programs: int) -> list[row_prefetch.StaticRow]:
    """The rows of a kernel whose next one fits shared memory, in order."""
    found: dict[SSAValue, row_prefetch.StaticRow] = {}
    for op in kernel.walk():
        row = row_prefetch.static_row(op, kernel)
        if row is None or row.buffer in found or row.bytes * programs > available:
            continue
        found[row.buffer] = row
        available -= row.bytes * programs
    return list(found.values())


def choose_matrices(kernel: KernelOp, choice: StaticChoice, machine: Machine, programs: int) -> StaticChoice:
    """The same with what goes by matrices: lines that all programs read as far as they fit, and stores of rows."""
    available = machine.shared // choice.held - programs * (sum(row.bytes for row in choice.rows) + row_prefetch.STAGED)
    if available < 0 or not machine.has("sm_90") or not row_prefetch.can_use_matrices(kernel, choice.rows):
        return choice
    lines: list[LoadOp] = []
    taken: dict[SSAValue, int] = {}
    for op in kernel.walk():
        size = row_prefetch.line_bytes(op, kernel)
        if isinstance(op, LoadOp) and size and (op.buffer in taken or sum(taken.values()) + size <= available):
            taken[op.buffer] = size
            lines.append(op)
    stores = [op for op in kernel.walk() if isinstance(op, StoreOp) and row_prefetch.stores_whole_parts(op, kernel)]
    return replace(choice, uses_matrices=True, lines=tuple(lines), stores=tuple(stores))


# Rows that several warps share.


@frozen
class DividedChoice:
    """Rows of each program and lines of all that are prefetched, beside how many blocks of a multiprocessor."""

    rows: Sequence[row_prefetch.DividedRow]
    lines: Sequence[row_prefetch.DividedRow]
    blocks: int
    keeps_rows_only: bool
    """Whether nothing of a row is kept but the row: twice as many blocks, and no shared memory for lines."""


def schedule_divided_rows(kernel: KernelOp, machine: Machine) -> None:
    """Decide for a kernel whose loops are divided among the warps of a block."""
    row_plan.SECTIONS.write(kernel, choose_sections(kernel))
    choice = choose_divided_rows(kernel, machine)
    row_plan.BLOCKS.write(kernel, choice.blocks)
    row_plan.LAUNCHED.write(kernel, LAUNCHED_PER_HELD * choice.blocks)
    row_plan.KEEPS_ROWS_ONLY.write(kernel, choice.keeps_rows_only)
    row_plan.COMPUTES_LATE.write(kernel, is_cheap(kernel))
    rows, lines = ({row.buffer for row in found} for found in (choice.rows, choice.lines))
    for op, _, _ in row_prefetch.loads_of_rows(kernel):
        if op.buffer in rows or op.buffer in lines:
            row_plan.PREFETCH.write(op, row_prefetch.ROW if op.buffer in rows else row_prefetch.LINE)


def choose_sections(kernel: KernelOp) -> int:
    """Sections that a warp has of a row of symbolic width: fewer of long formulas, since all are unrolled."""
    ops = row_plan.ops_in(kernel)
    types = [op.results[0].type for op in ops if op.results]
    is_wide = any(isinstance(type, VectorAttr) and type.shape and type.dtype.bytes > 4 for type in types)
    most = row_plan.INSTRUCTIONS // (row_prefetch.SECTION * row_plan.count_instructions(ops)) - 1
    return max(1, min(4 if is_wide else 8, most))


def choose_divided_rows(kernel: KernelOp, machine: Machine) -> DividedChoice:
    """As much as fits: of a cheap formula what all programs read, or else more rows at a time."""
    warps, width = kernel.warps_per_row, row_prefetch.row_width(kernel).value
    waits_long = warps == LONG_WARPS and width is not None and width <= LONG_WARPS * LONG_ITERATIONS * WARP
    held = HELD_LONG if waits_long and not is_cheap(kernel) else HELD
    whole = _choose_what_fits(kernel, machine, max(1, held // warps), keeps_rows_only=False)
    lines = len(row_prefetch.common_lines(kernel))
    has_all = width is not None and len(whole.lines) == lines > (warps == ROW_WARPS[-1])
    if not is_cheap(kernel) or has_all:
        return whole
    return replace(_choose_what_fits(kernel, machine, max(1, HELD_CHEAP // warps), keeps_rows_only=True), lines=())


def _choose_what_fits(kernel: KernelOp, machine: Machine, blocks: int, keeps_rows_only: bool) -> DividedChoice:
    elements, copies = row_prefetch.elements_in_shared_memory(kernel)
    available = machine.shared // blocks - exchanged_bytes(kernel) - OTHER_SHARED
    rows: list[row_prefetch.DividedRow] = []
    for row in row_prefetch.divided_rows(kernel):
        if row.padded_bytes(elements) * copies <= available:
            rows.append(row)
            available -= row.padded_bytes(elements) * copies
    lines: list[row_prefetch.DividedRow] = []
    for line in row_prefetch.common_lines(kernel):
        if line.padded_bytes(row_prefetch.widest_row(kernel)) <= available:
            lines.append(line)
            available -= line.padded_bytes(row_prefetch.widest_row(kernel))
    return DividedChoice(rows, lines, blocks, keeps_rows_only)


def is_cheap(kernel: KernelOp) -> bool:
    """Whether iterations are computed in no time, so that nothing of a row need be kept but the row."""
    ops = [op for op in kernel.walk() if isinstance(op, SpecOp)]
    cheap = row_plan.CHEAP - {"exp", "div"}
    is_costly = any(isinstance(op, ElementwiseOp) and op.fn not in cheap and row_prefetch.is_row_op(op) for op in ops)
    return not is_costly and not any(isinstance(op, ScratchOp) for op in ops)
