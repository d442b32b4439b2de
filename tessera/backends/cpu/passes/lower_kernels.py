"""Lower every tile kernel of a module to Target IR."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from tessera.backends.cpu.block_kernels import is_rowwise
from tessera.backends.cpu.lower import BlockLowering, Lowering, has_dots
from tessera.backends.cpu.match_contraction import can_expand, expand_dots, match_contraction
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.build import replace_ops
from tessera.ir.base.effects import keep_promises
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.target.architectures import host_features, machine_of
from tessera.ir.tile.choices import tensor_core_attributes
from tessera.ir.tile.typed_ops import DotOp
from tessera.types.frozen import frozen
from tessera.types.machine import PLAIN, Machine


@frozen
class LowerKernels(Pass):
    """Replace each `ttile.kernel` by a `ttarget.kernel`, for a machine with `features`, or for this one.

    Before: `ttile.kernel @k` with loads of tiles at index maps. After: `ttarget.kernel @k` with loads of vectors at
    linear offsets, loops of whole steps with tails, contractions as one op.
    """

    is_lowering = True
    features: tuple[str, ...] = ()

    def run(self, module: ModuleOp) -> None:
        machine = machine_of(frozenset(self.features) or host_features())
        replace_ops(module, "ttile.kernel", lambda op: lower_kernel(op, machine))


def lower_kernel(kernel: SpecOp, machine: Machine) -> SpecOp:
    """The `ttarget.kernel` of a `ttile.kernel`.

    A contraction, and a kernel whose tiles fit registers, keep their tiles there; one with dots inside keeps them as
    blocks in scratch, and so does a user's kernel that works on tall tiles row by row.
    """
    _check_units(kernel)
    is_blocked = match_contraction(kernel) is None and (has_dots(kernel) or is_rowwise(kernel))
    target = _lower_blocks(kernel, machine) if is_blocked else Lowering(kernel, machine).run()
    keep_promises(kernel, target)
    return target


def _check_units(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for a kernel with choices for tensor cores, which would mean nothing here."""
    names = tensor_core_attributes(kernel)
    for op in kernel.walk():
        if isinstance(op, DotOp) and op.unit not in ("", PLAIN):
            names.append("unit")
            break
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TargetVerifyError(
            f"`@{kernel.value('symbol')}` has {listed}, and CPUs have no tensor cores",
            span=kernel.span,
            fix=f"leave {listed} out",
        )


def _lower_blocks(kernel: SpecOp, machine: Machine) -> SpecOp:
    """Blocks in scratch; where a user's kernel does not work row by row, dots as loops over tiles in registers."""
    try:
        return BlockLowering(kernel, machine).run()
    except TargetVerifyError:
        if kernel.value("schedule") is None or not can_expand(kernel):
            raise
        return Lowering(expand_dots(kernel), machine).run()
