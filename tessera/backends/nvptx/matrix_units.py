"""Which matrix units run a kernel: the best of the machine that take it, and why those before them did not."""

from __future__ import annotations

from collections.abc import Callable

from tessera.backends.nvptx.ampere.lower import lower_warp_kernel
from tessera.backends.nvptx.blackwell.lower import lower_tensor_kernel
from tessera.backends.nvptx.mma.fit import Choice, refusing
from tessera.backends.nvptx.passes.broadcast_scalars import broadcast_ones, broadcast_scalars
from tessera.backends.nvptx.passes.fit_steps import fit_steps, unfit_loops
from tessera.backends.nvptx.passes.select_mma import chosen_units
from tessera.backends.nvptx.tensor_cores import MMA_SYNC, TCGEN05, WGMMA
from tessera.ir.base.op import SpecOp
from tessera.types.frozen import frozen
from tessera.types.machine import AUTOMATIC, PLAIN, Machine

KERNELS = {
    "ttarget.matrix_kernel": WGMMA.name,
    "ttarget.warp_kernel": MMA_SYNC.name,
    "ttarget.tensor_kernel": TCGEN05.name,
}
"""The units that a kernel is for, by its op."""


@frozen
class Lowered:
    """A kernel for matrix units, or None where no units take it; `said` is what each said that did not."""

    kernel: SpecOp | None
    said: tuple[str, ...]


def lower_to_units(
    kernel: SpecOp, machine: Machine, asked: str, warpgroups: Callable[[SpecOp, Machine], SpecOp]
) -> Lowered:
    """A `ttile.kernel` for the units that are asked for, or for the best that take it."""
    ways = {WGMMA.name: warpgroups, MMA_SYNC.name: lower_warp_kernel, TCGEN05.name: lower_tensor_kernel}
    kernel, choice = fitted(kernel, machine, asked)
    if choice.units is None:
        return Lowered(None, choice.said)
    with refusing(kernel, "walk", "roles", "form", "epilogue"):
        return Lowered(ways[choice.units.name](kernel, machine), choice.said)


def fitted(kernel: SpecOp, machine: Machine, asked: str = AUTOMATIC) -> tuple[SpecOp, Choice]:
    """A kernel in steps that units take, and those that do: no depth of a block is to be what decides over bits."""
    if broadcast_ones(kernel):
        kernel = kernel.clone()
        broadcast_scalars(kernel)
    if unfit_loops(kernel):
        kernel = kernel.clone()
        fit_steps(kernel)
    choice = chosen_units(kernel, machine, asked)
    if choice.units is None and unfit_loops(kernel, shallow=True):
        shallow = kernel.clone()
        fit_steps(shallow, shallow=True)
        again = chosen_units(shallow, machine, asked)
        kernel, choice = (kernel, choice) if again.units is None else (shallow, again)
    return kernel, choice


def units_lines(kernel: SpecOp, found: Lowered) -> list[str]:
    """What `explain` says of a kernel with products: where it runs, and why not elsewhere."""
    if not any(op.name == "ttile.dot" for op in kernel.walk()):
        return []
    name = KERNELS[found.kernel.name] if found.kernel is not None else PLAIN
    text = f"{kernel.value('symbol')}: {name}"
    return [f"{text} ({'; '.join(found.said)})" if found.said else text]
