"""The blocks of a contraction on NVIDIA GPUs: candidates for each matrix instruction, and the model that chooses.

The idea of the model is waves: a grid of blocks runs on all multiprocessors at once, the last wave partly idle, so time
is the number of waves times the time of one block. A block of BM x BN takes K * BM * BN multiply-adds at the rate that
a multiprocessor reaches with such blocks (`RATES`, measured: small ones wait for shared memory), then cycles until the
next block's first MMA, and the very last wave also the cycles of its epilogue, which no other block hides. Nor is a
wave faster than L2 hands out its operands, twice as slowly where rows begin within sectors of memory; CTAs of a
cluster, which copy the B operand for each other, ask for half of it. With few rows the time is that of reading the B
operand, and blocks are as narrow as leaves one for each multiprocessor.

All constants were measured on an H200 with matmuls in whole waves; what the choices reach is recorded in
`benchmarks/results/gpu-products.json` and `gpu-choices.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.nvptx.matmul_blocks import matmul_time
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.ir.base.compilation import Model

WGMMA_BLOCKS = (
    *((128, 256, 64), (128, 128, 64), (256, 128, 64), (128, 192, 64), (128, 64, 64)),
    *((64, 256, 64), (64, 128, 64), (64, 64, 64), (192, 192, 64), (192, 128, 64)),
    *((128, 64, 128), (64, 64, 128), (64, 32, 128), (64, 128, 128), (64, 64, 256)),
    *((128, width, 64) for width in (80, 96, 112, 144, 160, 176, 208, 224, 240, 200, 216)),
    *((192, 144, 64), (192, 160, 64)),
    *((128, width, 64) for width in (136, 152, 168, 184, 232)),
    *((64, 16, 256), (64, 24, 256), (64, 32, 256), (64, 40, 128)),
)
"""Candidates (BM, BN, BK) for WGMMA, whose warpgroups have 64 rows each."""
PLAIN_BLOCKS = (
    *((128, 128, 16), (128, 64, 16), (64, 128, 16), (64, 64, 16), (48, 192, 16), (48, 96, 16), (48, 64, 16)),
    *((48, 48, 16), (32, 128, 16), (128, 32, 16), (64, 32, 32), (32, 64, 32), (48, 32, 32), (32, 48, 32)),
    *((32, 32, 32), (64, 16, 32), (16, 64, 32), (32, 16, 64), (16, 32, 64), (16, 16, 64), (32, 8, 64), (8, 32, 64)),
    *((64, 1, 64), (32, 1, 64), (1, 64, 64), (1, 32, 64)),
)
"""Candidates for what threads multiply by themselves: large matrices, and matrices by vectors, the best first."""
MMA_SYNC_BLOCKS = ((128, 128, 64), (256, 128, 64), (128, 64, 64), (64, 128, 64), (64, 64, 64))
"""Candidates for `mma.sync`: each warp has 16 or 32 rows, and all columns."""
TCGEN05_BLOCKS = ((128, 256, 64), (128, 128, 64), (128, 64, 64), (64, 64, 64))
"""Candidates for accumulators in tensor memory, of 128 rows; and one for dots that are computed elsewhere."""

_WIDTHS = {
    128: (
        *((64, 0.52), (72, 0.56), (80, 0.61), (88, 0.67), (96, 0.734), (104, 0.77), (112, 0.824), (120, 0.876)),
        *((128, 0.906), (136, 0.908), (144, 0.922), (152, 0.922), (160, 0.937), (168, 0.933), (176, 0.947)),
        *((184, 0.945), (192, 0.968), (200, 0.966), (208, 0.976), (216, 0.973), (224, 0.979), (232, 0.974)),
        *((240, 0.984), (248, 0.977), (256, 1.0)),
    ),
    192: ((96, 0.839), (112, 0.896), (128, 0.939), (144, 0.955), (160, 0.965), (176, 0.959), (192, 0.988)),
    256: ((96, 0.874), (104, 0.898), (112, 0.916), (120, 0.921), (128, 0.957)),
    64: ((32, 0.28), (64, 0.42), (128, 0.66), (256, 0.8)),
}
RATES = {(rows, columns): rate for rows, widths in _WIDTHS.items() for columns, rate in widths}
"""The part of its peak that a multiprocessor reaches on blocks of rows and columns."""
_FP8_RATES = {
    **dict(zip(((192, 128), (128, 256), (256, 128), (128, 128)), (1.0, 0.95, 0.94, 0.86), strict=True)),
    **dict(zip(((128, 192), (128, 176), (128, 160), (128, 144)), (0.99, 0.95, 0.93, 0.92), strict=True)),
    **dict(zip(((64, 256), (128, 64), (64, 128), (64, 64)), (0.72, 0.55, 0.58, 0.36), strict=True)),
}
"""The same of 8-bit floats, for the blocks that do not spill registers."""
_FEW_OTHERS = 3
"""Other ops that large blocks of threads are compiled with: their text has each as often as a thread has elements."""
_SPAN = 64
"""Columns of one copy of a B operand that is contiguous in N; blocks of 16 and 32 columns copy just those."""
SECTOR = 32
"""Bytes of memory that are read together."""
_LINE = 128
"""Bytes of a line of an operand in shared memory: what a step has along K, or a span across it."""
_L2_BYTES = 7000
"""Bytes that TMA gets from L2 in a cycle for all multiprocessors together; half as many where rows begin within
sectors (3000 x 3000 x 3000 and 768 x 3072 x 8192 in ten blocks each, most within 5 %)."""
_SHARED_BYTES = 55
"""Bytes that TMA writes to the shared memory of one multiprocessor in a cycle, whoever asked for them."""
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
_BETWEEN = {64: 1000, 128: 1000, 192: 2000, 256: 1000}
"""Cycles from the last MMA of a block to the first of the next, by the rows of a block."""
_CONSUMERS = {64: 1, 128: 2, 192: 3, 256: 2}
"""Warpgroups of a block, by its rows."""
_JOINED = {1: 192, 2: 192, 3: 120}
"""Registers of a thread for accumulators and partial results, by the number of warpgroups."""
_MANY = 2
"""Waves from which on power limits the clock, and blocks that read more for each multiply-add take more of it."""
_NARROWER = 0.005 / 64
"""What that costs of a rate for each column less than the widest block has."""
_MOVED = 24
"""Multiply-adds that a multiprocessor could do while an element moves through shared memory."""
_SMALL, _USUAL_K, _DEEP_K = 64 * 64, 64, 128
"""Elements of a block that is small; K of a step, and of a step of a small one."""
_LONG = 1024
"""K from which on deep steps and narrow blocks were measured to pay."""
_TYPICAL = 4096
"""What a symbolic dim is taken to be: a GPU is worth it for large ones."""
_EXTENTS = (("m", _TYPICAL), ("n", _TYPICAL), ("k", _TYPICAL), ("batch", 1))

_WGMMA_DTYPES = ("bf16", "f16", "i8", "f8e4m3", "f8e5m2", "tf32")
"""What WGMMA multiplies."""
_MMA_SYNC_DTYPES = ("bf16", "f16", "i8", "tf32")
_TRANSPOSED = ("bf16", "f16")
"""Dtypes whose operands may be contiguous in M or N; all others must be contiguous in K."""


def contraction_block(candidates: Sequence[Any], context: Mapping[str, Any]) -> Any:
    """The block that takes the least time by the model of the machine's matrix instruction."""
    machine: Machine = context["machine"]
    return (_wgmma_block if machine.has("wgmma") else _mma_sync_block)(candidates, context, machine)


