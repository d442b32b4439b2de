"""The numerics policy that IR carries at every level: what functions, ops and kernels say of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from xdsl.ir import Attribute, Operation, SSAValue

from tessera.diagnostics.codes import PolicyError
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import POLICY, REGION
from tessera.ir.base.types import ShapedAttr, ValueAttr, attribute_of
from tessera.types.device import DEVICE
from tessera.types.dtype import FORMATS
from tessera.types.policy import SILENT, Policy


def policies_of(op: Operation) -> tuple[Policy, ...]:
    """What an op itself says: one policy, several where a kernel holds ops of several, or none.

    Raises PolicyError (T0107), at the op, for what is no policy.
    """
    found = op.attributes.get(POLICY)
    if found is None:
        return ()
    given: Any = found.data if isinstance(found, ValueAttr) else None
    listed: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)  # pyright: ignore[reportUnknownVariableType]
    try:
        return tuple(Policy.of(one) for one in listed)
    except TesseraError as error:
        span = op.span if isinstance(op, SpecOp) else None
        raise PolicyError(f"`{POLICY}` of `{op.name}`: {error.message}", span=span) from error


def policy_over(op: Operation) -> Policy:
    """The policy that an op works under: its own, else that of the innermost op around it that has one."""
    at: Operation | None = op
    while at is not None:
        found = policies_of(at)
        if found:
            return found[0]
        at = at.parent_op()
    return SILENT


def declare_policies(op: Operation, policies: Iterable[Policy], *, always: bool = False) -> None:
    """Write down what an op works under; nothing where nobody says anything, unless `always`: then `{}`."""
    listed = sorted({str(policy): policy for policy in policies}.items())
    entries = tuple(policy.entries for _, policy in listed)
    if not any(entries) and not always:
        op.attributes.pop(POLICY, None)
    else:
        op.attributes[POLICY] = attribute_of("any", entries[0] if len(entries) == 1 else entries)


def carried_policy(op: Operation) -> Mapping[str, Attribute]:
    """What an op passes on to those it is rewritten to."""
    return {name: op.attributes[name] for name in (POLICY, DEVICE, REGION) if name in op.attributes}


def policy_text(op: Operation) -> str:
    """All that an op says of its policy, as users write it; empty where it says nothing."""
    return ", or ".join(str(policy) or "no policy" for policy in policies_of(op))


_CONVERSIONS = frozenset({"ttile.cast", "ttarget.cast"})
_ARITHMETIC = frozenset(
    {"ttile.elementwise", "ttile.dot", "ttile.reduce", "ttarget.elementwise", "ttarget.reduce", "ttarget.broadcast"}
)
"""Ops of kernels that give values which were not there before, and so have something to round."""
_FUNCTIONS = frozenset({"ttile.elementwise", "ttarget.elementwise"})
_CHOOSING = frozenset({"max", "min"})
"""Functions and reductions that give one of the values they take: where those were numbers of a format, so is that."""


def check_kernel_policy(kernel: SpecOp) -> None:
    """Raises PolicyError (T0107) unless a kernel rounds, and accumulates its dots, as one of its policies says.

    A value that was computed becomes a narrower float by a rounding that says how, wherever every policy asks for
    another than the plain one, or plainly where one only asks that it stop at the ends, and it is held at them before;
    dots are accumulated in no less than the narrowest accumulator that is asked for.
    """
    policies = policies_of(kernel)
    if not policies:
        return
    rounds = [one for one in policies if one.rounds_otherwise]
    may_be_held = any(one.only_saturates for one in rounds)
    least = min((one.accumulate.bits if one.accumulate is not None else 0 for one in policies), default=0)
    for op in kernel.walk():
        if op.name in _CONVERSIONS and len(rounds) == len(policies):
            _check_conversion(kernel, op, may_be_held)
        elif op.name == "ttile.dot":
            dtype = op.results[0].type.dtype if isinstance(op.results[0].type, ShapedAttr) else None
            if dtype is not None and dtype.is_float and dtype.bits < min(least, 32):
                raise _contradiction(kernel, op, f"sums in {dtype}")


def _check_conversion(kernel: SpecOp, op: Operation, may_be_held: bool) -> None:
    dtypes = [getattr(value.type, "dtype", None) for value in (op.operands[0], op.results[0])]
    source, target = dtypes
    if source is None or target is None or source.name != "f32" or not target.is_float or target.bits >= source.bits:
        return
    maker = _computing_op(op.operands[0])
    if maker is not None:
        if may_be_held and is_held(op.operands[0], FORMATS[target.name].largest):
            return
        raise _contradiction(kernel, op, f"makes {target} of what `{maker.name}` gives by the plain rounding")


def _computing_op(value: SSAValue) -> Operation | None:
    """The op that computed a value, seen through those that only choose among values; None for what was there."""
    maker = value.owner
    if not isinstance(maker, SpecOp) or maker.name not in _ARITHMETIC:
        return None
    functions = [maker.value(one.name) for one in maker.spec.attributes if one.name in ("fn", "kind")]
    if not _CHOOSING.intersection(functions):
        return maker
    return next((found for operand in maker.operands if (found := _computing_op(operand)) is not None), None)


def is_held(value: SSAValue, largest: float) -> bool:
    """Whether a value of a kernel is the least of a number and `largest`, and the greatest of that and `-largest`."""
    ends = {"min": math.inf, "max": math.inf}
    for _ in ends:
        maker = value.owner
        if not isinstance(maker, SpecOp) or maker.name not in _FUNCTIONS or maker.value("fn") not in ends:
            break
        end = maker.operands[1].owner
        if isinstance(end, SpecOp) and end.name.endswith(".constant"):
            ends[maker.value("fn")] = abs(float(end.value("value")))
        value = maker.operands[0]
    return max(ends.values()) <= largest


def _contradiction(kernel: SpecOp, op: Operation, what: str) -> PolicyError:
    return PolicyError(
        f"`{op.name}` {what}, and kernel `@{kernel.value('symbol')}` keeps `{policy_text(kernel)}`",
        span=op.span if isinstance(op, SpecOp) else None,
        fix=f"round before it by a `{op.name.split('.')[0]}.round` that says how, or leave `{POLICY}` out",
    )


__all__ = [
    "POLICY",
    "carried_policy",
    "check_kernel_policy",
    "declare_policies",
    "is_held",
    "policies_of",
    "policy_over",
    "policy_text",
]
