"""Quotients of many numbers by one, rounded once: what can go wrong is looked at for all of them together.

A GPU's division looks at every quotient by itself, and in a branch, which keeps it from computing several at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.math_exp import over
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, bits

_LEAST, _MOST = 0x21800000, 0x5D800000
"""The bits of 2**-60 and 2**60: between these nothing that a quotient is made of leaves the normal numbers."""


def quotients(f: FunctionText, tops: Sequence[Value], bottom: Value) -> list[Value]:
    """Each of the f32 `tops` divided by `bottom`."""
    sizes = [bits(f, absolute(f, value)) for value in dict.fromkeys((bottom, *tops))]
    smallest = largest = sizes[0]
    for size in sizes[1:]:
        smallest, largest = f.intrinsic("umin", smallest, size), f.intrinsic("umax", largest, size)
    is_inside = f.op(
        "and",
        f.icmp("uge", smallest, f.const("i32", _LEAST)),
        f.icmp("ule", largest, f.const("i32", _MOST)),
    )
    return f.if_(
        is_inside,
        lambda: [over(f, top, bottom) for top in tops],
        lambda: [f.op("fdiv", top, bottom) for top in tops],
    )
