"""How long blocks of a contraction take on Hopper's tensor cores: what the choice of a block goes by.

The idea is waves: a grid of blocks runs on all multiprocessors at once, the last wave partly idle, so time is the
number of waves times the time of one block. A block of BM x BN takes K * BM * BN multiply-adds at the rate that a
multiprocessor reaches with such blocks (`RATES`), then cycles until the next block's first MMA, and the very last wave
also the cycles of its epilogue, which no other block hides.

Nor is a step faster than its operands arrive. TMA reads lines of 128 bytes: one that a row or a block begins within is
in two lines of memory, and both are asked for (`Rows`). All multiprocessors share what L2 hands out; CTAs of a cluster
copy the B operand for each other, which saves some of it where lines are crossed, and costs where they are not.

Cycles are those of blocks that tensor cores bound, 0.65 ns on an H200 under such load. All constants were measured
there: rates with matmuls in whole waves, lines with 777 x 5000 x 4000, 3000 x 3000 x 3000 and 4104 x 4104 x 4104 and
neighbours of them, in a dozen blocks each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.types.dim import Dim
from tessera.types.frozen import frozen

_WIDTHS = {
    128: (
        *((64, 0.52), (72, 0.56), (80, 0.61), (88, 0.67), (96, 0.734), (104, 0.77), (112, 0.824), (120, 0.876)),
        *((128, 0.906), (136, 0.908), (144, 0.922), (152, 0.922), (160, 0.937), (168, 0.933), (176, 0.947)),
        *((184, 0.945), (192, 0.968), (200, 0.966), (208, 0.976), (216, 0.973), (224, 0.979), (232, 0.974)),
        *((240, 0.984), (248, 0.977), (256, 1.0)),
    ),
    192: (
        *((96, 0.839), (112, 0.896), (128, 0.939), (144, 0.955), (160, 0.965), (176, 0.959), (192, 0.988)),
        (200, 0.985),
    ),
    256: (
        *((96, 0.874), (104, 0.898), (112, 0.916), (120, 0.921), (128, 0.957), (144, 0.951), (160, 0.97)),
        *((176, 0.98), (192, 1.0)),
    ),
    64: (
        *((32, 0.28), (64, 0.42), (80, 0.49), (96, 0.55), (112, 0.6), (128, 0.66), (144, 0.69), (160, 0.72)),
        *((176, 0.74), (192, 0.76), (208, 0.77), (224, 0.78), (240, 0.79), (256, 0.8)),
    ),
}
NARROW = range(16, 64, 16)
"""Columns of blocks of 128 rows that have many segments of K joined in registers, or a line stored of it; CTAs of a
cluster copy halves of them, in whole eights."""
_NARROW_STEP = 300
"""Cycles of a step of such blocks."""
RATES = {
    **{(rows, columns): rate for rows, widths in _WIDTHS.items() for columns, rate in widths},
    **{(128, columns): columns * 4 / _NARROW_STEP for columns in NARROW},
}
"""The part of its peak that a multiprocessor reaches on blocks of rows and columns, wave after wave."""
_FP8_RATES = {
    **dict(zip(((192, 128), (128, 256), (256, 128), (128, 128)), (1.0, 0.95, 0.94, 0.86), strict=True)),
    **dict(zip(((128, 192), (128, 176), (128, 160), (128, 144)), (0.99, 0.95, 0.93, 0.92), strict=True)),
    **dict(zip(((64, 256), (128, 64), (64, 128), (64, 64)), (0.72, 0.55, 0.58, 0.36), strict=True)),
}
"""The same of 8-bit floats, for the blocks that do not spill registers."""
FP8_BLOCKS = frozenset(_FP8_RATES)
_MANY = 2
"""Waves from which on power limits the clock, and blocks that read more for each multiply-add take more of it."""
_REGAINED = 0.7
"""The part of what they lose that small blocks do not lose in fewer waves (132 blocks of 14 sizes, K 4096)."""
_NARROWER = 0.005 / 64
"""What a column less than the widest block has costs of a rate in many waves."""
SPAN = 64
"""Columns of one copy of a B operand that is contiguous in N; blocks of 16 and 32 columns copy just those."""
SECTOR = 32
"""Bytes of memory that are read together."""
LINE = 128
"""Bytes of a line of an operand in shared memory: what a step has along K, or a span across it."""
_CROSSING, _WITHIN = 1.2, 1.15
"""How much longer a line takes that is in two lines of memory, and if it begins within a sector of them."""
_L2_BYTES = 11700
"""Bytes that TMA gets from L2 in a cycle for all multiprocessors together."""
_SHARED_BYTES = 130
"""Bytes that TMA writes to the shared memory of one multiprocessor in a cycle, whoever asked for them."""
_MEMORY_BYTES = 2750
"""Bytes that memory hands out in a cycle: 4.2 TB/s."""
_SHALLOW, _SHALLOW_BYTES = 0.85, 53 << 10
"""What is left of both where only three stages of so many bytes fit."""
_OVERLAP, _DISTURBED = 0.1, 0.1
"""The part of the lesser of both limits that is added to the greater, and the part of the time of crossed lines that is
added where dots take longer than copies."""
_SMALL, _LEAST_STEP, _LEAST_DEEP = 64 * 64, 220, 180
"""Elements of blocks with deep steps; cycles of a step at least, and of as much of a deep one: waits for copies,
starting dots, and handing stages back."""
_HALVED, _HALVED_SHALLOW = 0.6, 0.85
"""The part of the B operand's time that is left where CTAs of a cluster halve it, and where there are three stages."""
_STAGES, _STAGING = 226 << 10, 16 << 10
"""Shared bytes of all stages, of which each warpgroup takes some for its stores."""
_PAIRED_BLOCK = 128 * 256
"""Elements of a block whose steps are long enough for CTAs to wait for each other."""
_PAIRED = 1.03
"""How much longer steps take of CTAs that wait for each other."""
_MULTIPLY_ADDS = 2048
"""Multiply-adds of bf16 in a cycle of a Hopper multiprocessor."""
_EPILOGUE = 12
"""Elements that a multiprocessor stores in a cycle after its last block; before that, stores overlap with MMA."""
_HALVES = 1.75
"""How much longer stores take where the columns are not a multiple of 16."""
_EDGES = {64: 18, 128: 27, 192: 27, 256: 27}
"""Cycles of a row of a block, by its rows, whose ends are within sectors of memory: another block writes the rest of
them, and memory is read for them before (16384 x 4388 x 16 in five blocks, within 10 %)."""
_STORED = 7
"""Elements that threads of a multiprocessor store in a cycle beside that, as fast as memory takes those of all."""
_BETWEEN, _AFTER = 1000, {192: 2000, 256: 2500}
"""Cycles from the last MMA of a block to the first of the next, and those of blocks, by their rows, whose accumulators
leave no registers to store them beside it."""
_BESIDE = {64: 64 * 256, 128: 128 * 256, 192: 192 * 136, 256: 256 * 128}
"""Elements of a block, by its rows, that leave them."""
_USUAL_K, _FEW_STAGES = 64, 3
"""K of the step that the model counts, and stages of which CTAs of a cluster wait for each other more often."""
CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
"""Warpgroups of a block, by its rows."""
_COPY_CYCLES = 5000
"""Cycles from the start of a kernel that copies rows to the first dots of the next, beside the time of memory."""
THREADED_COLUMNS, THREADED_LEAST = {64: 256, 128: 128}, 1 << 22
"""Columns of a block at most, by its rows, whose producer copies by threads what TMA does not take: its registers are
not the consumers'; and bytes of an operand at least: fewer are still in L2 when they were copied before."""
_THREADED_BYTES = 24
"""Bytes that threads of a producer are taken to copy in a cycle; memory hands out 21 to each multiprocessor."""


