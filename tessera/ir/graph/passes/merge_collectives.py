"""Merge independent collectives into one, so that ranks synchronize once.

The walk keeps one wave of collectives that can still be merged, and the values that depend on them. A wave ends at an
op that must keep its order with collectives, or at a collective that needs one of the wave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from tessera.ir.base.build import Build, is_removable, tensor_value
from tessera.ir.base.effects import effects_of, ops_inside
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.graph.building import slice_axis
from tessera.types.dim import Dim
from tessera.types.effect import may_swap

_MERGED = "tgraph.all_reduce"
_COLLECTIVE = frozenset({"collective"})

MOST_BYTES = 1 << 18
"""Bytes of a collective that is merged: a larger one takes long enough to overlap with computation by itself."""


class MergeCollectives(Pass):
    """Join `all_reduce`s of one axis, reduction and dtype into one of all their elements.

    Before: `%a = tgraph.all_reduce %x`, `%b = tgraph.all_reduce %y`. After: one `tgraph.all_reduce` of the elements of
    `%x` and then `%y`, and `%a` and `%b` slices of it. Two stay apart where the second needs the first, and where an op
    between them must keep its order with collectives: another collective, or one with an effect on the outside world.
    One that is known to send many bytes stays by itself, so that it starts as soon as its operand is there. Each
    element is reduced as before, so no bit changes.
    """

    def run(self, module: ModuleOp) -> None:
        found = [op for op in ops_inside(module) if op.name == _MERGED]
        for block in dict.fromkeys(op.parent for op in found):
            if block is not None:
                _Merger().run(block)


@dataclass
class _Wave:
    """Collectives that may be merged, what depends on them, and the dependents that come before the last of them."""

    ops: list[SpecOp]
    tainted: set[SSAValue] = field(default_factory=set[SSAValue])
    dependents: list[SpecOp] = field(default_factory=list[SpecOp])
    waiting: list[SpecOp] = field(default_factory=list[SpecOp])


class _Merger:
    """One walk through a block; there is one wave at a time, as collectives of two kinds keep their order."""

    def __init__(self) -> None:
        self.wave: _Wave | None = None

    def run(self, block: Block) -> None:
        for op in list(block.ops):
            if not isinstance(op, SpecOp):
                self._close()
            elif _key(op) is not None:
                self._add(op)
            elif self.wave is not None:
                self._pass(op, self.wave)
        self._close()

    def _add(self, op: SpecOp) -> None:
        wave = self.wave
        if wave is None or _key(wave.ops[0]) != _key(op) or op.operands[0] in wave.tainted:
            self._close()
            self.wave = _Wave([op], set(op.results))
            return
        wave.ops.append(op)
        wave.tainted.update(op.results)
        wave.waiting = list(wave.dependents)

    def _pass(self, op: SpecOp, wave: _Wave) -> None:
        depends = any(value in wave.tainted for value in op.operands)
        if not may_swap(effects_of(op), _COLLECTIVE) or (depends and not is_removable(op)):
            self._close()
        elif depends:
            wave.tainted.update(op.results)
            wave.dependents.append(op)

    def _close(self) -> None:
        wave, self.wave = self.wave, None
        if wave is not None and len(wave.ops) > 1:
            _merge(wave)


def _key(op: SpecOp) -> Any:
    """What collectives that may be merged have in common; None for an op that is never merged."""
    if op.name != _MERGED:
        return None
    size = tensor_value(op.operands[0]).bytes.value
    if size is not None and size > MOST_BYTES:
        return None
    return tuple(op.values().items()), tensor_value(op.operands[0]).dtype


def _merge(wave: _Wave) -> None:
    last = wave.ops[-1]
    assert last.parent is not None
    build = Build(last.parent, last, last.span)
    types = [tensor_value(op.operands[0]) for op in wave.ops]
    rows = [build.emit("reshape", op.operands[0], shape=(type.size,)) for op, type in zip(wave.ops, types, strict=True)]
    reduced = build.emit("all_reduce", build.emit("concat", *rows, axis=0), **last.values())
    start = Dim.constant(0)
    for op, type in zip(wave.ops, types, strict=True):
        row = slice_axis(build, reduced, 0, start, start + type.size)
        start = start + type.size
        op.results[0].replace_all_uses_with(build.emit("reshape", row, shape=type.shape))
    for op in wave.waiting:
        op.detach()
        last.parent.insert_op_before(op, last)
    for op in wave.ops:
        op.detach()
        op.erase()
