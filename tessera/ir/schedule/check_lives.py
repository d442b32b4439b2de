"""Lives of buffers in a host program: from the `alloc` to the `free`, and nothing looks at one behind its end."""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp

_NOTES = ("tsched.tile", "tsched.layout", "tsched.collective", "tsched.yield")
"""Ops that say something of a group, and touch no memory; and the end of a body, which nothing can stand behind."""
_LOOPS = ("tsched.while", "tsched.for")


def check_lifetimes(program: SpecOp) -> None:
    """Fails at an op that uses a buffer whose life has ended, or ends it again, by whatever name it goes."""
    _Lives().block(program.regions[0].block, set())


class _Lives:
    """One walk through a program, in the order in which it runs."""

    def __init__(self) -> None:
        self.roots: dict[SSAValue, SSAValue] = {}
        """What memory an alias is of."""

    def block(self, block: Block, ended: set[SSAValue]) -> set[SSAValue]:
        """The buffers that have ended behind a block, given those before it."""
        for op in block.ops:
            if isinstance(op, SpecOp):
                self._op(op, ended)
        return ended

    def _op(self, op: SpecOp, ended: set[SSAValue]) -> None:
        for value in op.operands:
            root = self.roots.get(value, value)
            if root in ended and op.name == "tsched.free":
                op.fail("a buffer's life ends twice", "leave this `tsched.free` out")
            if root in ended and op.name not in _NOTES:
                op.fail(f"`{op.name}` uses a buffer whose life has ended", "move the `tsched.free` behind its last use")
        for region in op.regions:
            behind = self.block(region.block, set(ended))
            if op.name in _LOOPS:
                behind = self.block(region.block, behind)  # a second round finds what the first one left
            ended |= behind
        ended.difference_update(op.results)
        if op.name == "tsched.alias":
            self.roots[op.results[0]] = self.roots.get(op.operands[0], op.operands[0])
        if op.name == "tsched.free":
            ended.add(self.roots.get(op.operands[0], op.operands[0]))
