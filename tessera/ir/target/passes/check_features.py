"""Refuse kernels that use what the machine lacks."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import FeatureError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.target.limits import LEVELS, MATRIX_FEATURES, check_moves
from tessera.types.frozen import frozen


@frozen
class CheckFeatures(Pass):
    """Check that no kernel needs more than the `features` of the machine (T0602); the text stays the same."""

    features: tuple[str, ...] = ()

    def run(self, module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, SpecOp) and op.name.startswith("ttarget.") and "features" in op.kinds:
                self._check(op)

    def _check(self, kernel: SpecOp) -> None:
        missing = [name for name in kernel.value("features") if name not in self.features]
        if not missing:
            check_moves(kernel, self.features)
            return
        listed = ", ".join(missing)
        raise FeatureError(
            f"`@{kernel.value('symbol')}` needs {listed}, and the machine has {', '.join(self.features) or 'none'}",
            span=kernel.span,
            fix=advice_on(missing[0], self.features),
        )


def advice_on(feature: str, features: Sequence[str]) -> str:
    """Who has the feature, and what the machine has in its place."""
    level = next((level for level, names in LEVELS.items() if feature in names), None)
    if level is None:
        return "compile for this machine"
    text = f"{feature} comes with {level}; compile for what the machine has"
    other = next((name for name in MATRIX_FEATURES if name in features), None)
    return f"{text}: dots run on {other} there" if feature in MATRIX_FEATURES and other is not None else text
