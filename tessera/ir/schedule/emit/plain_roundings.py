"""Roundings that a cast does by itself, or after a clamp: kernels are left with what matrix units end products with."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import tile_type
from tessera.types.dtype import FORMATS, bf16, f16, f32
from tessera.types.policy import Policy

_FORMATS = {"bf16": bf16, "f16": f16}
_PLAIN, _HELD = ("nearest_even", "", "keep"), ("nearest_even", "saturate", "keep")


def drop_plain_roundings(kernel: SpecOp, policies: Iterable[Policy]) -> None:
    """Cast what was rounded instead of what it was rounded to, wherever the cast alone gives the same bits.

    Before: `%1 = ttile.round %0 {format = "bf16"}`, `%2 = ttile.cast %1` to bf16. After: `%2 = ttile.cast %0`. What
    saturates is held at the ends of the format first: `%1` is the greatest of `%0` and the lowest number, and then the
    least of that and the largest. Where every policy asks for another rounding, a plain cast is what its check looks
    for, and what is there stays.
    """
    listed = list(policies)
    ways = [] if listed and all(policy.rounds_otherwise for policy in listed) else [_PLAIN]
    ways += [_HELD] if any(policy.only_saturates for policy in listed) else []
    for op in list(kernel.walk()):
        if isinstance(op, SpecOp) and op.name == "ttile.round" and (way := _way(op)) in ways:
            users = [use.operation for use in op.results[0].uses if _casts_to(use.operation, op.value("format"))]
            value = _held(op) if users and way == _HELD else op.operands[0]
            for user in users:
                user.operands[0] = value
            if not list(op.results[0].uses):
                op.detach()
                op.erase()


def _way(op: SpecOp) -> tuple[str, str, str] | None:
    """How an op rounds to a format that casts have too."""
    if op.value("format") not in _FORMATS or len(op.operands) > 1:
        return None
    return op.value("rounding"), op.value("saturation"), op.value("denormals")


def _held(op: SpecOp) -> SSAValue:
    """What a rounding takes, held at the ends of its format; NaN stays NaN."""
    value, largest, block = op.operands[0], FORMATS[op.value("format")].largest, op.parent_block()
    assert block is not None
    for fn, end in (("max", -largest), ("min", largest)):
        limit = make("ttile.constant", (), {"value": end}, types=[value.type], span=op.span)
        made = make("ttile.elementwise", (value, limit.results[0]), {"fn": fn}, types=[value.type], span=op.span)
        block.insert_ops_before([limit, made], op)
        value = made.results[0]
    return value


def _casts_to(user: Operation, format: str) -> bool:
    if not isinstance(user, SpecOp) or user.name != "ttile.cast":
        return False
    source, target = tile_type(user.operands[0]).dtype, tile_type(user.results[0]).dtype
    return source is f32 and target is _FORMATS[format]
