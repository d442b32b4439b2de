"""What may leave a stage: the exit check of its ops, with the reason for a refusal."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tessera.ir.base.op import OpError, SpecOp
from tessera.types.frozen import frozen


@frozen
class Legality:
    """The exit rule of one stage: dialects whose ops may leave it, and a closer look at each op.

    `refusal(op)` gives the reason why an op may not leave, or None.
    """

    stage: str
    dialects: frozenset[str]
    refusal: Callable[[SpecOp], str | None] | None = None

    def check(self, module: Operation) -> None:
        """Raises `OpError` at the first op that may not leave."""
        for op in module.walk():
            if isinstance(op, ModuleOp):
                continue
            if op.name.split(".", 1)[0] not in self.dialects:
                raise OpError(op, f"`{op.name}` may not leave {self.stage}: only ops of {self._listed} may")
            reason = self.refusal(op) if self.refusal is not None and isinstance(op, SpecOp) else None
            if reason is not None:
                raise OpError(op, f"`{op.name}` may not leave {self.stage}: {reason}")

    @property
    def _listed(self) -> str:
        return ", ".join(sorted(self.dialects))
