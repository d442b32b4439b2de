"""The static models behind the default choices: what a tile of a size would cost, from dims that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.ir.base.choice import Model
from tessera.types.dim import Dim
from tessera.types.machine import Machine

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


_RATES = {
    **dict(zip(((128, 16 * at) for at in range(16, 10, -1)), (1.0, 0.99, 0.96, 0.92, 0.98, 0.92), strict=True)),
    **dict(zip(((128, 16 * at) for at in range(10, 3, -1)), (0.93, 0.92, 0.9, 0.78, 0.72, 0.66, 0.62), strict=True)),
    **dict(zip(((128, 200), (128, 216), (192, 144)), (0.955, 0.955, 0.96), strict=True)),
    **dict(zip(((256, 128), (192, 192), (192, 128)), (0.97, 0.98, 0.95), strict=True)),
    **dict(zip(((64, 256), (64, 128), (64, 64)), (0.8, 0.66, 0.42), strict=True)),
}
"""How much of its peak a multiprocessor reaches on blocks of a size, measured on an H200."""
_RATES_TWICE = {
    **dict(zip(((192, 128), (128, 256), (256, 128), (128, 128)), (1.0, 0.95, 0.94, 0.86), strict=True)),
    **dict(zip(((128, 192), (128, 176), (128, 160), (128, 144)), (0.99, 0.95, 0.93, 0.92), strict=True)),
    **dict(zip(((64, 256), (128, 64), (64, 128), (64, 64)), (0.72, 0.55, 0.58, 0.36), strict=True)),
}
"""The same of 8-bit floats, for the blocks that do not run out of registers."""
_SPAN = 64
"""Columns that are copied together where they lie along memory."""
_PRODUCTS = 2048
"""Multiply-adds of bf16 in a cycle of a Hopper multiprocessor."""
_EPILOGUE = 12
"""Elements that leave a multiprocessor in a cycle while its matrix units wait."""
_MOVED = 24
"""Products that a multiprocessor could do while a number moves through shared memory."""
_LARGE = 4096
"""What a free dim is taken to be on a machine that is only worth it for large ones."""


def _matrix_block(candidates: Sequence[Any], context: Mapping[str, Any], machine: Machine) -> Any:
    """The block whose waves over all multiprocessors take the least time; plain multiply-adds want a square one."""
    dtype = context.get("dtype")
    name = context.get("mode") or ("bf16" if dtype is None else dtype.name)
    is_across = bool(context.get("is_across"))
    if not _takes(_NARROW, name, context):
        return next(block for block in candidates if block[:2] == (64, 64))
    # Sums of 8-bit floats are added up outside of matrix units, beside those on their way there.
    is_twice = name.startswith("f8")
    if is_twice:
        candidates = [block for block in candidates if block[:2] in _RATES_TWICE]
    if dtype is not None and not dtype.is_float:
        candidates = [block for block in candidates if block[1] % 16 == 0]
    m, n, k, batch = (_size(context.get(name), typical) for name, typical in _EXTENTS)

    if m <= 64:
        return _few_rows(candidates, batch * n, machine, is_across)

    candidates = [block for block in candidates if block[:2] in _RATES]

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, _ = block
        waves = -(-(batch * -(-m // BM) * -(-n // BN)) // machine.blocks)
        rate = (_RATES_TWICE if is_twice else _RATES)[BM, BN]
        if is_across:
            # Copied in whole spans, of which the last is not used in whole.
            rate *= BN / _rounded(BN, _SPAN)
        return waves * (k * BM * BN / (_PRODUCTS * rate) + BM * BN / _EPILOGUE + 1000)

    return min(candidates, key=cost)


def _few_rows(candidates: Sequence[Any], columns: int, machine: Machine, is_across: bool) -> Any:
    """The right side is read at the rate of memory: long pieces of its rows, on all multiprocessors."""
    is_half = 2 * -(-columns // 64) <= machine.blocks and not is_across
    wanted = (64, 32, 128) if is_half else (64, 64, 128)
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
    is_turned = bool(context.get("is_across") or context.get("is_left_across"))
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


MODELS: Mapping[str, tuple[str, Model]] = {"contraction.block": ("static model", contraction_block)}
"""By knob, each with the name that is written down as the source of a choice."""
