"""Two workers of a program at one cell of shared memory, and no barrier between: which deeds clash, how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.diagnostics.codes import RaceError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr, TileAttr

READ, WRITE, ADD = "read", "write", "add to"


def deed(op: SpecOp) -> str:
    """What an access does to a cell.

    Sums of integers are the same in any order, so adding them is a deed of its own; a sum of floats is a write.
    """
    if op.name != "ttile.store":
        return READ
    buffer = op.operands[1].type
    assert isinstance(buffer, BufferAttr)
    is_sum = op.value("mode") == "add" and not buffer.dtype.is_float
    return ADD if is_sum or op.value("mode").startswith("atomic") else WRITE


AT_ODDS: Mapping[str, tuple[str, ...]] = {READ: (WRITE, ADD), WRITE: (READ, WRITE, ADD), ADD: (READ, WRITE)}
"""The deeds whose order with a deed matters."""


def collides_with_itself(op: SpecOp) -> bool:
    """Whether two elements of one access must not meet in a cell: mode `add` takes them in order."""
    return op.name == "ttile.store" and op.value("mode") == "set"


def loops_around(op: SpecOp) -> list[SpecOp]:
    """The loops that an op stands in, outermost first."""
    found: list[SpecOp] = []
    at = op.parent_op()
    while isinstance(at, SpecOp) and at.name == "ttile.for":
        found.append(at)
        at = at.parent_op()
    return found[::-1]


@dataclass(frozen=True)
class Touch:
    """One element of an access, in one step of each loop around it; no element where all workers do it."""

    op: SpecOp
    element: tuple[int, ...] | None
    steps: tuple[int, ...]

    def told(self) -> str:
        """Where it stands, what it does, and who does it; a place alone says nothing across tiles of two shapes."""
        verb = {READ: "reads", WRITE: "writes", ADD: "adds"}[deed(self.op)]
        who = (
            "for all workers"
            if self.element is None
            else f"at element {list(self.element)} of a tile {list(self._tile.shape)}"
        )
        when = f", in step {list(self.steps)}" if self.steps else ""
        return f"{self.op.span or self.op.name} {verb} {who}{when}"

    @property
    def _tile(self) -> TileAttr:
        type = (self.op.operands if self.op.name == "ttile.store" else self.op.results)[0].type
        assert isinstance(type, TileAttr)
        return type


@dataclass(frozen=True)
class WorkerRace:
    """Two touches of one cell by different workers of one program; the second is the later one."""

    first: Touch
    second: Touch
    cell: tuple[int, ...]
    program: tuple[int, ...]
    sizes: tuple[tuple[str, int], ...]

    def error(self, kernel: SpecOp) -> RaceError:
        """What a user reads."""
        deeds = [deed(touch.op) for touch in (self.first, self.second)]
        did = f"both {deeds[0]}" if deeds[0] == deeds[1] else f"{deeds[0]} and then {deeds[1]}"
        sizes = "".join(f", {name} = {size}" for name, size in self.sizes)
        return RaceError(
            f"two workers of `@{kernel.value('symbol')}` {did} cell {list(self.cell)} of shared memory,"
            " and no barrier stands between",
            span=self.second.op.span,
            notes=(
                f"first {self.first.told()}",
                f"then {self.second.told()}",
                f"in program {list(self.program)}{sizes}",
            ),
            fix=self._fix(),
        )

    def _fix(self) -> str:
        if self.first.op is self.second.op and self.first.steps == self.second.steps:
            return "let every element write a cell of its own"
        if self.first.steps[: len(self._loops)] == self.second.steps[: len(self._loops)]:
            return "put a barrier between the two"
        return "put a barrier between the two, where the loop goes from one step to the next"

    @property
    def _loops(self) -> Sequence[SpecOp]:
        """The loops around both."""
        return [loop for loop in loops_around(self.first.op) if loop in loops_around(self.second.op)]
