"""The blocks of a contraction on NVIDIA GPUs: candidates for each matrix instruction, and which of them is chosen.

On Hopper it is the one that takes the least time by a model of waves, of what L2 hands out and of epilogues
(`block_times`). With few rows the time is that of reading the B operand, and blocks are as narrow as leaves one for
each multiprocessor. What the choices reach is recorded in `benchmarks/results/gpu-products.json` and
`gpu-choices.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.backends.nvptx.block_times import (
    CONSUMERS,
    FP8_BLOCKS,
    LINE,
    NARROW,
    RATES,
    SPAN,
    Lines,
    Rows,
    block_time,
    crossing_weight,
    fp8_time,
    size_of,
    stream_cycles,
)
from tessera.backends.nvptx.matmul_blocks import THREAD_BLOCKS, fastest_block
from tessera.types.machine import Machine

if TYPE_CHECKING:
    from tessera.ir.base.compilation import Model

WGMMA_BLOCKS = (
    *((128, 256, 64), (128, 128, 64), (256, 128, 64), (128, 192, 64), (128, 64, 64)),
    *((64, 256, 64), (64, 128, 64), (64, 64, 64), (192, 192, 64), (192, 128, 64)),
    *((128, 64, 128), (64, 64, 128), (64, 32, 128), (64, 128, 128), (64, 64, 256)),
    *((128, width, 64) for width in (80, 96, 112, 144, 160, 176, 208, 224, 240, 200, 216)),
    *((128, width, 64) for width in (136, 152, 168, 184, 232)),
    *((64, 16, 256), (64, 24, 256), (64, 32, 256), (64, 40, 128)),
    *((64, width, 64) for width in (80, 96, 112, 144, 160, 176, 192, 208, 224, 240)),
    *((192, width, 64) for width in (96, 112, 144, 160, 176, 200)),
    *((256, width, 64) for width in (96, 112, 144, 160, 176, 192)),
    *((128, width, 64) for width in NARROW),
)
"""Candidates (BM, BN, BK) for WGMMA, whose warpgroups have 64 rows each."""
PLAIN_BLOCKS = (*THREAD_BLOCKS, (64, 1, 64), (32, 1, 64), (1, 64, 64), (1, 32, 64))
"""Candidates for what threads multiply by themselves: matrices, and matrices by vectors, the best of those first."""
MMA_SYNC_BLOCKS = ((128, 128, 64), (256, 128, 64), (128, 64, 64), (64, 128, 64), (64, 64, 64))
"""Candidates for `mma.sync`: each warp has 16 or 32 rows, and all columns."""
TCGEN05_BLOCKS = ((128, 256, 64), (128, 128, 64), (128, 64, 64), (64, 64, 64))
"""Candidates for accumulators in tensor memory, of 128 rows; and one for dots that are computed elsewhere."""

_FEW_OTHERS = 3
"""Other ops that large blocks of threads are compiled with: their text has each as often as a thread has elements."""
_JOINED = {1: 192, 2: 192, 3: 120}
"""Registers of a thread for accumulators and partial results, by the number of warpgroups."""
_MOVED = 24
"""Multiply-adds that a multiprocessor could do while an element moves through shared memory."""
_SMALL, _USUAL_K, _DEEP_K = 64 * 64, 64, 128
"""Elements of a block that is small; K of a step, and of a step of a small one."""
_COMPUTED = {64: 64 * 256, 128: 128 * 256, 192: 192 * 192, 256: 256 * 128}
"""Elements of a block, by its rows, that leave a thread registers to compute something of each."""
_WIDE = 4
"""Bytes of an element of a partial result."""
_LONG = 1024
"""K from which on deep steps and narrow blocks were measured to pay."""
_TYPICAL = 4096
"""What a symbolic dim is taken to be: a GPU is worth it for large ones."""
_EXTENTS = (("m", _TYPICAL), ("n", _TYPICAL), ("k", _TYPICAL), ("batch", 1))

_WGMMA_DTYPES = ("bf16", "f16", "i8", "u8", "f8e4m3", "f8e5m2", "tf32")
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
    if not _is_taken(_WGMMA_DTYPES, name, context):
        return _plain_block(candidates, context, machine)
    if dtype is not None and not dtype.is_float:
        candidates = [block for block in candidates if block[1] % 16 == 0]
    m, n, k, batch = (size_of(context.get(name), typical) for name, typical in _EXTENTS)

    if context.get("is_copied") and context.get("is_rhs_n_major"):
        # Lines of channels of one element of a window divide a block.
        candidates = [block for block in candidates if block[1] % SPAN == 0]
    if segments := context.get("segments"):
        candidates = [block for block in candidates if block[2] == _USUAL_K and _holds(block, segments)]
    elif m <= 64 and not context.get("is_copied"):
        return _few_rows(candidates, context, (m, n, k), batch, machine)

    # Accumulators of 8-bit floats are promoted outside of tensor cores, and take registers beside those in flight.
    is_fp8 = name.startswith("f8")
    size = 2 if dtype is None else dtype.bytes
    rows = Rows.of(m, n, k, context, size)
    rates = FP8_BLOCKS if is_fp8 else RATES
    # Narrow blocks are stored one element at a time, and guarded where they reach over the last row.
    least = SPAN if not segments and (m % 64 or k < _LONG) else 0
    narrow = () if segments else NARROW
    if not segments and context.get("stored_bytes") == _WIDE and not context.get("followers"):
        # Rows of partial results are stored by TMA if they have a line of it.
        least, narrow = min(least, LINE // _WIDE), [width for width in NARROW if width != LINE // _WIDE]
    if context.get("followers"):
        # What is computed of accumulators takes registers, of which the largest blocks leave none.
        candidates = [one for one in candidates if one[0] * one[1] <= _COMPUTED.get(one[0], 0)]
    candidates = [one for one in candidates if one[:2] in rates and one[1] >= least]
    candidates = [one for one in candidates if one[0] != 128 or one[1] not in narrow]

    def cost(block: tuple[int, int, int]) -> tuple[float, bool]:
        # Times are those of elements of two bytes: a step has as many bytes of K, and takes as long, whatever they are.
        work = block[:2], (m, n, k if is_fp8 else -(-k * size // 2)), batch, machine.blocks
        time = fp8_time(*work) if is_fp8 else block_time(*work, rows)
        # Small blocks wait for memory, and have more of it in flight in deeper steps.
        is_deep = block[0] * block[1] <= _SMALL and k >= _LONG
        return time, block[2] != (_DEEP_K if is_deep else _USUAL_K)

    return min(candidates, key=cost)


def _holds(block: Sequence[int], segments: int) -> bool:
    """Whether registers hold accumulators of a block, and partial results for each level of a tree over segments."""
    consumers = CONSUMERS.get(block[0], 0)
    kept = 1 + (segments - 1).bit_length()
    return consumers > 0 and kept * block[0] * block[1] <= _JOINED[consumers] * consumers * 128


def _few_rows(
    candidates: Sequence[Any], context: Mapping[str, Any], size: tuple[int, int, int], batch: int, machine: Machine
) -> Any:
    """The B operand is read at the bandwidth of memory: long pieces of its rows, on all multiprocessors.

    So blocks are as narrow as leaves one for each; the narrowest have deeper steps, as much is then in flight. They are
    wider where rows are so many that reading those for every block takes longer than that. An operand that is
    contiguous in N is read in pieces of 32 columns at least.
    """
    narrow, columns = ((64, 16, 256), (64, 24, 256), (64, 32, 128), (64, 40, 128)), batch * size[1]
    if context.get("is_rhs_n_major"):
        narrow = ((64, 32, 256 if 2 * -(-columns // 32) <= machine.blocks else 128),)
    able = [block for block in narrow if -(-columns // block[1]) <= machine.blocks and block in candidates]
    dtype = context.get("dtype")
    rows = Rows.of(*size, context, 2 if dtype is None else dtype.bytes)

    def cost(block: tuple[int, int, int]) -> float:
        weights = crossing_weight(rows.lhs_pitch), crossing_weight(rows.rhs_pitch)
        return stream_cycles(Lines(size[0], block[1], *weights), batch * -(-size[1] // block[1]))

    wanted = min(able, key=cost) if able else (64, 64, 128)
    return wanted if wanted in candidates else min(candidates, key=lambda block: (block[0] != 64, abs(block[1] - 64)))


def _mma_sync_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves move the least through shared memory; multiply-adds want a square one."""
    dtype = context.get("dtype")
    name = "bf16" if dtype is None else context.get("mode") or dtype.name
    if not _is_taken(_MMA_SYNC_DTYPES, name, context):
        return _plain_block(candidates, context, machine)
    if machine.has("tcgen05"):
        candidates = [block for block in candidates if block[0] == 128]
    m, n, _, batch = (size_of(context.get(name), typical) for name, typical in _EXTENTS)

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, _ = block
        waves = -(-(batch * -(-m // BM) * -(-n // BN)) // machine.blocks)
        return waves * (BM * BN + _MOVED * (BM + BN))

    return min(candidates, key=cost)


def _plain_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose multiply-adds by threads take the least time; one of a single row or column for a vector."""
    size = tuple(size_of(context.get(name), typical) for name, typical in _EXTENTS)
    (m, n, _, batch), dtype = size, context.get("dtype")
    small = next(block for block in candidates if block[:2] == (64, 64))
    if dtype is None or dtype.name != "f32" or _accumulates_doubles(context):
        return small
    able = [block for block in candidates if block in PLAIN_BLOCKS and min(block[:2]) > 1] or [small]
    vectors = [block for block in candidates if (m, n)[block[0] != 1] == 1 == min(block[:2])]
    # Stores reach an address along each axis of a tile, so a result has an axis of one element, not none.
    if vectors and context.get("is_matrix", True):
        return next(
            (block for block in vectors if 4 * batch * max(m, n) >= 3 * max(block[:2]) * machine.blocks), vectors[-1]
        )
    most = 64 * 64 if context.get("others", 0) > _FEW_OTHERS else 128 * 128
    able = [block for block in able if block[0] * block[1] <= most]
    transposed = not context.get("is_lhs_m_major"), not context.get("is_rhs_n_major")
    return fastest_block(able, size[:3], batch, machine.blocks, transposed)


def _accumulates_doubles(context: Mapping[str, Any]) -> bool:
    found = context.get("accumulator")
    return found is not None and found.name == "f64"


def _is_taken(names: Sequence[str], name: str, context: Mapping[str, Any]) -> bool:
    """Whether an instruction for dtypes of such names takes a contraction."""
    is_transposed = bool(context.get("is_rhs_n_major") or context.get("is_lhs_m_major"))
    if _accumulates_doubles(context):
        return False
    return name in names and (name in _TRANSPOSED or not is_transposed)


MODELS: Mapping[str, tuple[str, Model]] = {"contraction.block": ("static model", contraction_block)}
"""By knob, each with the name that is written down as the source of a choice."""
