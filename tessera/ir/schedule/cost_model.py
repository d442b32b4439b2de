"""What groups cost: flops, bytes and time as functions of the dims, and the model of a contraction's blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.ir.base.spec import Cost
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import Contraction, Pointwise, Reduction
from tessera.types.dim import Dim, maximum, product
from tessera.types.machine import Machine


def cost_of(body: Tape) -> Cost:
    """Operations of all records; every input read once and every output written once."""
    flops, moved = Dim.constant(0), Dim.constant(0)
    for record in body.records:
        flops = flops + _flops(body, record)
    for value in (*body.inputs, *body.outputs):
        moved = moved + body.types[value].bytes
    return Cost(flops, moved)


CLOCK = 3
"""Cycles of a nanosecond, as an order of magnitude: estimates compare plans, they do not predict a stopwatch."""

STREAM = 12
"""Bytes that one core moves to or from memory in a nanosecond."""


def nanoseconds(cost: Cost, machine: Machine) -> Dim:
    """How long one core is busy: with arithmetic at two vector operations of two flops a cycle, or with memory."""
    return maximum(cost.flops // (machine.lanes * 4 * CLOCK), cost.bytes // STREAM)


def _flops(body: Tape, record: Record) -> Dim:
    spec = spec_of(record)
    operands = [body.types[operand] for operand in record.operands]
    results = [body.types[result] for result in record.results]
    if spec.cost is not None:
        return spec.cost(operands, results, record.attributes).flops
    lower = spec.lower
    if isinstance(lower, Pointwise):
        return results[0].size * lower.flops
    if isinstance(lower, Reduction):
        return operands[0].size
    if isinstance(lower, Contraction):
        maps = lower.maps(operands, record.attributes)
        return product((*maps.batch, *maps.m, *maps.n, *maps.k)) * 2
    return Dim.constant(0)


_TYPICAL = 512
"""What a free dim is taken to be: large enough that edges do not decide."""


def contraction_block(candidates: Sequence[Any], context: Mapping[str, Any]) -> Any:
    """The block that moves the fewest bytes per useful product, among those whose operands fit the second cache.

    A block of BM x BN reads `BM + BN` numbers for every `BM * BN` products; what sticks out over the edges of the
    result is computed for nothing.
    """
    machine: Machine = context["machine"]
    if machine.has("wgmma"):
        return _matrix_block(candidates, context, machine)
    if machine.has("mma.sync"):
        return _unit_block(candidates, context, machine)
    m, n, k = (_size(context.get(name)) for name in ("m", "n", "k"))

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, BK = block
        done = _rounded(m, BM) * _rounded(n, BN) * _rounded(k, BK)
        waste = done / max(1, m * n * k)
        traffic = (BM + BN) / (BM * BN)
        resident = 4 * (BM * BK + BK * BN + BM * BN)
        return waste * (1 + 64 * traffic) * (1 if resident <= machine.l2 else resident / machine.l2)

    return min(candidates, key=cost)


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
"""How much of its peak a multiprocessor reaches on blocks of a size, measured in whole waves on an H200."""
_RATES_TWICE = {
    **dict(zip(((192, 128), (128, 256), (256, 128), (128, 128)), (1.0, 0.95, 0.94, 0.86), strict=True)),
    **dict(zip(((128, 192), (128, 176), (128, 160), (128, 144)), (0.99, 0.95, 0.93, 0.92), strict=True)),
    **dict(zip(((64, 256), (128, 64), (64, 128), (64, 64)), (0.72, 0.55, 0.58, 0.36), strict=True)),
}
"""The same of 8-bit floats, for the blocks that do not run out of registers."""
_SPAN = 64
"""Columns that are copied together where they lie along memory; of 16 and 32 no more than they are."""
_PRODUCTS = 2048
"""Multiply-adds of bf16 in a cycle of a Hopper multiprocessor."""
_EPILOGUE = 12
"""Elements that leave a multiprocessor in a cycle after its last block; before that others are multiplied beside."""
_HALVES = 1.75
"""How much longer that takes where columns are no sixteens."""
_BETWEEN = {64: 1000, 128: 1000, 192: 2000, 256: 1000}
"""Cycles from the last product of a block to the first of the next, by its rows."""
_MANY = 2
"""Waves beyond which power sets the clock, and blocks that read more for each product take more of it."""
_NARROWER = 0.005 / 64
"""What of a rate that costs for each column less than the widest block has."""
_MOVED = 24
"""Products that a multiprocessor could do while a number moves through shared memory."""
_SMALL, _USUAL, _DEEPER = 64 * 64, 64, 128
"""Elements of blocks that are small; the depth of a step, and of a step of those."""
_LONG = 1024
"""What is summed where deep steps and narrow blocks were measured to pay."""
_LARGE = 4096
"""What a free dim is taken to be on a machine that is only worth it for large ones."""


def _matrix_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves over all multiprocessors take the least time; plain multiply-adds want a square one."""
    dtype = context.get("dtype")
    name = context.get("mode") or ("bf16" if dtype is None else dtype.name)
    is_rhs_n_major = bool(context.get("is_rhs_n_major"))
    if not _takes(_NARROW, name, context):
        return next(block for block in candidates if block[:2] == (64, 64))
    if dtype is not None and not dtype.is_float:
        candidates = [block for block in candidates if block[1] % 16 == 0]
    m, n, k, batch = (_size(context.get(name), typical) for name, typical in _EXTENTS)

    if m <= 64:
        return _few_rows(candidates, batch * n, machine, is_rhs_n_major)

    # Sums of 8-bit floats are added up outside of matrix units, beside those on their way there.
    is_twice = name.startswith("f8")
    rates = _RATES_TWICE if is_twice else RATES
    # Narrow blocks are stored one element at a time, and that with care where they stick out over the last row.
    least = _SPAN if m % 64 or k < _LONG else 0
    candidates = [block for block in candidates if block[:2] in rates and block[1] >= least]

    def cost(block: tuple[int, int, int]) -> tuple[float, bool]:
        given = block[:2], (m, n, k), batch, machine.blocks
        time = _time_twice(*given) if is_twice else block_time(*given, is_rhs_n_major=is_rhs_n_major)
        # Small blocks wait for memory, and have more of it under way in deeper steps.
        is_deep = block[0] * block[1] <= _SMALL and k >= _LONG
        return time, block[2] != (_DEEPER if is_deep else _USUAL)

    return min(candidates, key=cost)


