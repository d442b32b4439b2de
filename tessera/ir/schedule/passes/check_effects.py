"""Check that a program declares what its host program and its kernels do, and change nothing."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.effects import check_kernel_effects, declared_effects, undeclared_error
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.plan import own_effects, programs_in
from tessera.ir.tile.typed_ops import KernelOp
from tessera.types.effect import PURE

_OWN = frozenset({"memory"})
"""Host programs and kernels work in memory by their nature; that is not worth saying."""


class CheckEffects(Pass):
    """Check that a program declares the effects of its callbacks and of its kernels.

    Before and after are the same text. A program that declares nothing at all promises nothing.
    """

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        for kernel in kernels.values():
            if isinstance(kernel, KernelOp):
                check_kernel_effects(kernel)
        for program in programs_in(module):
            _check(program, kernels)


def _check(program: SpecOp, kernels: Mapping[str, SpecOp]) -> None:
    declared = declared_effects(program)
    if declared is None:
        return
    for op in program.walk():
        extra = own_effects(op, kernels).without({*declared, *_OWN}) if op is not program else PURE
        if extra:
            raise undeclared_error(op, program, declared, extra)
