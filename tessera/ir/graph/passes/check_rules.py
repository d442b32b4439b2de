"""Check every rule of Graph IR and change nothing; a failure is an error of the text."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import Pass, check_entry, user_error
from tessera.ir.graph.pipeline import EXIT
from tessera.types.frozen import frozen


@frozen
class CheckRules(Pass):
    """Check shapes, dtypes, dominance, symbols, and that all ops are `tgraph`; with `lowered`, also the exit verifier.

    Before and after are the same text.
    """

    lowered: bool = False

    def run(self, module: ModuleOp) -> None:
        check_entry("graph", module)
        for op in module.ops:
            if not isinstance(op, SpecOp) or op.spec.form != "function":
                raise user_error("graph", OpError(op, f"`{op.name}` stands outside of any function"))
        if self.lowered:
            try:
                EXIT.check(module)
            except OpError as error:
                raise user_error("graph", error) from error
