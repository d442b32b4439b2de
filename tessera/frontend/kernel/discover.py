"""Finding blocks for a kernel whose schedule is not given: the candidate that a model says keeps most of a GPU busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera.frontend.kernel.legality import WARP, Footprint, footprint_of, violations
from tessera.ir.tile.records import KernelProgram
from tessera.types.machine import Machine
from tessera.types.occupancy import Usage
from tessera.types.occupancy import occupancy as occupancy_of
from tessera.types.schedule import Schedule
from tessera.types.tensor_type import TensorType

Block = tuple[int, ...]
HELD = 4096
"""Elements of a tile in registers: 16 for each of 256 threads."""
SUMS = 128 * 128
"""Sums of a program without matrix units: 64 for each of 256 threads."""
REUSE = 128 * 256 / (128 + 256)
"""Products for each element read, `m * n / (m + n)`, of the largest blocks that matrix units take."""

ROWS = {"wgmma": 64, "tcgen05": 128}
"""Rows of one instruction of matrix units, by the feature that a machine has them with; others take 16."""

GROUPS, COLUMNS = 3, 256
"""Groups of warps that share the rows of a product at most, and columns of which one keeps sums in registers."""


def share_at_work(program: KernelProgram, block: Block, machine: Machine) -> float | None:
    """Which share of a GPU's warps works, on the average over all waves of programs; None where sizes are free.

    A program with products has a multiprocessor to itself, and small blocks wait for what they read, by the root of how
    much more they read; what sticks out over the edges of a result is work for nothing. Of other programs as many are
    resident as their registers allow.
    """
    extents = [dim.value for dim in program.grid]
    if any(extent is None for extent in extents):
        return None
    count = prod(extent or 0 for extent in extents)
    if not count:
        return 1.0
    need = footprint_of(program, Schedule(block=block))
    if need.has_products:
        m, n = block[:2]
        return _busy(count, machine.blocks) * _inside(program, count) * min(1.0, m * n / (m + n) / REUSE) ** 0.5
    largest = max((type.size.value or 1 for type in program.types if isinstance(type, TensorType)), default=1)
    threads = max(WARP, min(256, 1 << max(0, (largest // 8).bit_length() - 1)))
    registers = need.registers(threads) + 2 * -(-largest // threads)
    found = occupancy_of(machine, Usage(threads, registers, need.shared))
    return _busy(count, machine.blocks * found.blocks) * found.fraction if found.blocks else 0.0


def _busy(count: int, places: int) -> float:
    """The share of places that have a program, over as many waves as it takes."""
    return count / (-(-count // places) * places)


def _inside(program: KernelProgram, count: int) -> float:
    """Which share of what programs store lies inside of the results."""
    stored = sum(program.types[op.operands[0]].size.value or 0 for op in program.body.ops if op.name == "store")
    wanted = sum(type.size.value or 0 for type in program.results)
    return min(1.0, wanted / (count * stored)) if stored else 1.0


def ranked(blocks: Sequence[Block], build: Callable[[Block], KernelProgram], machine: Machine) -> tuple[Block, ...]:
    """Candidates, the one that keeps most of the machine busy first; in the order they come in where none is better.

    Tiles of more elements than threads hold well come last, whatever the sizes are: they are code without end.
    """
    programs = {block: build(block) for block in blocks}
    scores = {block: share_at_work(program, block, machine) for block, program in programs.items()}
    if None in scores.values():
        return tuple(sorted(blocks, key=lambda block: _excess(programs[block])))

    def order(block: Block) -> tuple[bool, int, bool, float]:
        program = programs[block]
        refused = violations(program, Schedule(block=block), machine)
        return (
            _leaves_units(program, block, machine),
            _excess(program),
            _folds_uneven_rows(program),
            1.0 if refused else -round(scores[block] or 0.0, 3),
        )

    return tuple(sorted(blocks, key=order))


def _leaves_units(program: KernelProgram, block: Block, machine: Machine) -> bool:
    """Whether products that matrix units could do have rows or sums that those do not take: nothing costs as much."""
    rows = next((count for feature, count in ROWS.items() if feature in machine.features), 1)
    # Groups of warps have a third of the rows at least, and keep sums of 256 columns of one instruction's rows.
    is_large = "wgmma" in machine.features and block[1] * -(-block[0] // (GROUPS * rows)) > COLUMNS
    return _is_narrow(footprint_of(program, Schedule())) and (block[0] % rows != 0 or is_large)


def _is_narrow(need: Footprint) -> bool:
    return need.has_products and all(buffer.type.dtype.bytes <= 2 for buffer in need.staged)


def _folds_uneven_rows(program: KernelProgram) -> bool:
    """Whether several rows are folded together whose elements no threads have alike: each halving is then an exchange.

    Of a single row, each thread joins what it has of it first.
    """
    for op in program.body.ops:
        if op.name == "reduce":
            type = program.types[op.operands[0]]
            assert isinstance(type, TensorType)
            sizes = [dim.value or 1 for dim in type.shape]
            axis: int = op.values["axis"]
            folded = sizes[axis]
            if prod(sizes) > folded > 1 and folded & (folded - 1):
                return True
    return False


def _excess(program: KernelProgram) -> int:
    """Elements of the largest tile beyond what 256 threads hold well: of sums, as many as matrix units take."""
    need = footprint_of(program, Schedule())
    if need.has_products:
        return 0 if _is_narrow(need) else max(0, max((type.size.value or 0 for type in need.held), default=0) - SUMS)
    sizes = [type.size.value or 0 for type in program.types if isinstance(type, TensorType)]
    return max(0, max(sizes, default=0) - HELD)


__all__ = ["ranked", "share_at_work"]
