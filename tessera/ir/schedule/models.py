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
    m, n, k = (_size(context.get(name)) for name in ("m", "n", "k"))

    def cost(block: tuple[int, int, int]) -> float:
        BM, BN, BK = block
        done = _rounded(m, BM) * _rounded(n, BN) * _rounded(k, BK)
        waste = done / max(1, m * n * k)
        traffic = (BM + BN) / (BM * BN)
        resident = 4 * (BM * BK + BK * BN + BM * BN)
        return waste * (1 + 64 * traffic) * (1 if resident <= machine.l2 else resident / machine.l2)

    return min(candidates, key=cost)


def _size(dim: Any) -> int:
    value = dim.value if isinstance(dim, Dim) else None
    return _TYPICAL if value is None else max(1, value)


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


MODELS: Mapping[str, tuple[str, Model]] = {"contraction.block": ("static model", contraction_block)}
"""By knob, each with the name that is written down as the source of a choice."""
