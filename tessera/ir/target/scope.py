"""What an op of a kernel can see and what is known there: sizes, arguments, scratch, and multiples of addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tessera.ir.base.kernel_frame import around
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.limits import LINE
from tessera.types.dim import Dim


def kernel_around(op: Operation) -> SpecOp | None:
    """The kernel that an op stands in; None outside of one."""
    return around(op, "ttarget.kernel")


def check_symbols(op: SpecOp, what: str, dims: Iterable[Dim], names: Iterable[str]) -> None:
    """Fails where an expression uses what is neither a name of the op nor a size of its kernel."""
    kernel = kernel_around(op)
    if kernel is None:
        return
    known = {*names, *kernel.value("symbols")}
    for dim in dims:
        if not dim.symbols <= known:
            op.fail(f"{what} `{dim}` uses {sorted(dim.symbols - known)}, and what is known is {sorted(known)}")


def argument_of(buffer: SSAValue) -> int | None:
    """Which argument of its kernel a buffer is; None for scratch."""
    if not isinstance(buffer, BlockArgument):
        return None
    owner = buffer.block.parent_op()
    return buffer.index if owner is not None and owner.name == "ttarget.kernel" else None


def check_written(op: SpecOp, buffer: SSAValue) -> None:
    """Fails where an op writes an argument that its kernel does not declare to write."""
    kernel, argument = kernel_around(op), argument_of(buffer)
    if kernel is not None and argument is not None and argument not in kernel.value("writes"):
        writes = list(kernel.value("writes"))
        op.fail(f"`{op.name}` writes argument {argument} of `@{kernel.value('symbol')}`, which only writes {writes}")


def multiple_of(dim: Dim, multiples: Mapping[str, int]) -> int:
    """A number that an expression is a multiple of, where each name is one of `multiples`; 0 where it is always 0."""
    found = 0
    for monomial, coefficient in dim.terms:
        part = abs(coefficient)
        for atom in monomial:
            if atom.kind == "symbol":
                part *= multiples.get(atom.name, 1)
            elif atom.kind in ("min", "max"):
                part *= gcd(*(multiple_of(arg, multiples) for arg in atom.args))
        found = gcd(found, part)
    return found


def index_multiple(value: SSAValue) -> int:
    """A number that an index is always a multiple of; 0 where it is always 0."""
    if isinstance(value, OpResult) and isinstance(value.op, SpecOp) and value.op.name == "ttarget.index":
        inner = zip(value.op.value("names"), (index_multiple(operand) for operand in value.op.operands), strict=False)
        return multiple_of(value.op.value("expr"), dict(inner))
    if isinstance(value, BlockArgument) and value.index == 0:
        owner = value.block.parent_op()
        if isinstance(owner, SpecOp) and owner.name in ("ttarget.loop", "ttarget.tail"):
            return gcd(index_multiple(owner.operands[0]), owner.value("step"))
    return 1


def buffer_alignment(buffer: SSAValue) -> int:
    """Bytes that the start of a buffer is a multiple of: a line in scratch; of an argument what its kernel says."""
    assert isinstance(buffer.type, BufferAttr)
    if isinstance(buffer, OpResult) and isinstance(buffer.op, SpecOp) and buffer.op.name == "ttarget.scratch":
        return gcd(LINE, multiple_of(buffer.op.value("offset"), {}))
    owner = buffer.block.parent_op() if isinstance(buffer, BlockArgument) else None
    if isinstance(owner, SpecOp) and owner.name == "ttarget.kernel" and owner.value("align"):
        return max(owner.value("align"), buffer.type.dtype.bytes)
    return buffer.type.dtype.bytes
