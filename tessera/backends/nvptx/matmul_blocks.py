"""Blocks of matmuls that threads multiply: how threads divide them, and how long they take.

A thread reads some rows of one operand and some columns of the other from shared memory for each element of K, and
multiplies all pairs. Shared memory hands out one word to each of 32 threads in a cycle, and a multiprocessor does 128
multiply-adds: a thread with 8 x 8 accumulators keeps both busy, one with 8 x 16 leaves a quarter of the reads. With few
blocks for each multiprocessor there are few warps, which wait for what they read; smaller blocks are then faster.

All constants were fitted to 140 kernels on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.types.machine import QUARTERS, WARP

MOST_THREADS = 512
"""Threads of a block at most."""
PIECE = 4
"""Elements that are read from shared memory in one instruction, and of K that are multiplied together."""
FEW = 4
"""Rows or columns of a thread of which it reads `PIECE` of K at a time where an operand stays contiguous in K. Of more
it would take too many registers: half as many, where pieces of rows or columns would be no longer, and none else."""


def is_read_by_k(own: int) -> bool:
    """Whether a thread with so many rows or columns reads neighbours along K of an operand that is contiguous in it."""
    return own <= FEW or own % PIECE != 0


def lanes_across(across: int, down: int) -> int:
    """Lanes of a warp along columns: about as many as along rows; 0 where warps do not divide the threads so."""
    fitting = (lanes for lanes in (8, 16, 4, 32, 2, 1) if across % lanes == 0 and down % (WARP // lanes) == 0)
    return next(fitting, 0)


_GRIDS = {
    **dict.fromkeys(((128, 128), (128, 64), (64, 32), (32, 16), (64, 16), (32, 8)), (16, 8)),
    **dict.fromkeys(((48, 192), (32, 64), (16, 32), (16, 64), (8, 32), (16, 16)), (8, 16)),
    **dict.fromkeys(((64, 128), (64, 64), (48, 96), (48, 64), (48, 48), (48, 32), (32, 48), (32, 32)), (8, 8)),
    (32, 128): (4, 16),
    (128, 32): (16, 4),
}
"""Threads down and across a block: of large ones a thread has 8 x 16, of small ones 16 or less, so there are many."""


def divide_block(rows: int, columns: int) -> tuple[int, int] | None:
    """Threads of a matmul of such blocks, and those along columns; None where threads do not divide them.

    Blocks that nobody has measured are divided by 8 x 8, 4 x 4 or 2 x 2, and those of a vector by single elements.

    >>> divide_block(128, 128), divide_block(96, 128), divide_block(1, 64), divide_block(24, 100)
    ((128, 8), (192, 16), (64, 64), None)
    """
    own = 1 if min(rows, columns) == 1 else 8 if rows * columns >= 64 * 64 else 4 if rows * columns >= 32 * 32 else 2
    down, across = _GRIDS.get((rows, columns), (rows // own, columns // own))
    if not down or not across or rows % down or columns % across:
        return None
    is_whole = down * across % WARP == 0 and down * across <= MOST_THREADS and bool(lanes_across(across, down))
    return (down * across, across) if is_whole else None


# How long blocks take: what a multiprocessor does for one element of K of all blocks that it has at a time.

_OVERLAP = 0.38
"""The part of the shorter of reads and multiply-adds that does not overlap with the longer."""
_ALONE, _EXPOSED = 10, 0.6
"""Cycles beside multiply-adds where a quarter of a multiprocessor has one warp, and the part of reads it waits for."""
_COPIED, _TRANSPOSED, _WAITED = 0.03, 0.1, 0.2
"""Cycles of copying an element to shared memory, of one that is transposed on the way, and of that for single warps."""
_FULL, _MASKED = 80, 1.12
"""Accumulators of a thread that leave registers for masks, and how much longer it takes where they do not."""
_L2_BYTES = 26
"""Bytes that a multiprocessor gets from L2 in a cycle."""
_STARTED = 1500
"""Cycles before the first multiply-add of a block and behind its last."""
_HELD = 1 << 15
"""Accumulators of all threads that a multiprocessor holds at a time, 32 for each at least."""


def matmul_time(
    block: Sequence[int], size: Sequence[int], batch: int, blocks: int, transposed: tuple[bool, bool]
) -> float:
    """Cycles of a matmul of M x N x K in blocks that threads multiply, on so many multiprocessors.

    `transposed` says which operands are contiguous in K. Blocks that do not fit all at a time follow others.
    """
    (BM, BN, BK), (m, n, k) = block, size
    grid = divide_block(BM, BN)
    if grid is None:
        return float("inf")
    held = max(1, _HELD // max(BM * BN // grid[0], 32) // grid[0])
    programs = batch * -(-m // BM) * -(-n // BN)
    rounds, left = divmod(programs, held * blocks)
    counts = [(held, rounds), (-(-left // blocks), 1)] if left else [(held, rounds)]
    steps = -(-k // BK) * BK
    lengths = (k if transposed[0] else m, k if transposed[1] else n)
    is_apart = lengths[0] % PIECE != 0, lengths[1] % PIECE != 0
    found = 0.0
    for count, many in counts:
        stores = count * BM * BN * 4 / _L2_BYTES
        found += many * (steps * _cycles(block, grid, transposed, is_apart, count) + stores + _STARTED)
    # Masks of blocks that reach over an edge take registers, of which threads with many accumulators have none left.
    is_full = BM * BN // grid[0] > _FULL and (m % BM != 0 or n % BN != 0)
    return found * (_MASKED if is_full else 1)


def _cycles(
    block: Sequence[int],
    grid: tuple[int, int],
    transposed: tuple[bool, bool],
    is_apart: tuple[bool, bool],
    count: int,
) -> float:
    """Cycles of a multiprocessor for one element of K of so many blocks, of which it has all at a time.

    An operand is apart where its rows begin within pieces, so that single words are copied.
    """
    (rows, columns), (threads, across) = block[:2], grid
    own_rows, own_columns = rows * across // threads, columns // across
    own, read, warps = own_rows * own_columns, own_rows + own_columns, threads // WARP
    reads, adds = count * warps * read, -(-count * warps // QUARTERS) * own
    cycles = max(reads, adds) + _OVERLAP * min(reads, adds)
    moved = _TRANSPOSED
    if count * warps <= QUARTERS:
        cycles = max(cycles, _ALONE + own + _EXPOSED * reads)
        moved = _WAITED
    copied = 0.0
    operands = zip((rows, columns), (own_rows, own_columns), transposed, is_apart, strict=True)
    for size, some, is_moved, is_single in operands:
        copied += size * (moved if is_single or (is_moved and not is_read_by_k(some)) else _COPIED)
    return max(cycles + count * copied, count * (rows + columns) * 4 / _L2_BYTES)
