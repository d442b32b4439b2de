"""Write on every op of a host program what it costs, and on the program their sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import count

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.spec import Cost
from tessera.ir.schedule.costs import PARTS, charge_of, nanoseconds, read_charge
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import CallOp, ForOp, FuseOp, WhileOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.machine import Machine


@frozen
class AnnotateCosts(Pass):
    """Give each op its `flops`, `bytes` and `time`, from the innermost out.

    Before: `tsched.copy %a, %b` in a `tsched.while`. After: `tsched.copy %a, %b {flops = 0, bytes = 8*B, time = ...}`,
    and the loop has `trips = trips0` and that cost times `trips0`. What holds a call of unknown cost gets none.
    """

    machine: Machine = field(default_factory=lambda: Machine("generic"))

    def run(self, module: ModuleOp) -> None:
        for program in programs_in(module):
            known = {symbol for op in program.walk() if isinstance(op, SpecOp) for symbol in _symbols_of(op)}
            names = (name for name in map("trips{}".format, count()) if name not in known)
            self._annotate(program, names)

    def _annotate(self, op: SpecOp, names: Iterator[str]) -> None:
        if isinstance(op, WhileOp | ForOp) and op.trips is None:
            op.trips = (op.length if isinstance(op, ForOp) else None) or Dim.symbol(next(names))
        for region in op.regions:
            for inner in region.block.ops:
                assert isinstance(inner, SpecOp)
                self._annotate(inner, names)
        if isinstance(op, FuseOp | CallOp) and op.time is None and op.flops is not None and op.bytes is not None:
            op.time = nanoseconds(Cost(op.flops, op.bytes), self.machine)
        charge = charge_of(op)
        for name in PARTS if charge is not None and charge != read_charge(op) else ():
            op.set_value(name, getattr(charge, name))


def _symbols_of(op: SpecOp) -> Iterator[str]:
    """Sizes that a cost can name: those of kernels that are called, and of buffers."""
    for value in (*op.operands, *op.results, *(argument for region in op.regions for argument in region.block.args)):
        yield from getattr(getattr(value.type, "data", None), "symbols", ())
    yield from (symbol for dim in (op.value("sizes") if isinstance(op, CallOp) else ()) for symbol in dim.symbols)
