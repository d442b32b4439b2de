"""What kernels may ask for: widths of vectors with what each needs, features by name, and the most of everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tessera.ir.target.architectures import architectures
from tessera.types.frozen import frozen


@frozen
class Width:
    """Vectors of so many f32: the feature they come with, and how many registers there are."""

    lanes: int
    needs: str
    registers: int


WARP = 32
"""Threads that run as one on a GPU."""

MAX_REGISTERS_OF_THREAD = 255
"""Registers of a thread of a GPU (CUDA C++ Programming Guide, technical specifications)."""

_CPUS = tuple(architectures().values())

WIDTHS: list[Width] = [
    Width(level.lanes, level.width, level.registers)
    for level in reversed([level for architecture in _CPUS for level in architecture.levels])
]
"""Vectors that kernels may be made of; backends of GPUs add those of a warp."""

FEATURES: dict[str, str] = {name: needs for architecture in _CPUS for name, needs in architecture.features.items()}
"""Names as LLVM spells them, each with the one that it cannot be without; backends add those of their machines."""

LEVELS: dict[str, tuple[str, ...]] = {
    level: names for architecture in _CPUS for level, names in architecture.first_levels.items()
}
"""The level of an architecture that first has each feature."""

MATRIX_FEATURES: list[str] = []
"""Matrix instructions among the features, the best first; backends add theirs."""


def add_features(
    features: Mapping[str, str],
    levels: Mapping[str, tuple[str, ...]],
    widths: Iterable[Width],
    matrix: Iterable[str],
) -> None:
    """Let verifiers know features, levels, widths and matrix instructions of a backend's machines."""
    FEATURES.update(features)
    LEVELS.update(levels)
    WIDTHS.extend(width for width in widths if width not in WIDTHS)
    MATRIX_FEATURES.extend(name for name in matrix if name not in MATRIX_FEATURES)


MAX_THREADS = 1024
"""Threads of a block (CUDA C++ Programming Guide, technical specifications per compute capability)."""

SHARES = (4, 8, 16)
"""Warps that may share a row: no more than a block has barriers, as any of them may be the first of a team."""

MAX_ARGUMENTS = 1024
MAX_SIZES = 1024
MAX_SCRATCH = 1 << 31
"""Bytes of scratch one thread may be asked for where the size is static."""

LINE = 64
"""Bytes of a cache line: scratch begins at one, and so does each part of it."""

MAX_REGISTERS = 64
"""A block may be as large as so many times the register file: every vector of it is written out in code."""
MAX_THREAD_REGISTERS = 8 * MAX_REGISTERS_OF_THREAD
"""Elements of a block that one of a program's threads may have, most of which it then keeps in memory of its own."""


def registers_of(sizes: Sequence[int], lanes: int) -> int:
    """Vector registers that a block takes: rows of its last axis, each in registers of its own."""
    *outer, last = sizes or (1,)
    count = last // min(lanes, last) if last and last % min(lanes, last) == 0 else last
    for size in outer:
        count *= size
    return count


def widths_of(lanes: int) -> list[Width]:
    """The vectors of so many f32, one for each architecture that has them."""
    return [width for width in WIDTHS if width.lanes == lanes]


def width_for(lanes: int, features: Sequence[str]) -> Width | None:
    """The vectors of so many f32 that come with one of the features; None where none do."""
    return next((width for width in widths_of(lanes) if width.needs in features), None)
