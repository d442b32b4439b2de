"""Where kernels use the machine's own powers and reciprocals, how far those are off, and how they are forbidden."""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.backends.nvptx.hopper.fast_math import NARROW
from tessera.backends.nvptx.values import HARDWARE
from tessera.ir.base.op import SpecOp, plain
from tessera.ir.base.types import ShapedAttr
from tessera.types.dtype import bf16, f32

EXACT_MATH = "numerics.exact"
"""The attribute of a matrix kernel whose functions are the house's polynomials, not the machine's approximations."""

_WHOLE = {"exp2": "2 units of the last place of f32", "exp": "3 units of the last place of f32"}
"""In matrix kernels, results that are kept in f32."""
_ROUNDED = dict.fromkeys((*NARROW, "div"), "0.01 units of the last place of bf16 before it is rounded to that")
"""In matrix kernels, results that nobody sees more of than bf16 holds."""


def is_exact(kernel: SpecOp) -> bool:
    """Whether a matrix kernel is told to use no approximation."""
    found = kernel.attributes.get(EXACT_MATH)
    return found is not None and bool(plain(found))


def is_rounded(value: SSAValue) -> bool:
    """Whether nobody sees more of a value than bf16 holds."""
    users = [use.operation for use in value.uses]
    types = [user.results[0].type for user in users if user.name == "ttarget.cast"]
    return len(types) == len(users) and all(isinstance(type, ShapedAttr) and type.dtype is bf16 for type in types)


def is_narrow(op: SpecOp) -> bool:
    """Whether a function of f32 in a matrix kernel has a short form, for a result that is rounded to bf16 at once."""
    type = op.operands[0].type
    of_f32 = isinstance(type, ShapedAttr) and type.dtype.compute is f32
    return of_f32 and op.value("fn") in (*NARROW, "div") and is_rounded(op.result)


def approximations(kernel: SpecOp, exponential: str) -> tuple[str, ...]:
    """What a `ttarget` kernel computes otherwise than the reference's polynomials, each with its bound."""
    found: set[str] = set()
    is_matrix = kernel.name != "ttarget.kernel"
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name != "ttarget.elementwise":
            continue
        name, type = op.value("fn"), op.operands[0].type
        if not isinstance(type, ShapedAttr) or type.dtype.compute is not f32:
            continue
        if not is_matrix:
            found |= (
                {"exp within 4 units of the last place of f32"} if name == "exp" and exponential == HARDWARE else set()
            )
        elif is_exact(kernel):
            continue
        elif is_narrow(op):
            found.add(f"{name} within {_ROUNDED[name]}")
        elif name in _WHOLE:
            found.add(f"{name} within {_WHOLE[name]}")
    return tuple(sorted(found))