@frozen
class Rows:
    """What operands of a contraction are in memory, as far as the time to copy them goes.

    A pitch is bytes from one row of an operand to the next, 0 where all begin with lines; a result is `apart` where TMA
    does not store its rows. Bytes of an operand are 0 where TMA takes its rows.
    """

    is_rhs_n_major: bool = False
    lhs_pitch: int = 0
    rhs_pitch: int = 0
    is_result_apart: bool = False
    lhs_bytes: int = 0
    rhs_bytes: int = 0

    @staticmethod
    def of(m: int, n: int, k: int, context: Mapping[str, Any], bytes: int) -> Rows:
        """Those of a contraction of static extents; rows that TMA does not take are copied to whole lines before."""
        is_n_major = bool(context.get("is_rhs_n_major"))
        usual = (m if context.get("is_lhs_m_major") else k, n if is_n_major else k)
        widths = [size_of(context.get(name), size) for name, size in zip(("lhs_row", "rhs_row"), usual, strict=True)]
        are_taken = [width * bytes % (SECTOR // 2) == 0 for width in widths]
        lhs, rhs = (width * bytes * is_taken for width, is_taken in zip(widths, are_taken, strict=True))
        batch = size_of(context.get("batch"), 1)
        copied = [0 if is_taken else batch * rows * k * bytes for rows, is_taken in zip((m, n), are_taken, strict=True)]
        return Rows(is_n_major, lhs, rhs, n * bytes % (SECTOR // 2) != 0, *copied)

    def threaded_lines(self, block: Sequence[int], m: int, n: int) -> int:
        """Lines of a step of a block that threads copy: of an operand that is read once, and that TMA does not take."""
        if not can_copy_by_threads(block):
            return 0
        once = ((self.lhs_bytes, n <= block[1], block[0]), (self.rhs_bytes, m <= block[0], block[1]))
        return sum(lines for bytes, is_once, lines in once if is_once and bytes >= THREADED_LEAST)

    def copied_cycles(self, block: Sequence[int], m: int, n: int) -> float:
        """Cycles in which operands that TMA does not take are copied before all blocks, but for what threads copy."""
        is_able = can_copy_by_threads(block)
        once = (self.lhs_bytes, is_able and n <= block[1]), (self.rhs_bytes, is_able and m <= block[0])
        copied = [bytes for bytes, is_once in once if bytes and not (is_once and bytes >= THREADED_LEAST)]
        return sum(_COPY_CYCLES + 2 * bytes / _MEMORY_BYTES for bytes in copied)


def can_copy_by_threads(block: Sequence[int]) -> bool:
    """Whether the producer of a block of rows and columns has registers to copy by all of its threads."""
    return block[1] <= THREADED_COLUMNS.get(block[0], 0)


def crossing_weight(pitch: int, offset: int = 0) -> float:
    """How long a line of an operand takes, of a whole one.

    Its rows are so many bytes apart, and blocks begin at multiples of an offset: common divisors say how many lines
    begin within one of memory, and end in the next. Where rows and offset differ in that, some blocks have more of them
    than others, which wait for those half of the time.

    >>> crossing_weight(8192), crossing_weight(8192 + 64), crossing_weight(8192, 320)
    (1.0, 1.6, 1.9)
    """
    own, common = math.gcd(pitch, LINE), math.gcd(pitch, offset, LINE)
    most = 1 - own / LINE if offset % own == 0 else 1
    weight = 1 + _CROSSING * (1 - common / LINE + most) / 2
    return weight * (_WITHIN if common % SECTOR else 1)


@frozen
class Lines:
    """Lines of both operands that a step copies, and how long each takes of a whole one."""

    lhs: int
    rhs: int
    lhs_weight: float = 1.0
    rhs_weight: float = 1.0

    @property
    def is_crossed(self) -> bool:
        """Whether any of them is in two lines of memory."""
        return max(self.lhs_weight, self.rhs_weight) > 1

    def count(self, share: float = 1.0) -> float:
        """All of them, in whole ones, where the B operand takes a share of its time."""
        return self.lhs * self.lhs_weight + self.rhs * self.rhs_weight * share


def lines_of(block: Sequence[int], rows: Rows) -> Lines:
    """The lines of a step of a block; across K columns are copied in whole spans, the last of which may be in part."""
    BM, BN = block
    is_spanned = rows.is_rhs_n_major and BN > SPAN // 2
    offset = 2 * BN if rows.is_rhs_n_major else 0
    return Lines(
        BM,
        round_up(BN, SPAN) if is_spanned else BN,
        crossing_weight(rows.lhs_pitch),
        crossing_weight(rows.rhs_pitch, offset),
    )


def block_time(block: Sequence[int], size: Sequence[int], batch: int, blocks: int, rows: Rows | None = None) -> float:
    """Cycles of a matmul of M x N x K in blocks of rows and columns, of which so many run at a time."""
    (BM, BN), (m, n, k), rows = block, size, rows or Rows()
    below = -(-m // BM)
    programs = [batch * count * -(-n // BN) for count in (below, below + below % 2)]
    # Columns that are not a multiple of 16 are stored by halves of an instruction.
    stores = BM * BN / _EPILOGUE * (1 if BN % 16 == 0 else _HALVES)
    # What threads store overlaps with nothing.
    each = BM * (_EDGES[BM] + BN / _STORED) if rows.is_result_apart else 0
    lines, threaded = lines_of(block, rows), rows.threaded_lines(block, m, n)
    times = [
        _time_waves(block, count, blocks, k, lines, bool(pairs), threaded) + max(stores, -(-count // blocks) * each)
        for pairs, count in enumerate(programs)
    ]
    found = min(times) if below > 1 and is_pairable(block, programs[0], blocks) else times[0]
    return found + rows.copied_cycles(block, m, n)


def is_pairable(block: Sequence[int], programs: int, blocks: int) -> bool:
    """Whether CTAs of a cluster can gain by what they copy for each other.

    In one wave, and of small blocks, they lose more to waiting: a fifth of 512 x 512 x 32768, a third of 352 x 1424 x
    11120.
    """
    return programs > blocks and block[0] * block[1] >= _PAIRED_BLOCK


def _time_waves(
    block: Sequence[int], programs: int, blocks: int, k: int, lines: Lines, is_paired: bool, threaded: int = 0
) -> float:
    """Cycles of all waves, but for the stores of the last; pairs have an even number of rows of blocks.

    So many lines of a step are copied by threads.
    """
    waves = -(-programs // blocks)
    is_hidden = block[0] * block[1] <= _BESIDE[block[0]] or waves <= (1 if block[0] == max(_AFTER) else _MANY)
    between = _BETWEEN if is_hidden else _AFTER[block[0]]
    counts = {blocks: waves - 1, programs - (waves - 1) * blocks: 1} if programs % blocks else {blocks: waves}
    computed = max(computed_cycles(block, waves), threaded * LINE / _THREADED_BYTES)
    steps = sum(many * step_cycles(lines, count, computed, is_paired=is_paired) for count, many in counts.items())
    return steps * k / _USUAL_K + waves * between


def computed_cycles(block: Sequence[int], waves: int) -> float:
    """Cycles that tensor cores take for a step of a block, in so many waves."""
    rate = RATES[block[0], block[1]]
    if block[1] in NARROW:
        return _NARROW_STEP  # the A operand is read from shared memory for as long
    rate = rate - _NARROWER * (256 - block[1]) if waves > _MANY else rate + _REGAINED * (1 - rate)
    return block[0] * block[1] * _USUAL_K / _MULTIPLY_ADDS / rate


def step_cycles(lines: Lines, programs: int, computed: float, *, is_paired: bool) -> float:
    """Cycles of a step of so many programs at a time that compute as many, with lines of both operands from L2.

    CTAs of a cluster halve the B operand. Where no line is crossed that was measured to save nothing.
    """
    stage = (lines.lhs + lines.rhs) * LINE
    stages = (_STAGES - CONSUMERS.get(lines.lhs, 2) * _STAGING) // stage
    share = _HALVED if stages > _FEW_STAGES else _HALVED_SHALLOW
    asked = lines.count(share if is_paired and lines.is_crossed else 1)
    limits = lines.count() / _SHARED_BYTES, programs * asked / (_L2_BYTES * (_SHALLOW if stage > _SHALLOW_BYTES else 1))
    copied = (max(limits) + _OVERLAP * min(limits)) * LINE
    crossed = _DISTURBED * copied * (1 - (lines.lhs + lines.rhs) / lines.count())
    least = _LEAST_DEEP if lines.lhs * lines.rhs <= _SMALL else _LEAST_STEP
    cycles = max(computed + crossed, copied, least)
    return cycles * _PAIRED if is_paired else cycles


def stream_cycles(lines: Lines, programs: int) -> float:
    """Cycles of a step of so many programs of few rows, which read the B operand once, from memory."""
    copied = max(
        lines.count() / _SHARED_BYTES, programs * lines.count() / _L2_BYTES, programs * lines.rhs / _MEMORY_BYTES
    )
    return copied * LINE


def fp8_time(block: Sequence[int], size: Sequence[int], batch: int, blocks: int) -> float:
    """The same of 8-bit floats, whose accumulators are waited for: nothing overlaps with the epilogue."""
    (BM, BN), (m, n, k) = block, size
    waves = -(-(batch * -(-m // BM) * -(-n // BN)) // blocks)
    return waves * (k * BM * BN / (_MULTIPLY_ADDS * _FP8_RATES[BM, BN]) + BM * BN / _EPILOGUE + _BETWEEN)


def size_of(dim: Any, typical: int) -> int:
    """A dim as a number; a symbolic one is taken to be `typical`."""
    value = dim.value if isinstance(dim, Dim) else None
    return typical if value is None else max(1, value)


def round_up(size: int, step: int) -> int:
    """The smallest multiple of a step that is no less."""
    return -(-size // step) * step
