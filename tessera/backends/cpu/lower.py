"""Tile IR to Target IR for cpu: which of the two lowerings a kernel takes."""

from __future__ import annotations

from tessera.backends.cpu.expand_products import expanded, may_expand
from tessera.backends.cpu.lower_blocks import BlockLowering, has_inner_products
from tessera.backends.cpu.lower_tiles import Lowering
from tessera.backends.cpu.match_contraction import match_contraction
from tessera.backends.cpu.rowwise import is_rowwise
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.choices import said_for_units
from tessera.types.machine import PLAIN, Machine


def lower_kernel(kernel: SpecOp, machine: Machine) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel`.

    A contraction, and a kernel whose tiles fit registers, keep their tiles there; one that multiplies tiles on the way
    keeps them as blocks in scratch, and so does one of a user's that works on tall tiles row by row.
    """
    _check_units(kernel)
    is_blocked = match_contraction(kernel) is None and (has_inner_products(kernel) or is_rowwise(kernel))
    target = _lower_blocks(kernel, machine) if is_blocked else Lowering(kernel, machine).run()
    keep_promises(kernel, target)
    return target


def _check_units(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for a kernel that says how it runs on matrix units: none are here, and it would not."""
    names = said_for_units(kernel)
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttile.dot" and op.value("unit") not in ("", PLAIN):
            names.append("unit")
            break
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TargetVerifyError(
            f"`@{kernel.value('symbol')}` says {listed}, and cpu has no matrix units",
            span=kernel.span,
            fix=f"leave {listed} out",
        )


def _lower_blocks(kernel: SpecOp, machine: Machine) -> SpecOp:
    """Blocks in scratch; where a user's do not go row by row, products as loops over tiles in registers."""
    try:
        return BlockLowering(kernel, machine).run()
    except TargetVerifyError:
        if kernel.value("schedule") is None or not may_expand(kernel):
            raise
        return Lowering(expanded(kernel), machine).run()
