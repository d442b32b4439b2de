"""Copies under way in a kernel of warps: every stage is waited for before a dot reads it, and free before a copy.

A fault here would be a race on the device, so the kernel is walked as it runs: loops for some turns, stages by number.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.backends.nvptx.types import CursorAttr, SharedAttr
from tessera.ir.base.op import SpecOp

Cell = tuple[SSAValue, int]
"""A shared tile and the number of a stage."""
_TURNS = 3
"""Turns of a loop that are walked, beside twice the stages."""


class CopyCheck:
    """The walk of one CTA: copies and their groups, what is there, what was read since all waited for each other."""

    def __init__(self, stages: int) -> None:
        self.turns = 2 * stages + _TURNS
        self.cursors: dict[SSAValue, int] = {}
        self.open: list[Cell] = []
        """Copies that no group has yet."""
        self.groups: list[list[Cell]] = []
        """Groups under way, the oldest first."""
        self.there: set[Cell] = set()
        self.perhaps: set[Cell] = set()
        """Cells that only a loop waited for which may have no steps; a wait for all copies settles it."""
        self.read: set[Cell] = set()
        """Cells that some warp may still be reading: read since all waited for each other."""

    def run(self, block: Block) -> None:
        """Fails where a dot reads what nobody waited for, or a copy goes to what may still be read."""
        for op in block.ops:
            assert isinstance(op, SpecOp)
            self._step(op)

    def _step(self, op: SpecOp) -> None:
        if op.name == "ttarget.cursor":
            self.cursors[op.result] = 0
        elif op.name == "ttarget.stage_after":
            self.cursors[op.result] = (self.cursors[op.operands[0]] + op.value("by")) % op.value("stages")
        elif op.name == "ttarget.copy_async":
            self._copy(op)
        elif op.name == "ttarget.commit_copies":
            self.groups.append(self.open)
            self.open = []
        elif op.name == "ttarget.wait_copies":
            self._wait(op)
        elif op.name == "ttarget.mma_sync":
            self._product(op)
        elif op.name == "ttarget.steps":
            self._loop(op)
        else:
            for region in op.regions:
                self.run(region.block)

    def _copy(self, op: SpecOp) -> None:
        cell = (op.operands[0], self.cursors[op.operands[1]])
        made = op.operands[0].owner
        if isinstance(made, SpecOp) and cell[1] >= made.value("stages"):
            op.fail(f"a copy goes to stage {cell[1]}, counted from 0, and its tile has {made.value('stages')}")
        if cell in self.read:
            op.fail(
                f"a copy goes to stage {cell[1]}, which other warps may still be reading",
                "put a `ttarget.wait_copies` between the dot that reads it and the copy",
            )
        if cell in self.open or any(cell in group for group in self.groups):
            op.fail(f"a copy goes to stage {cell[1]}, and another one is under way to it")
        self.there.discard(cell)
        self.perhaps.discard(cell)
        self.open.append(cell)

    def _wait(self, op: SpecOp) -> None:
        if self.open:
            op.fail("a wait comes before copies are made a group", "put a `ttarget.commit_copies` before it")
        # Nothing is done yet where fewer are under way than may be left.
        done = self.groups[: max(0, len(self.groups) - op.value("left"))]
        self.groups = self.groups[len(done) :]
        self.there.update(cell for group in done for cell in group)
        if not op.value("left"):
            self.there |= self.perhaps
            self.perhaps.clear()
        self.read.clear()

    def _product(self, op: SpecOp) -> None:
        for tile, cursor in zip(op.operands[1:3], op.operands[3:5], strict=True):
            if not isinstance(tile.type, SharedAttr):
                continue
            cell = (tile, self.cursors[cursor])
            if cell not in self.there:
                op.fail(
                    f"a dot reads stage {cell[1]}, which nobody waited for", "put a `ttarget.wait_copies` before it"
                )
            self.read.add(cell)

    def _loop(self, op: SpecOp) -> None:
        body = op.regions[0].block
        last = body.last_op
        assert last is not None
        before = set(self.there)
        self._bind(body.args[1:], op.operands[2:])
        for _ in range(self.turns):
            self.run(body)
            self._bind(body.args[1:], last.operands)
        self._bind(op.results, last.operands)
        if not op.value("is_nonempty"):
            self.perhaps |= self.there - before
            self.there &= before

    def _bind(self, names: Sequence[SSAValue], values: Sequence[SSAValue]) -> None:
        found = {
            name: self.cursors[value]
            for name, value in zip(names, values, strict=True)
            if isinstance(value.type, CursorAttr)
        }
        self.cursors.update(found)


def check_copies(block: Block, stages: int) -> None:
    """Fails where copies and dots of a kernel do not wait for each other."""
    check = CopyCheck(stages)
    check.run(block)
    for tile, _ in check.open:
        assert isinstance(tile.owner, SpecOp)
        tile.owner.fail("a copy is started and never made part of a group", "put a `ttarget.commit_copies` after it")
