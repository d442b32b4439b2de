"""Drop the clones of kernels that no launch needs, and the dots of those that only launches with empty tensors need."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument
from xdsl.rewriter import Rewriter

from tessera.backends.nvptx.mma.fit import dots_in, tile_kernels, units_in
from tessera.backends.nvptx.tensor_cores import MMA_SYNC
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass, refuse
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import CallOp
from tessera.ir.tile.choices import SHARED
from tessera.ir.tile.indexing import index_expr
from tessera.ir.tile.typed_ops import ForOp, KernelOp, LoadOp, StoreOp
from tessera.types.dim import Dim
from tessera.types.frozen import frozen


@frozen
class PruneFallbacks(Pass):
    """Decide what becomes of each `@k__plain` that stands beside a kernel `@k` with dots.

    TMA has no descriptor for a tensor without elements, so such a launch goes to the fallback. Where each dim that may
    be 0 leaves either no programs or no steps of the loops with dots, the fallback needs no dots at all, and is as
    small as the epilogue that follows them.

    Before: `@k` on `wgmma` and `@k__plain`. After: `@k` alone where every call has static sizes of at least 1, where an
    empty tensor leaves no program at all, or where copies are by threads (`mma.sync` takes empty tensors); else both,
    the loops with dots of `@k__plain` taken out where they never run. Where no tensor cores took `@k`, its clone takes
    its place, as it was.
    """

    def run(self, module: ModuleOp) -> None:
        kernels = {kernel.symbol: kernel for kernel in tile_kernels(module)}
        for clone in [kernel for kernel in kernels.values() if kernel.variant_of and dots_in(kernel)]:
            kernel = kernels.get(clone.variant_of)
            if kernel is None or _signature(kernel) != _signature(clone):
                refuse(clone, f"`@{clone.symbol}` is a variant of `@{clone.variant_of}`, which has other arguments")
            _decide(module, kernel, clone)


def _signature(kernel: KernelOp) -> tuple[object, ...]:
    return tuple(kernel.symbols), tuple(argument.type for argument in kernel.regions[0].block.args)


def _decide(module: ModuleOp, kernel: KernelOp, clone: KernelOp) -> None:
    units = units_in(kernel)
    if units is None:
        clone.set_value("symbol", kernel.symbol)
        clone.set_value("variant_of", "")
        clone.set_value("reasons", kernel.reasons)
        Rewriter.erase_op(kernel)
    elif units is MMA_SYNC or _is_never_empty(module, kernel.symbol):
        Rewriter.erase_op(clone)
    else:
        described = _described_arguments(kernel, stores=units.sends)
        if _has_no_programs(kernel, described):
            Rewriter.erase_op(clone)
        else:
            drop_dots(clone, described)


def _is_never_empty(module: ModuleOp, symbol: str) -> bool:
    """Whether all calls of a kernel have static sizes of at least 1."""
    calls = [op for program in programs_in(module) for op in program.walk() if isinstance(op, CallOp)]
    sizes = [op.sizes for op in calls if op.kernel == symbol]
    return all(size.value is not None and size.value > 0 for given in sizes for size in given)


def _described_arguments(kernel: KernelOp, *, stores: bool) -> set[int]:
    """The arguments of a kernel with spaces that TMA copies, by their numbers."""
    kinds = (LoadOp, StoreOp) if stores else (LoadOp,)
    copied = [op.buffer for op in kernel.walk() if isinstance(op, kinds) and op.space == SHARED]
    return {buffer.index for buffer in copied if isinstance(buffer, BlockArgument)}


def _has_no_programs(kernel: KernelOp, described: Collection[int]) -> bool:
    """Whether a kernel has no programs wherever a tensor with a TMA descriptor has no elements: nothing is launched."""
    types = [kernel.regions[0].block.args[number].type for number in sorted(described)]
    for dim in {dim for type_ in types if isinstance(type_, BufferAttr) for dim in type_.shape}:
        if dim.value is not None and dim.value > 0:
            continue
        if len(dim.terms) != 1 or dim.terms[0][1] < 1 or any(atom.kind != "symbol" for atom in dim.terms[0][0]):
            return False
        for atom in dim.terms[0][0]:
            if not any(extent.substitute({atom.name: Dim.constant(0)}).value == 0 for extent in kernel.grid):
                return False
    return True


def drop_dots(kernel: KernelOp, described: Collection[int]) -> bool:
    """Take the loops with dots out of a kernel; False where one of them may run although a tensor is empty.

    Dots outside of loops, whose K is all in one block, leave what they are added to.
    """
    loops = [op for op in kernel.walk() if isinstance(op, ForOp) and dots_in(op) and not _stores(op)]
    single = [dot for dot in dots_in(kernel) if not any(_is_inside(dot, loop) for loop in loops)]
    if any(isinstance(dot.parent_op(), ForOp) for dot in single):
        return False
    outer = [loop for loop in loops if not any(_is_inside(loop, other) for other in loops if other is not loop)]
    if not all(_is_idle(kernel, outer, dim, bool(single)) for dim in _tiled_dims(kernel, described)):
        return False
    for dot in single:
        dot.results[0].replace_all_uses_with(dot.operands[2])
        Rewriter.erase_op(dot)
    for loop in outer:
        for result, start in zip(loop.results, loop.operands[2:], strict=True):
            result.replace_all_uses_with(start)
        Rewriter.erase_op(loop)
    return True


def _tiled_dims(kernel: KernelOp, described: Collection[int]) -> list[Dim]:
    """The dims of tensors with TMA descriptors that tiles extend in; of others a program reads no element."""
    found: dict[Dim, None] = {}
    for op in kernel.walk():
        buffer = op.buffer if isinstance(op, LoadOp | StoreOp) else None
        if isinstance(op, LoadOp | StoreOp) and isinstance(buffer, BlockArgument) and buffer.index in described:
            assert isinstance(buffer.type, BufferAttr)
            axes = set(op.axes)
            found |= {dim: None for dim, at in zip(buffer.type.shape, op.map, strict=True) if at.symbols & axes}
    return list(found)


def _is_idle(kernel: KernelOp, loops: Sequence[SpecOp], dim: Dim, is_always: bool) -> bool:
    """Whether nothing is multiplied where a dim is 0: there is no program, or no step of loops.

    `is_always` where a program multiplies outside of loops.
    """
    if dim.value is not None:
        return dim.value > 0
    if dim.symbol_name is None:
        return False
    none = {dim.symbol_name: Dim.constant(0)}
    if any(extent.substitute(none).value == 0 for extent in kernel.grid):
        return True
    if is_always:
        return False
    ends = [index_expr(loop.operands[1]) for loop in loops]
    return all(end is not None and _is_at_most_zero(end.substitute(none)) for end in ends)


def _is_at_most_zero(dim: Dim) -> bool:
    """Whether an expression is 0 or less, whatever its names stand for: numbers, and min/max of such."""
    if dim.value is not None:
        return dim.value <= 0
    if len(dim.terms) != 1 or len(dim.terms[0][0]) != 1 or dim.terms[0][1] < 0:
        return False
    (atom,) = dim.terms[0][0]
    decide = {"min": any, "max": all}.get(atom.kind)
    return decide is not None and decide(_is_at_most_zero(arg) for arg in atom.args)


def _stores(loop: ForOp) -> bool:
    return any(isinstance(op, StoreOp) for op in loop.walk())


def _is_inside(op: object, loop: SpecOp) -> bool:
    return any(one is op for one in loop.walk())
