"""How many blocks of a kernel a multiprocessor holds at a time, and what it is that stops more of them.

The arithmetic is that of the driver's `cuOccupancyMaxActiveBlocksPerMultiprocessor`: registers are given to whole warps
in units of 256, by the four quarters of a multiprocessor; shared memory to blocks in units of 128 bytes, of which the
system keeps a kibibyte for itself. Limits are from the CUDA C++ Programming Guide, technical specifications per compute
capability.
"""

from __future__ import annotations

from tessera.types.frozen import frozen
from tessera.types.machine import Multiprocessor

WARP = 32
QUARTERS = 4
"""Parts of a multiprocessor, each with its own registers: a warp lives in one of them."""
REGISTER_UNIT = 256
"""Registers that a warp gets at once."""
SHARED_UNIT = 128
"""Bytes of shared memory that a block gets at once."""
RESERVED = 1 << 10
"""Bytes of shared memory of every block that are the system's."""
MAX_REGISTERS = 255
"""Registers of a thread at most."""
MAX_THREADS = 1024
"""Threads of a block at most."""


@frozen
class Usage:
    """What a kernel asks of a multiprocessor: threads of a block, registers of a thread, shared bytes of a block."""

    threads: int
    registers: int
    shared: int


@frozen
class Occupancy:
    """Blocks that run at a time on one multiprocessor, and the most that each thing they share would allow."""

    blocks: int
    warps: int
    most_warps: int
    limits: tuple[tuple[str, int], ...]
    """Blocks allowed by `warps`, `blocks`, `registers` and `shared`."""

    @property
    def limiter(self) -> str:
        """What stops more blocks."""
        return min(self.limits, key=lambda limit: limit[1])[0]

    @property
    def fraction(self) -> float:
        """Warps that are there, of those that could be."""
        return self.warps / self.most_warps

    def __str__(self) -> str:
        many = "block" if self.blocks == 1 else "blocks"
        held = f"{self.warps} of {self.most_warps} warps"
        return f"{self.blocks} {many} a multiprocessor, {held}, limited by {self.limiter}"


def occupancy(has: Multiprocessor, usage: Usage) -> Occupancy:
    """How many blocks of such a kernel one multiprocessor holds.

    >>> print(occupancy(Multiprocessor(64, 32, 228 << 10), Usage(threads=256, registers=64, shared=0)))
    4 blocks a multiprocessor, 32 of 64 warps, limited by registers
    """
    warps = -(-usage.threads // WARP)
    limits = (
        ("warps", has.warps // warps if usage.threads <= MAX_THREADS else 0),
        ("blocks", has.blocks),
        ("registers", _by_registers(has, warps, usage.registers)),
        ("shared", has.shared // _whole(usage.shared + RESERVED, SHARED_UNIT)),
    )
    blocks = min(count for _, count in limits)
    return Occupancy(blocks, blocks * warps, has.warps, limits)


def _by_registers(has: Multiprocessor, warps: int, registers: int) -> int:
    """Blocks that registers allow: each quarter holds so many warps, and a block is spread over all four."""
    if registers > MAX_REGISTERS:
        return 0
    each = _whole(max(registers, 1) * WARP, REGISTER_UNIT)
    if each * _whole(warps, QUARTERS) > has.registers:
        return 0
    return has.registers // QUARTERS // each * QUARTERS // warps


def _whole(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def registers_for(has: Multiprocessor, threads: int, blocks: int) -> int:
    """Registers that a thread may have where a multiprocessor is to hold so many blocks.

    >>> registers_for(Multiprocessor(64, 32, 228 << 10), 256, 2)
    128
    """
    fitting = (
        registers
        for registers in range(MAX_REGISTERS, 0, -1)
        if occupancy(has, Usage(threads, registers, 0)).blocks >= blocks
    )
    return next(fitting, 0)


def shared_for(has: Multiprocessor, blocks: int) -> int:
    """Shared bytes that a block may have where a multiprocessor is to hold so many."""
    each = has.shared // blocks // SHARED_UNIT * SHARED_UNIT - RESERVED
    return max(0, each)
