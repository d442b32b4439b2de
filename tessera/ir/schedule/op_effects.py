"""What ops of plans and host programs do besides computing."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation

from tessera.ir.base.effects import declared_effects
from tessera.ir.base.op import SpecOp
from tessera.types.effect import PURE, Effects

_CALLBACKS: Mapping[str, tuple[str, ...]] = {"fresh_key": ("io", "random"), "axis_index": ()}
"""What calls of Python do that do not only meet the outside world."""


def own_effects(op: Operation, kernels: Mapping[str, SpecOp]) -> Effects:
    """The effects of an op itself, what is inside it left out; a call has those that its kernel declares."""
    if not isinstance(op, SpecOp):
        return PURE
    if op.name == "tsched.callback":
        return Effects(_CALLBACKS.get(op.value("call"), ("io",)))
    own = Effects(op.spec.effects)
    kernel = kernels.get(op.value("kernel")) if op.name == "tsched.call" else None
    return own if kernel is None else own.join(declared_effects(kernel) or ())


def all_effects(op: Operation, kernels: Mapping[str, SpecOp]) -> Effects:
    """The effects of an op and of all that is inside it; a group has those of its body."""
    found = PURE
    for inner in op.walk():
        found = found.join(own_effects(inner, kernels))
        if isinstance(inner, SpecOp) and inner.name == "tsched.fuse":
            for name in (inner.value("body"), *inner.value("kernels")):
                found = found.join(declared_effects(kernels[name]) or () if name in kernels else ())
    return found
