"""Roundings that a cast does by itself: kernels are left with the cast, which matrix units can end a product with."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import tile_type
from tessera.types.dtype import bf16, f16, f32
from tessera.types.policy import Policy

_FORMATS = {"bf16": bf16, "f16": f16}


def drop_plain_roundings(kernel: SpecOp, policies: Iterable[Policy]) -> None:
    """Cast what was rounded instead of what it was rounded to, wherever the cast alone gives the same bits.

    Before: `%1 = ttile.round %0 {format = "bf16"}`, `%2 = ttile.cast %1` to bf16. After: `%2 = ttile.cast %0`. Where
    every policy asks for another rounding, a plain cast is what its check looks for, and what is there stays.
    """
    listed = list(policies)
    if listed and all(policy.rounds_otherwise for policy in listed):
        return
    for op in list(kernel.walk()):
        if isinstance(op, SpecOp) and op.name == "ttile.round" and _is_plain(op):
            for user in [use.operation for use in op.results[0].uses]:
                if _casts_to(user, op.value("format")):
                    user.operands[0] = op.operands[0]
            if not list(op.results[0].uses):
                op.detach()
                op.erase()


def _is_plain(op: SpecOp) -> bool:
    says = (op.value("rounding"), op.value("saturation"), op.value("denormals"))
    return says == ("nearest_even", "", "keep") and op.value("format") in _FORMATS and len(op.operands) == 1


def _casts_to(user: Operation, format: str) -> bool:
    if not isinstance(user, SpecOp) or user.name != "ttile.cast":
        return False
    source, target = tile_type(user.operands[0]).dtype, tile_type(user.results[0]).dtype
    return source is f32 and target is _FORMATS[format]
