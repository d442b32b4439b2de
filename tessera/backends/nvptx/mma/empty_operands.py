"""What a kernel of matrix units leaves to do where a tensor is empty: all but its products, of which there are none.

The copy engine has no map for a tensor without elements, so such a call goes to another kernel. Where each dim that may
be 0 leaves either no programs or no steps of the loops that multiply, that kernel needs no products at all, and is as
small as what follows them.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import BlockArgument

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.tile.index_exprs import index_expr
from tessera.types.dim import Dim


def without_products(kernel: SpecOp, matrix: SpecOp) -> SpecOp | None:
    """The kernel with the loops that multiply taken out; None where one of them may run although a tensor is empty."""
    loops = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.for" and _multiplies(op)]
    products = [op for op in kernel.walk() if op.name == "ttile.dot"]
    if not all(any(_is_inside(product, loop) for loop in loops) for product in products):
        return None
    outer = [loop for loop in loops if not any(_is_inside(loop, other) for other in loops if other is not loop)]
    if not all(_is_idle(kernel, outer, dim) for dim in _dims(kernel, matrix)):
        return None
    copy = kernel.clone()
    pairs = zip(kernel.walk(), copy.walk(), strict=True)
    taken = [made for op, made in pairs if any(op is loop for loop in outer)]
    for loop in taken:
        for result, start in zip(loop.results, loop.operands[2:], strict=True):
            result.replace_all_uses_with(start)
        loop.detach()
        loop.erase()
    return copy


def _dims(kernel: SpecOp, matrix: SpecOp) -> list[Dim]:
    """The dims of tensors with maps that tiles lie along; at others a program that runs has no element to read."""
    maps = [op.operands[0] for op in matrix.walk() if op.name == "ttarget.tensor_map"]
    mapped = {value.index for value in maps if isinstance(value, BlockArgument)}
    found: dict[Dim, None] = {}
    for op in kernel.walk():
        if not isinstance(op, SpecOp) or op.name not in ("ttile.load", "ttile.store"):
            continue
        buffer = op.operands[0 if op.name == "ttile.load" else 1]
        if not isinstance(buffer, BlockArgument) or buffer.index not in mapped:
            continue
        assert isinstance(buffer.type, BufferAttr)
        axes = set(op.value("axes"))
        found |= {dim: None for dim, at in zip(buffer.type.shape, op.value("map"), strict=True) if at.symbols & axes}
    return list(found)


def _is_idle(kernel: SpecOp, loops: Sequence[SpecOp], dim: Dim) -> bool:
    """Whether nothing is multiplied where a dim is 0: there is no program, or no step."""
    if dim.value is not None:
        return dim.value > 0
    if dim.symbol_name is None:
        return False
    none = {dim.symbol_name: Dim.constant(0)}
    if any(extent.substitute(none).value == 0 for extent in kernel.value("grid")):
        return True
    ends = [index_expr(loop.operands[1]) for loop in loops]
    return all(end is not None and _is_at_most_zero(end.substitute(none)) for end in ends)


def _is_at_most_zero(dim: Dim) -> bool:
    """Whether an expression is 0 or less, whatever its names stand for: numbers, and extremes of such."""
    if dim.value is not None:
        return dim.value <= 0
    if len(dim.terms) != 1 or len(dim.terms[0][0]) != 1 or dim.terms[0][1] < 0:
        return False
    (atom,) = dim.terms[0][0]
    decide = {"min": any, "max": all}.get(atom.kind)
    return decide is not None and decide(_is_at_most_zero(arg) for arg in atom.args)


def _multiplies(loop: SpecOp) -> bool:
    return any(op.name == "ttile.dot" for op in loop.walk())


def _is_inside(op: object, loop: SpecOp) -> bool:
    return any(one is op for one in loop.walk())