def _wgmma_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves take the least time; multiply-adds without tensor cores want a square one."""
    dtype = context.get("dtype")
    name = context.get("mode") or ("bf16" if dtype is None else dtype.name)
    is_rhs_n_major = bool(context.get("is_rhs_n_major"))
    if not _is_taken(_WGMMA_DTYPES, name, context):
        return _plain_block(candidates, context, machine)
    if dtype is not None and not dtype.is_float:
        candidates = [block for block in candidates if block[1] % 16 == 0]
    m, n, k, batch = (_size(context.get(name), typical) for name, typical in _EXTENTS)

    if segments := context.get("segments"):
        candidates = [block for block in candidates if block[2] == _USUAL_K and _holds(block, segments)]
    elif m <= 64:
        return _few_rows(candidates, batch * n, machine, is_rhs_n_major)

    # Accumulators of 8-bit floats are promoted outside of tensor cores, and take registers beside those in flight.
    is_fp8 = name.startswith("f8")
    rows = Rows.of(m, n, k, context, 2 if dtype is None else dtype.bytes)
    rates = _FP8_RATES if is_fp8 else RATES
    # Narrow blocks are stored one element at a time, and guarded where they reach over the last row.
    least = _SPAN if m % 64 or k < _LONG else 0
    candidates = [block for block in candidates if block[:2] in rates and block[1] >= least]

    def cost(block: tuple[int, int, int]) -> tuple[float, bool]:
        work = block[:2], (m, n, k), batch, machine.blocks
        time = _fp8_time(*work) if is_fp8 else block_time(*work, rows)
        # Small blocks wait for memory, and have more of it in flight in deeper steps.
        is_deep = block[0] * block[1] <= _SMALL and k >= _LONG
        return time, block[2] != (_DEEP_K if is_deep else _USUAL_K)

    return min(candidates, key=cost)


def _holds(block: Sequence[int], segments: int) -> bool:
    """Whether registers hold accumulators of a block, and partial results for each level of a tree over segments."""
    consumers = _CONSUMERS.get(block[0], 0)
    kept = 1 + (segments - 1).bit_length()
    return consumers > 0 and kept * block[0] * block[1] <= _JOINED[consumers] * consumers * 128


@frozen
class Rows:
    """What operands of a contraction are in memory, as far as the time to copy them goes.

    An operand is `apart` where its rows begin within sectors of memory, and a result where TMA does not store its rows.
    """

    is_rhs_n_major: bool = False
    is_lhs_apart: bool = False
    is_rhs_apart: bool = False
    is_result_apart: bool = False

    @staticmethod
    def of(m: int, n: int, k: int, context: Mapping[str, Any], bytes: int) -> Rows:
        """Those of a contraction of static extents; rows that TMA does not take are copied to whole sectors before."""
        is_n_major = bool(context.get("is_rhs_n_major"))
        widths = (m if context.get("is_lhs_m_major") else k, n if is_n_major else k)
        is_lhs_apart, is_rhs_apart = (width * bytes % SECTOR == SECTOR // 2 for width in widths)
        return Rows(is_n_major, is_lhs_apart, is_rhs_apart, n * bytes % (SECTOR // 2) != 0)


def block_time(block: Sequence[int], size: Sequence[int], batch: int, blocks: int, rows: Rows | None = None) -> float:
    """Cycles of a matmul of M x N x K in blocks of rows and columns, of which so many run at a time."""
    (BM, BN), (m, n, k), rows = block, size, rows or Rows()
    below = -(-m // BM)
    programs = [batch * count * -(-n // BN) for count in (below, below + below % 2)]
    # Columns that are not a multiple of 16 are stored by halves of an instruction.
    stores = BM * BN / _EPILOGUE * (1 if BN % 16 == 0 else _HALVES)
    # What threads store overlaps with nothing.
    each = BM * (_EDGES[BM] + BN / _STORED) if rows.is_result_apart else 0
    times = [
        _time_waves(block, count, blocks, k, rows, bool(pairs)) + max(stores, -(-count // blocks) * each)
        for pairs, count in enumerate(programs)
    ]
    return min(times[: 1 + (below > 1)])


def _time_waves(block: Sequence[int], programs: int, blocks: int, k: int, rows: Rows, is_paired: bool) -> float:
    """Cycles of all waves, but for the stores of the last; pairs have an even number of rows of blocks."""
    BM, BN = block
    waves = -(-programs // blocks)
    rate = RATES[BM, BN] - (_NARROWER * (256 - BN) if waves > _MANY else 0)
    # Across K columns are copied in whole spans, of which the last is not used in whole.
    lines = _round_up(BN, _SPAN) if rows.is_rhs_n_major and BN > _SPAN // 2 else BN
    # Those of every other block begin within a sector, if a block does not end with one.
    is_rhs_apart = rows.is_rhs_apart or (rows.is_rhs_n_major and 2 * BN % SECTOR != 0)
    each = (BM << rows.is_lhs_apart, lines << is_rhs_apart)
    computed = max(mma_cycles(BM, BN) / rate, (BM + lines) * _LINE / _SHARED_BYTES)
    between = _BETWEEN[BM] if waves > _MANY else _BETWEEN[128]
    counts = {blocks: waves - 1, programs - (waves - 1) * blocks: 1} if programs % blocks else {blocks: waves}
    steps = sum(many * step_cycles(each, count, computed, is_paired=is_paired) for count, many in counts.items())
    return steps * k / _USUAL_K + waves * between


def mma_cycles(rows: int, columns: int) -> float:
    """Cycles that a step of a block takes tensor cores at their peak."""
    return rows * columns * _USUAL_K / _MULTIPLY_ADDS


def step_cycles(lines: Sequence[int], programs: int, computed: float, *, is_paired: bool) -> float:
    """Cycles of a step of so many programs at a time that compute as many, with lines of both operands from L2.

    Lines of rows that begin within sectors count twice. CTAs of a cluster ask for half of the B operand.
    """
    asked = lines[0] + lines[1] * (0.5 if is_paired else 1)
    cycles = max(computed, programs * asked * _LINE / _L2_BYTES)
    return cycles * _PAIRED if is_paired else cycles


def _fp8_time(block: Sequence[int], size: Sequence[int], batch: int, blocks: int) -> float:
    """The same of 8-bit floats, whose accumulators are waited for: nothing overlaps with the epilogue."""
    (BM, BN), (m, n, k) = block, size
    waves = -(-(batch * -(-m // BM) * -(-n // BN)) // blocks)
    return waves * (k * BM * BN / (_MULTIPLY_ADDS * _FP8_RATES[BM, BN]) + BM * BN / _EPILOGUE + _BETWEEN[128])


def _few_rows(candidates: Sequence[Any], columns: int, machine: Machine, is_rhs_n_major: bool) -> Any:
    """The B operand is read at the bandwidth of memory: long pieces of its rows, on all multiprocessors.

    So blocks are as narrow as leaves one for each; the narrowest have deeper steps, as much is then in flight. An
    operand that is contiguous in N is read in pieces of 32 columns at least.
    """
    narrow = ((64, 16, 256), (64, 24, 256), (64, 32, 128), (64, 40, 128))
    if is_rhs_n_major:
        narrow = ((64, 32, 256 if 2 * -(-columns // 32) <= machine.blocks else 128),)
    able = [block for block in narrow if -(-columns // block[1]) <= machine.blocks and block in candidates]
    wanted = able[0] if able else (64, 64, 128)
    return wanted if wanted in candidates else min(candidates, key=lambda block: (block[0] != 64, abs(block[1] - 64)))


def _mma_sync_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves move the least through shared memory; multiply-adds want a square one."""
    dtype = context.get("dtype")
    name = "bf16" if dtype is None else context.get("mode") or dtype.name
    if not _is_taken(_MMA_SYNC_DTYPES, name, context):
        return _plain_block(candidates, context, machine)
    if machine.has("tcgen05"):
        candidates = [block for block in candidates if block[0] == 128]
    m, n, _, batch = (_size(context.get(name), typical) for name, typical in _EXTENTS)

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, _ = block
        waves = -(-(batch * -(-m // BM) * -(-n // BN)) // machine.blocks)
        return waves * (BM * BN + _MOVED * (BM + BN))

    return min(candidates, key=cost)


def _plain_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose multiply-adds by threads take the least time; one of a single row or column for a vector."""
    size = tuple(_size(context.get(name), typical) for name, typical in _EXTENTS)
    (m, n, _, batch), dtype = size, context.get("dtype")
    small = next(block for block in candidates if block[:2] == (64, 64))
    if dtype is None or dtype.name != "f32":
        return small
    able = [block for block in candidates if block in PLAIN_BLOCKS and min(block[:2]) > 1] or [small]
    vectors = [block for block in candidates if (m, n)[block[0] != 1] == 1 == min(block[:2])]
    # Stores reach an address along each axis of a tile, so a result has an axis of one element, not none.
    is_windowed = bool(context.get("is_windowed"))
    if vectors and context.get("is_matrix", True) and not is_windowed:
        return next(
            (block for block in vectors if 4 * batch * max(m, n) >= 3 * max(block[:2]) * machine.blocks), vectors[-1]
        )
    most = 64 * 64 if context.get("others", 0) > _FEW_OTHERS or is_windowed else 128 * 128
    able = [block for block in able if block[0] * block[1] <= most]
    transposed = not context.get("is_lhs_m_major"), not context.get("is_rhs_n_major")
    return min(able, key=lambda block: matmul_time(block, size[:3], batch, machine.blocks, transposed))


def _is_taken(names: Sequence[str], name: str, context: Mapping[str, Any]) -> bool:
    """Whether an instruction for dtypes of such names takes a contraction; none takes operands read through windows."""
    is_transposed = bool(context.get("is_rhs_n_major") or context.get("is_lhs_m_major"))
    return name in names and not context.get("is_windowed") and (name in _TRANSPOSED or not is_transposed)


def _size(dim: Any, typical: int) -> int:
    value = dim.value if isinstance(dim, Dim) else None
    return typical if value is None else max(1, value)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


MODELS: Mapping[str, tuple[str, Model]] = {"contraction.block": ("static model", contraction_block)}
"""By knob, each with the name that is written down as the source of a choice."""
