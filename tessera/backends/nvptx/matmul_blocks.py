"""Blocks of matmuls that threads multiply: which there are, how threads divide them, and how long they take.

A thread reads some rows of one operand and some columns of the other from shared memory for each element of K, and
multiplies all pairs. A multiprocessor does 128 multiply-adds in a cycle. Its shared memory hands out one word to each
of 32 threads in a cycle, and two where these are neighbours and lanes share them by twos (`ThreadGrid`): a thread with
4 x 4 accumulators keeps both busy, one with 8 x 8 leaves half of the reads. So small blocks are nearly as fast as large
ones, as long as L2 hands out their operands, and what decides is how many of a multiprocessor's cycles a grid of blocks
leaves idle: there are blocks of many sizes, so that one of them leaves few.

All constants were fitted to 386 kernels on an H200 (5.5 % off, root mean square).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import gcd

from tessera.types.machine import QUARTERS, WARP

MOST_THREADS = 512
"""Threads of a block at most."""
PIECE = 4
"""Elements that are read from shared memory in one instruction, and of K that are multiplied together."""
FEW = 4
"""Rows or columns of a thread of which it reads `PIECE` of K at a time where an operand stays contiguous in K. Of more
it would take too many registers: half as many, where pieces of rows or columns would be no longer, and none else."""
HELD = 64
"""Accumulators of a thread from which on it holds what is transposed: with fewer it copies single words."""
MOST_OWN, MOST_STEP = 128, 2048
"""Accumulators of a thread at most, and its multiply-adds of a step."""


def is_read_by_k(own: int) -> bool:
    """Whether a thread with so many rows or columns reads neighbours along K of an operand that is contiguous in it."""
    return own <= FEW or own % PIECE != 0


def lanes_across(across: int, down: int) -> int:
    """Lanes of a warp along columns: about as many as along rows; 0 where warps do not divide the threads so."""
    fitting = (lanes for lanes in (8, 16, 4, 32, 2, 1) if across % lanes == 0 and down % (WARP // lanes) == 0)
    return next(fitting, 0)


_GRIDS = ((16, 8), (8, 16), (8, 8), (16, 16), (4, 8), (8, 4), (4, 16), (16, 4), (4, 32), (32, 4))
"""Threads down and across blocks."""
_SIZES = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128), (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256)
"""Rows and columns of blocks: so near each other that some block leaves few multiprocessors idle."""
_LEAST, _MOST, _SLIMMEST = 128, 128 * 192, 32
"""Elements of a block, and how many times longer than wide it may be."""
_MANY, _MOST_UNEVEN = 48, 3.5
"""Accumulators of a thread that are many, and how many times more of its rows than columns it may then have."""
_DEPTHS = ((64, 32 * 32), (32, 64 * 96))
"""Elements of K of a step, by those of a block up to which it has as many."""


@cache
def divide_block(
    rows: int, columns: int, depth: int, count: int = 0, transposed: tuple[bool, bool] = (False, False)
) -> tuple[int, int] | None:
    """Threads of a matmul of such blocks, and those along columns; None where threads do not divide them.

    Those of a vector have single elements, all others what takes the least time where a multiprocessor has `count`
    blocks, by default as many as keep it busy: few blocks are divided among many threads.

    >>> divide_block(128, 128, 16), divide_block(1, 64, 64), divide_block(24, 99, 16)
    ((256, 16), (64, 64), None)
    """
    if min(rows, columns) == 1:
        threads = max(rows, columns)
        return (threads, columns) if threads % WARP == 0 and threads <= MOST_THREADS else None
    whole = [(down, across) for down, across in _GRIDS if rows % down == 0 == columns % across]
    grids = [
        (down * across, across)
        for down, across in whole
        if rows * columns <= MOST_OWN * down * across and not _is_uneven(rows // down, columns // across)
    ]
    short = [grid for grid in grids if rows * columns * depth <= MOST_STEP * grid[0]] or grids
    busy, pieces = max(1, _TYPICAL // (rows * columns)), (PIECE, PIECE)
    count, block = min(count or busy, busy), (rows, columns, depth)
    return min(short, key=lambda grid: _cycles(block, grid, transposed, pieces, count), default=None)


def _is_uneven(rows: int, columns: int) -> bool:
    """Whether a thread with many accumulators reads more for them than others would: nobody measured such."""
    return rows * columns >= _MANY and max(rows, columns) > _MOST_UNEVEN * min(rows, columns)


def choose_step(rows: int, columns: int) -> int:
    """Elements of K of a step: many where it has little to multiply, as threads wait for each other after each."""
    return next((depth for depth, most in _DEPTHS if rows * columns <= most), 16)


def _sizes() -> Iterator[tuple[int, int, int]]:
    for rows, columns in product(*_SIZES):
        is_slim = max(rows, columns) > _SLIMMEST * min(rows, columns)
        if _LEAST <= rows * columns <= _MOST and not is_slim:
            yield rows, columns, choose_step(rows, columns)


# How long blocks take: what a multiprocessor does for one element of K of all blocks that it has at a time.

_OVERLAP = 0.25
"""The part of the shorter of reads and multiply-adds that does not overlap with the longer."""
_READ, _READ_BY_K = {4: 0.42, 2: 0.48, 1: 0.8}, 0.74
"""Cycles of reading a word of each thread of a warp, by how many are read together, and of those along K."""
_STEP, _EACH = 148, 1.3
"""Cycles of a step that warps wait for each other, divided among those of a quarter, and cycles of each beside it."""
_COPIED, _PASSED = {4: 0.011, 2: 0.022, 1: 0.115}, 0.11
"""Cycles of copying an element to shared memory, by how many are copied together, and of one that goes through
registers."""
_CACHED, _ALONE, _LONG = 1536, 1.7, 1.08
"""Multiply-adds of a step whose instructions fit their cache, and how much longer others take: for single warps of a
quarter (128 x 64 in steps of 32, beside steps of 16), and for several, which share them."""
_FULL, _MASKED = 80, 1.18
"""Accumulators of a thread that leave registers for masks, and how much longer it takes where they do not."""
_L2_BYTES = 26
"""Bytes that a multiprocessor gets from L2 in a cycle."""
_STARTED = 1950
"""Cycles before the first multiply-add of a block and behind its last."""
_TYPICAL = 128 * 64
"""Accumulators of a multiprocessor for which threads divide blocks."""
_BESIDE, _REGISTERS, _HELD = 28, 1 << 16, 16
"""Registers of a thread beside accumulators and half as many, those of a multiprocessor, and blocks that it holds."""


def fastest_block(
    candidates: Sequence[tuple[int, int, int]],
    size: Sequence[int],
    batch: int,
    blocks: int,
    transposed: tuple[bool, bool],
) -> tuple[int, int, int]:
    """The block that a matmul of M x N x K takes the least time in, on so many multiprocessors."""
    m, n, k = size

    def least(block: tuple[int, int, int]) -> float:
        # Of the multiprocessor that has the most: multiply-adds, a warp of them in a cycle of each quarter, or copies.
        BM, BN, _ = block
        count = -(-(batch * -(-m // BM) * -(-n // BN)) // blocks)
        each = max(BM * BN / (QUARTERS * WARP), (BM + BN) * 4 / _L2_BYTES) * k + BM * BN * 4 / _L2_BYTES
        return count * each + _STARTED

    found, best = candidates[0], float("inf")
    for bound, block in sorted((least(block), block) for block in candidates):
        if bound >= best:
            break
        time = matmul_time(block, size, batch, blocks, transposed)
        if time < best:
            found, best = block, time
    return found


def matmul_time(
    block: Sequence[int], size: Sequence[int], batch: int, blocks: int, transposed: tuple[bool, bool]
) -> float:
    """Cycles of a matmul of M x N x K in blocks that threads multiply, on so many multiprocessors.

    `transposed` says which operands are contiguous in K. Blocks that do not fit all at a time follow others.
    """
    (BM, BN, BK), (m, n, k) = block, size
    programs = batch * -(-m // BM) * -(-n // BN)
    grid = divide_block(BM, BN, BK, -(-programs // blocks), transposed)
    if grid is None:
        return float("inf")
    own = BM * BN // grid[0]
    held = max(1, min(_HELD, _REGISTERS // (grid[0] * (own + own // 2 + _BESIDE))))
    rounds, left = divmod(programs, held * blocks)
    counts = [(held, rounds), (-(-left // blocks), 1)] if left else [(held, rounds)]
    steps = -(-k // BK) * BK
    lengths = (k if transposed[0] else m, k if transposed[1] else n)
    copied = gcd(lengths[0], PIECE), gcd(lengths[1], PIECE)
    found = 0.0
    for count, many in counts:
        stores = count * BM * BN * 4 / _L2_BYTES
        found += many * (steps * _cycles(block, grid, transposed, copied, count) + stores + _STARTED)
    # Masks of blocks that reach over an edge take registers, of which threads with many accumulators have none left.
    is_full = own > _FULL and (m % BM != 0 or n % BN != 0)
    return found * (_MASKED if is_full else 1)


def _cycles(
    block: Sequence[int],
    grid: tuple[int, int],
    transposed: tuple[bool, bool],
    together: tuple[int, int],
    count: int,
) -> float:
    """Cycles of a multiprocessor for one element of K of so many blocks, of which it has all at a time.

    So many elements of each operand can be copied together, where it is not transposed.
    """
    (rows, columns, depth), (threads, across) = block, grid
    own = rows * across // threads, columns // across
    by_k = [is_moved and is_read_by_k(some) for is_moved, some in zip(transposed, own, strict=True)]
    piece = PIECE // 2 if any(is_by_k and some > FEW for is_by_k, some in zip(by_k, own, strict=True)) else PIECE
    widths = [piece if is_by_k else gcd(some, PIECE) for is_by_k, some in zip(by_k, own, strict=True)]
    warps, total = threads // WARP, own[0] * own[1]
    each = -(-count * warps // QUARTERS)
    costs = [_READ_BY_K if is_by_k else _READ[width] for is_by_k, width in zip(by_k, widths, strict=True)]
    reads = count * warps * sum(some * cost for some, cost in zip(own, costs, strict=True))
    adds = each * (total + sum(some / width for some, width in zip(own, widths, strict=True)))
    cycles = max(reads, adds) + _OVERLAP * min(reads, adds) + (_STEP / each + _EACH * each) / depth
    if total * depth > _CACHED:
        cycles *= _ALONE if each == 1 else _LONG
    copied, passed = 0.0, _PASSED if total >= HELD else _COPIED[1]
    for size, is_by_k, is_moved, width in zip((rows, columns), by_k, transposed, together, strict=True):
        copied += size * (passed if is_moved and not is_by_k else _COPIED[width])
    return max(cycles + count * copied, count * (rows + columns) * 4 / _L2_BYTES)


THREAD_BLOCKS = tuple(_sizes())
"""Blocks (BM, BN, BK) that threads divide."""
