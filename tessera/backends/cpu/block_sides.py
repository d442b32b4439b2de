"""What products on CPUs ask of their kernel: where their sides lie in memory, which tiles are lines, refusals."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TileAttr
from tessera.ir.tile.ops.access import is_shared
from tessera.types.dtype import DType
from tessera.types.promotion import holds

_BY_ELEMENT = ("ttile.elementwise", "ttile.cast", "ttile.round", "ttile.bitcast", "ttile.select", "ttile.clip")
_MADE = (*_BY_ELEMENT, "ttile.load", "ttile.constant", "ttile.coordinate")


def lines_of(kernel: SpecOp) -> set[SSAValue]:
    """Tiles of one axis that lie along rows: those spread down a block, and all they are computed from.

    Any other tile of one axis is a column. Raises TargetVerifyError for a line that is used as a column too.
    """
    found: set[SSAValue] = set()
    waiting = [
        op.operands[0]
        for op in kernel.walk()
        if isinstance(op, SpecOp) and op.name == "ttile.broadcast" and op.value("axes") == (1,)
    ]
    while waiting:
        value = waiting.pop()
        if value in found or not isinstance(value.type, TileAttr) or len(value.type.shape) != 1:
            continue
        op = value.op if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or op.name not in _MADE or _is_written(kernel, op):
            raise TargetVerifyError(
                "what is spread down a block is loaded from memory that is only read, or computed from such, on CPUs",
                span=op.span if isinstance(op, SpecOp) else None,
            )
        found.add(value)
        waiting += op.operands if op.name in _BY_ELEMENT else []
    for value in found:
        for use in value.uses:
            user = use.operation
            is_spread = user.name == "ttile.broadcast" and isinstance(user, SpecOp) and user.value("axes") == (1,)
            if not is_spread and not any(result in found for result in user.results):
                assert isinstance(user, SpecOp)
                raise TargetVerifyError("a tile is used along rows and down columns of a block", span=user.span)
    return found


def _is_written(kernel: SpecOp, load: SpecOp) -> bool:
    """Whether a load reads what the kernel may write."""
    if load.name != "ttile.load":
        return False
    arguments: list[SSAValue] = list(kernel.regions[0].block.args)
    return load.operands[0] not in arguments or arguments.index(load.operands[0]) in kernel.value("writes")


def check_memory(kernel: SpecOp) -> None:
    """Rows go one after the other here, each through all ops between two products: none waits for others."""
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.results and is_shared(op.results[0]):
            raise TargetVerifyError("a kernel that multiplies tiles has no shared memory on CPUs", span=op.span)


def check_products(kernel: SpecOp) -> None:
    """Raises TargetVerifyError for what no walk over rows computes."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        if op.name == "ttile.dot":
            memory_behind(op.operands[1], op)
        elif op.name in ("ttile.reduce", "ttile.arg_reduce") and op.value("axis") == 0:
            raise TargetVerifyError(
                "a kernel that multiplies tiles folds them along their rows on CPUs, not down their columns",
                span=op.span,
                fix="transpose the product, or fold in a kernel of its own",
            )


def memory_behind(value: SSAValue, product: SpecOp) -> tuple[SpecOp, bool]:
    """The load that a product's operand comes from, and whether it is read transposed.

    The product reads that memory itself, so raises TargetVerifyError where another op makes the operand, or a cast on
    the way changes numbers.
    """
    turned, casts = False, list[tuple[DType, DType]]()
    while isinstance(value, OpResult) and value.op.name in ("ttile.cast", "ttile.transpose"):
        turned ^= value.op.name == "ttile.transpose"
        source = value.op.operands[0]
        assert isinstance(value.type, TileAttr)
        assert isinstance(source.type, TileAttr)
        casts.append((source.type.dtype, value.type.dtype))
        value = source
    fix = "store the tile to scratch first, and load it from there"
    load = value.op if isinstance(value, OpResult) else None
    if not isinstance(load, SpecOp) or load.name != "ttile.load":
        raise TargetVerifyError("the right operand of a dot is read from memory on CPUs", span=product.span, fix=fix)
    memory = casts[-1][0] if casts else None
    for _, target in casts:
        if memory is not None and not holds(target, memory):
            raise TargetVerifyError(
                f"{memory} is rounded to {target} on its way to a product, which reads memory itself on CPUs",
                span=product.span,
                fix=fix,
            )
    return load, turned
