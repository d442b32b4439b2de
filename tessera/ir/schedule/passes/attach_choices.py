"""Write what a search chose on the groups and collectives of a plan, with who chose it."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, OpResult

from tessera.ir.base.compilation import AUTOTUNE, Choice
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass, user_error
from tessera.ir.schedule.plan import tiles_of, write_choice
from tessera.ir.schedule.typed_ops import CollectiveOp, FuseOp, TileOp
from tessera.types.frozen import frozen


@frozen
class AttachChoices(Pass):
    """Write a tile on groups, and an algorithm and a dtype of the wire on their collectives.

    Before: `tsched.tile %a candidates = [[128, 128, 64], [64, 128, 64]]` and `tsched.collective %a {pattern =
    "all_reduce", axis = "tp"}`. After: the same with `chosen = [128, 128, 64] {source = "autotune"}` and `algo =
    "ring", quantize = "fp8"`. A group without a `tsched.tile` gets one; `group` names the body of those that are meant,
    and nothing means all. What is no candidate, or no algorithm, is refused. In no pipeline: a compilation writes what
    was chosen for its own knobs as it chooses tiles.
    """

    tile: tuple[int, ...] = ()
    algo: str = ""
    quantize: str = ""
    source: str = AUTOTUNE
    group: str = ""

    def run(self, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if self.tile and isinstance(op, FuseOp) and self._is_meant(op) and not tiles_of(op):
                write_choice(op, "", (), Choice(self.tile, self.source))
            elif self.tile and isinstance(op, TileOp) and self._is_meant(_group_of(op)):
                self._write(op, chosen=self.tile, source=self.source)
            elif isinstance(op, CollectiveOp) and self._is_meant(_group_of(op)):
                given = {"algo": self.algo, "quantize": self.quantize}
                self._write(op, **{name: value for name, value in given.items() if value})

    def _is_meant(self, group: Operation | None) -> bool:
        return not self.group or (isinstance(group, FuseOp) and group.body == self.group)

    def _write(self, op: SpecOp, **values: Any) -> None:
        """Write values on an op; raises ScheduleError (T0401) at it where its verifier refuses them."""
        for name, value in values.items():
            op.set_value(name, value)
        try:
            if op.spec.verify is not None:
                op.spec.verify(op)
        except OpError as error:
            raise user_error("schedule", error) from error


def _group_of(op: SpecOp) -> Operation | None:
    value = op.operands[0]
    return value.owner if isinstance(value, OpResult) else None
