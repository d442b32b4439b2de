"""Load vectors as often as they are broadcast, where threads would exchange them through shared memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tessera.backends.nvptx.mma.fit import thread_kernels
from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import INDEX, TileAttr, shaped_type
from tessera.ir.tile.dialect import DIALECT
from tessera.ir.tile.typed_ops import BroadcastOp, LoadOp
from tessera.types.dim import Dim

_ELEMENTS = ("ttile.elementwise", "ttile.cast", "ttile.bitcast")
_CHEAP = ("add", "sub", "mul", "neg", "max", "min")
"""Functions that take no longer than to read an element of shared memory."""
_MOST = 4
"""Ops between loads and what is broadcast, at most."""
_NEIGHBOURS, _MOST_WORDS = 8, 160
"""Elements that a thread has of a tile, and registers of what its iteration loads: with more it would spill others."""


class BroadcastLoads(Pass):
    """Put a load of a matrix, of equal rows or columns, in the place of a vector that is loaded and broadcast.

    Before: `%a = ttile.load` of 32 elements in a loop, and a `ttile.broadcast %a {axes = [0]}` to 32 x 16. After: one
    `ttile.load` of 32 x 16 elements whose address does not depend on the column: a thread reads the elements that it
    has, which are in L1, and waits for no other. Short sums and products of such vectors are computed for each element.
    Vectors of a buffer that the kernel writes are left alone, and so are iterations that load more than registers hold,
    and kernels with dots, which wait for each other anyway.
    """

    def run(self, module: ModuleOp) -> None:
        for kernel in thread_kernels(module):
            if any(op.name == "ttile.dot" for op in kernel.walk()):
                continue
            written: set[SSAValue] = {kernel.regions[0].block.args[number] for number in kernel.value("writes")}
            chosen = [op for op in kernel.walk() if isinstance(op, BroadcastOp) and _is_in_loop(op)]
            chosen = [op for op in chosen if _cost(op.operands[0], written) <= _MOST]
            if _words(chosen) <= _MOST_WORDS:
                broadcast_loads(kernel, chosen)


def broadcast_loads(kernel: SpecOp, chosen: Sequence[BroadcastOp]) -> None:
    """Do it to some broadcasts of a kernel."""
    widening = _Widening()
    for op in chosen:
        widening.replace(op)
    for op in reversed(list(kernel.walk())):
        is_known = isinstance(op, SpecOp) and op.name in ("ttile.load", *_ELEMENTS)
        if chosen and is_known and _is_vector(op.results[0]) and not list(op.results[0].uses):
            Rewriter.erase_op(op)


def _words(chosen: Sequence[BroadcastOp]) -> int:
    """Registers of a thread for what it would load, of which it has so many elements as of most tiles."""
    found: dict[SSAValue, int] = {}
    pending = [op.operands[0] for op in chosen]
    while pending:
        value = pending.pop()
        assert isinstance(value, OpResult)
        if isinstance(value.op, LoadOp):
            found[value] = _NEIGHBOURS * shaped_type(value).dtype.bytes // 4
        else:
            pending += value.op.operands
    return sum(found.values())


def _is_in_loop(op: SpecOp) -> bool:
    around = op.parent_op()
    return isinstance(around, SpecOp) and around.name == "ttile.for"


def _cost(value: SSAValue, written: Collection[SSAValue]) -> int:
    """Ops that a vector takes to compute from loads in its block; more than the most for one of another kind."""
    op = value.op if isinstance(value, OpResult) else None
    if not isinstance(op, SpecOp) or not _is_vector(value) or not _is_in_loop(op):
        return _MOST + 1
    if isinstance(op, LoadOp):
        is_still = isinstance(op.operands[0], BlockArgument) and op.operands[0] not in written
        return 0 if is_still and len(op.at) == len(op.coords) and not op.windows else _MOST + 1
    if op.name not in _ELEMENTS or (op.name == "ttile.elementwise" and op.value("fn") not in _CHEAP):
        return _MOST + 1
    return 1 + sum(_cost(part, written) for part in op.operands)


class _Widening:
    """Vectors of a kernel along one axis of a shape, each computed once, right after the vector itself."""

    def __init__(self) -> None:
        self.made: dict[tuple[SSAValue, int, tuple[Dim, ...]], SSAValue] = {}

    def replace(self, op: BroadcastOp) -> None:
        """Compute what is broadcast for each element of what it is broadcast to."""
        tile, source = op.results[0].type, op.operands[0]
        assert isinstance(tile, TileAttr)
        Rewriter.replace_op(op, [], [self.wide(source, op.axes[0], tuple(tile.shape))])

    def wide(self, value: SSAValue, axis: int, shape: tuple[Dim, ...]) -> SSAValue:
        """A vector along one axis of a shape."""
        key = value, axis, shape
        if key not in self.made:
            assert isinstance(value, OpResult)
            op = value.op
            assert isinstance(op, SpecOp)
            made = _wide_load(op, axis, shape) if isinstance(op, LoadOp) else self._wide_elements(op, axis, shape)
            Rewriter.insert_op(made, InsertPoint.after(op))
            self.made[key] = made[-1].results[0]
        return self.made[key]

    def _wide_elements(self, op: SpecOp, axis: int, shape: tuple[Dim, ...]) -> list[SpecOp]:
        operands = [self.wide(part, axis, shape) for part in op.operands]
        return [make(op.spec, operands, op.values(), types=[_wide_type(op, shape)], span=op.span)]


def _wide_type(op: SpecOp, shape: Sequence[Dim]) -> TileAttr:
    tile = op.results[0].type
    assert isinstance(tile, TileAttr)
    return TileAttr.of(tile.data.with_shape(shape))


def _wide_load(op: LoadOp, axis: int, shape: Sequence[Dim]) -> list[SpecOp]:
    """A load of a vector as one of a matrix, whose address does not depend on the other axes."""
    others = [f"_of{number}" for number in range(len(shape)) if number != axis]
    names = [*others[:axis], op.axes[0], *others[axis:]]
    bounds = [op.bounds[0] if name == op.axes[0] else Dim.constant(-1) for name in names]
    zero = make(DIALECT["index"], [], {"names": (), "expr": Dim.constant(0)}, types=[INDEX], span=op.span)
    values = {**op.values(), "coords": (*op.coords, *others), "axes": tuple(names), "bounds": tuple(bounds)}
    operands = [*op.operands, *[zero.result] * len(others)]
    return [zero, make(op.spec, operands, values, types=[_wide_type(op, shape)], span=op.span)]


def _is_vector(value: SSAValue) -> bool:
    return isinstance(value.type, TileAttr) and len(value.type.shape) == 1