def block_time(
    block: Sequence[int],
    size: Sequence[int],
    batch: int,
    blocks: int,
    *,
    is_rhs_n_major: bool = False,
) -> float:
    """Cycles of a product of M x N x K in blocks of rows and columns, of which so many run at a time."""
    (BM, BN), (m, n, k) = block, size
    waves = -(-(batch * -(-m // BM) * -(-n // BN)) // blocks)
    rate = RATES[BM, BN] - (_NARROWER * (256 - BN) if waves > _MANY else 0)
    if is_rhs_n_major and BN > _SPAN // 2:
        # Copied in whole spans, of which the last is not used in whole.
        rate *= BN / _rounded(BN, _SPAN)
    # Columns that are no sixteens leave by halves of an instruction.
    out = BM * BN / _EPILOGUE * (1 if BN % 16 == 0 else _HALVES)
    between = _BETWEEN[BM] if waves > _MANY else _BETWEEN[128]
    return waves * (k * BM * BN / (_PRODUCTS * rate) + between) + out


def _time_twice(block: Sequence[int], size: Sequence[int], batch: int, blocks: int) -> float:
    """The same of 8-bit floats, whose sums are waited for: nothing is multiplied beside what follows them."""
    (BM, BN), (m, n, k) = block, size
    waves = -(-(batch * -(-m // BM) * -(-n // BN)) // blocks)
    return waves * (k * BM * BN / (_PRODUCTS * _RATES_TWICE[BM, BN]) + BM * BN / _EPILOGUE + _BETWEEN[128])


def _few_rows(candidates: Sequence[Any], columns: int, machine: Machine, is_rhs_n_major: bool) -> Any:
    """The right side is read at the rate of memory: long pieces of its rows, on all multiprocessors.

    So blocks are as narrow as leaves one for each; the narrowest have deeper steps, as much is then under way. Columns
    that lie along memory are read in pieces of 32 at least.
    """
    narrow = ((64, 16, 256), (64, 24, 256), (64, 32, 128), (64, 40, 128))
    if is_rhs_n_major:
        narrow = ((64, 32, 256 if 2 * -(-columns // 32) <= machine.blocks else 128),)
    able = [block for block in narrow if -(-columns // block[1]) <= machine.blocks and block in candidates]
    wanted = able[0] if able else (64, 64, 128)
    return wanted if wanted in candidates else min(candidates, key=lambda block: (block[0] != 64, abs(block[1] - 64)))


def _unit_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves move the least through shared memory; plain multiply-adds want a square one."""
    dtype = context.get("dtype")
    name = "bf16" if dtype is None else context.get("mode") or dtype.name
    if not _takes(_BY_WARPS, name, context):
        return next(block for block in candidates if block[:2] == (64, 64))
    if machine.has("tcgen05"):
        candidates = [block for block in candidates if block[0] == 128]
    m, n, _, batch = (_size(context.get(name), typical) for name, typical in _EXTENTS)

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, _ = block
        waves = -(-(batch * -(-m // BM) * -(-n // BN)) // machine.blocks)
        return waves * (BM * BN + _MOVED * (BM + BN))

    return min(candidates, key=cost)


def _takes(names: Sequence[str], name: str, context: Mapping[str, Any]) -> bool:
    """Whether matrix units for dtypes of such names take a product; its sides may be read through windows of none."""
    is_turned = bool(context.get("is_rhs_n_major") or context.get("is_lhs_m_major"))
    return name in names and not context.get("is_windowed") and (name in _TURNED or not is_turned)


_NARROW = ("bf16", "f16", "i8", "f8e4m3", "f8e5m2", "tf32")
"""What matrix units multiply."""
_BY_WARPS = ("bf16", "f16", "i8", "tf32")
"""What those of single warps do."""
_TURNED = ("bf16", "f16")
"""What they multiply as it lies; sides of all others lie along what is summed."""
_EXTENTS = (("m", _LARGE), ("n", _LARGE), ("k", _LARGE), ("batch", 1))


def _size(dim: Any, typical: int = _TYPICAL) -> int:
    value = dim.value if isinstance(dim, Dim) else None
    return typical if value is None else max(1, value)


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
