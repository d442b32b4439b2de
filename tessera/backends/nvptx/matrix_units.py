"""Which matrix units run a kernel: the best of the machine that take it, and why those before them did not."""

from __future__ import annotations

from collections.abc import Callable

from tessera.backends.nvptx.ampere_lower import lower_warp_kernel
from tessera.backends.nvptx.blackwell_lower import lower_tensor_kernel
from tessera.backends.nvptx.matrix_plan import UnfitError
from tessera.ir.base.op import SpecOp
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

AUTOMATIC = "automatic"
PLAIN = "multiply-adds"
WARPS, WARPGROUPS, TENSORS = "mma.sync", "wgmma", "tcgen05"
_ORDER = {WARPGROUPS: (WARPGROUPS,), TENSORS: (TENSORS, WARPS), WARPS: (WARPS,)}
"""The best units that a machine may have, each with what takes over where they do not fit."""
KERNELS = {"ttarget.matrix_kernel": WARPGROUPS, "ttarget.warp_kernel": WARPS, "ttarget.tensor_kernel": TENSORS}
"""The units that a kernel is for, by its op."""


def units_of(machine: Machine) -> tuple[str, ...]:
    """What `matrix.units` can be on a machine."""
    found = tuple(name for name in (TENSORS, WARPGROUPS, WARPS) if machine.has(name))
    return (AUTOMATIC, *found, PLAIN)


@frozen
class Units:
    """A kernel for matrix units, or None where no units take it; `said` is what each said that did not."""

    kernel: SpecOp | None
    said: tuple[str, ...]


def lower_to_units(
    kernel: SpecOp, machine: Machine, asked: str, warpgroups: Callable[[SpecOp, Machine], SpecOp]
) -> Units:
    """A `ttile.kernel` for the units that are asked for, or for the best that take it."""
    if asked == AUTOMATIC:
        tried = next((ways for name, ways in _ORDER.items() if machine.has(name)), ())
    else:
        tried = () if asked == PLAIN else (asked,)
    ways = {WARPGROUPS: warpgroups, WARPS: lower_warp_kernel, TENSORS: lower_tensor_kernel}
    said: list[str] = []
    for name in tried:
        try:
            return Units(ways[name](kernel, machine), tuple(said))
        except UnfitError as error:
            said.append(f"{name}: {error}")
    return Units(None, tuple(said))


def units_lines(kernel: SpecOp, found: Units) -> list[str]:
    """What `explain` says of a kernel with products: where it runs, and why not elsewhere."""
    if not any(op.name == "ttile.dot" for op in kernel.walk()):
        return []
    name = KERNELS[found.kernel.name] if found.kernel is not None else PLAIN
    text = f"{kernel.value('symbol')}: {name}"
    return [f"{text} ({'; '.join(found.said)})" if found.said else text]
