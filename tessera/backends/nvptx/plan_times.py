"""How long candidates of a knob take on NVIDIA GPUs, where a model says so in time and not only in order.

The choice of a block (`block_model`) asks for the best one; a tuner ranks all of them, under other choices beside, and
measures those on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from tessera.backends.nvptx.block_times import (
    FP8_BLOCKS,
    LINE,
    RATES,
    Lines,
    Rows,
    block_time,
    crossing_weight,
    fp8_time,
    size_of,
    stream_cycles,
)
from tessera.backends.nvptx.matmul_blocks import THREAD_BLOCKS, matmul_time
from tessera.types.machine import Machine

CYCLE = 0.65
"""Nanoseconds of a cycle of an H200 under the load of matmuls, which `block_times` counts in."""
_COPY = 1600
"""Cycles from asking TMA for a stage to its arrival, under load: what too few stages leave to wait for."""
_LINE_CYCLES = 1.35
"""Cycles of TMA for a line of 64 bytes or less, by drawn matmuls in steps of 16 and 32 columns on an H200."""
_SHARING = (64, 144)
"""Rows and columns of blocks up to which two run on a multiprocessor, by drawn matmuls on an H200."""
_SHARED_TIME = 0.8
"""The share of the time of one by itself that such blocks take, from the same matmuls."""
_SHARED = 226 << 10
"""Bytes of a block's stages at most."""
_FEW_ROWS = 64
"""Rows up to which a matmul reads its B operand once, at the bandwidth of memory."""
_START = 3000
"""Cycles of a grid's begin and end."""
_TYPICAL = 4096
"""What a symbolic dim is taken to be, as `block_model` does."""
_THREAD_CYCLE = 0.51
"""Nanoseconds of a cycle where threads multiply: power leaves an H200 its whole clock of 1.98 GHz there."""
_DTYPES = ("bf16", "f16", "i8", "f8e4m3", "f8e5m2", "tf32")
"""What WGMMA multiplies."""

Size: TypeAlias = tuple[int, int, int]
Time: TypeAlias = Callable[[Any, Mapping[str, Any], Mapping[str, Any]], "float | None"]
"""Nanoseconds of a candidate in a context, with other choices of the same location by their knobs; None: unknown."""


def block_nanoseconds(block: Any, context: Mapping[str, Any], others: Mapping[str, Any]) -> float | None:
    """Of a contraction in such blocks on WGMMA, or of f32 by threads; None for what neither takes."""
    machine: Machine = context["machine"]
    dtype = context.get("dtype")
    name = context.get("mode") or ("bf16" if dtype is None else dtype.name)
    if name == "f32":
        return _by_threads(block, context, machine)
    if not machine.has("wgmma") or name not in _DTYPES:
        return None
    m, n, k = size = _size(context)
    batch = size_of(context.get("batch"), 1)
    is_fp8 = name.startswith("f8")
    if tuple(block[:2]) not in (FP8_BLOCKS if is_fp8 else RATES):
        return _stream_time(block, size, batch, context, machine) if m <= _FEW_ROWS else None
    if is_fp8:
        cycles = fp8_time(block[:2], size, batch, machine.blocks)
    elif m <= _FEW_ROWS:
        return _stream_time(block, size, batch, context, machine)
    else:
        cycles = block_time(block[:2], size, batch, machine.blocks, Rows.of(m, n, k, context, _bytes(context)))
    if not is_fp8 and block[0] <= _SHARING[0] and block[1] <= _SHARING[1]:
        cycles *= _SHARED_TIME
    waited = _waiting(block, size, batch, machine.blocks, int(others.get("pipeline.stages") or 0), _bytes(context))
    copied = _copying(block, size, batch, machine.blocks, _bytes(context))
    return CYCLE * (_START + max(cycles, waited, copied))


def _by_threads(block: Any, context: Mapping[str, Any], machine: Machine) -> float | None:
    """Of f32 that threads multiply and add; nobody modeled vectors."""
    if tuple(block) not in THREAD_BLOCKS:
        return None
    transposed = not context.get("is_lhs_m_major"), not context.get("is_rhs_n_major")
    batch = size_of(context.get("batch"), 1)
    cycles = matmul_time(block, _size(context), batch, machine.blocks, transposed)
    return _THREAD_CYCLE * cycles if math.isfinite(cycles) else None


def _size(context: Mapping[str, Any]) -> Size:
    m, n, k = (size_of(context.get(name), _TYPICAL) for name in ("m", "n", "k"))
    return m, n, k


def _bytes(context: Mapping[str, Any]) -> int:
    dtype = context.get("dtype")
    return 2 if dtype is None else dtype.bytes


def _waiting(block: Any, size: Size, batch: int, blocks: int, stages: int, bytes: int) -> float:
    """Cycles that steps take where copies have so many stages to arrive in; 0 stages are as many as fit."""
    BM, BN, BK = block
    fitting = max(1, _SHARED // ((BM + BN) * BK * bytes))
    taken = min(stages, fitting) if stages else fitting
    programs = batch * math.ceil(size[0] / BM) * math.ceil(size[1] / BN)
    steps = math.ceil(programs / blocks) * math.ceil(size[2] / BK)
    dots = BM * BN * BK / 2048
    # Of one stage a copy waits for the dots before it, and they for the copy.
    return steps * (_COPY + dots) / max(1, taken - 1)


def _copying(block: Any, size: Size, batch: int, blocks: int, bytes: int) -> float:
    """Cycles that TMA takes for lines of a step, where these are shorter than those that dots are timed with."""
    BM, BN, BK = block
    if BK * bytes >= LINE:
        return 0.0
    programs = batch * math.ceil(size[0] / BM) * math.ceil(size[1] / BN)
    steps = math.ceil(programs / blocks) * math.ceil(size[2] / BK)
    return steps * (BM + BN) * _LINE_CYCLES


def _stream_time(block: Any, size: Size, batch: int, context: Mapping[str, Any], machine: Machine) -> float | None:
    """Few rows: the B operand comes from memory once, in as many pieces as there are blocks."""
    if block[0] != _FEW_ROWS:
        return None
    rows = Rows.of(size[0], size[1], size[2], context, _bytes(context))
    programs = batch * math.ceil(size[1] / block[1])
    weights = crossing_weight(rows.lhs_pitch), crossing_weight(rows.rhs_pitch)
    waves = math.ceil(programs / machine.blocks)
    step = stream_cycles(Lines(size[0], block[1], *weights), min(programs, machine.blocks))
    # What a block has in flight bounds how much of memory's bandwidth few blocks can use.
    flight = min(_SHARED, 8 * (block[0] + block[1]) * block[2] * _bytes(context))
    waited = (block[0] + block[1]) * LINE / flight * _COPY
    return CYCLE * (_START + waves * size[2] * _bytes(context) / LINE * max(step, waited))


TIMES: Mapping[str, Time] = {"contraction.block": block_nanoseconds}
"""By knob."""
