"""Promises of fusion: ops that were said to be one kernel are in one group, or the program is refused."""

from __future__ import annotations

from tessera.diagnostics.codes import FusionError
from tessera.ir.base.tape import Record
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.groups import Group, Grouping
from tessera.ir.tile.facets import Library, Pointwise

PLAIN_OPS = "apply the steps as plain ops, which may become kernels of their own"
OWN_KERNEL = "write the steps into a kernel of your own, on its block before it is stored; or apply them as plain ops"

_TAKING = ("contraction", "library")
"""Groups whose kernels have epilogues."""


def check_promises(grouping: Grouping) -> None:
    """Raises FusionError (T0403) for the first op that must share a kernel with what it reads and does not."""
    program = grouping.program
    for number, record in enumerate(program.tape.records):
        lower = spec_of(record).lower
        if not isinstance(lower, Pointwise) or not lower.is_promise:
            continue
        source = program.alias_of(record.operands[1])
        maker = program.makers.get(source, -1)
        own, other = grouping.owner.get(number), grouping.owner.get(maker)
        if own is None or own is not other or own.kind not in _TAKING:
            raise _broken(record, program.tape.records[maker] if maker >= 0 else None, own, other)


def _broken(record: Record, product: Record | None, own: Group | None, other: Group | None) -> FusionError:
    is_own = product is not None and other is not None and other.kind == "library" and not _takes(product)
    if product is None or other is None:
        reason = "what it is applied to is no product of this program"
    else:
        name = product.op.split(".", 1)[1]
        if is_own:
            reason = f"`{name}` is a kernel of its own, which takes no epilogue"
        elif other.kind not in _TAKING:
            reason = f"`{name}` is no product"
        elif own is not None and own.kind not in _TAKING:
            reason = f"fusion with `{name}` is switched off, or one of the steps does not keep its place in the result"
        else:
            reason = f"the steps belong to another product than `{name}`"
    notes = (f"the product is at {product.span}",) if product is not None and product.span is not None else ()
    return FusionError(
        f"this epilogue cannot be one kernel with its product: {reason}",
        span=record.span,
        notes=(*notes, "rule: `epilogue.chain` is one kernel with the product it follows, or an error"),
        fix=OWN_KERNEL if is_own else PLAIN_OPS,
    )


def _takes(product: Record) -> bool:
    lower = spec_of(product).lower
    return isinstance(lower, Library) and lower.takes_epilogue
