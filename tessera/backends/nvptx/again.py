"""Elements of scratch that are computed again where they are read, for rows too wide to be kept anywhere near."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import BlockArgument, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.index_exprs import known_ends

MOST = 24
"""Ops that an element is computed with at most; more are not worth it."""

_SAME = frozenset(
    f"ttile.{name}"
    for names in (
        ("load", "elementwise", "cast", "select", "constant", "broadcast"),
        ("index", "coordinate", "round", "bitcast"),
    )
    for name in names
)
"""Ops that give the same for the same operands; loads of arguments that are not written do."""


@dataclass(frozen=True)
class Again:
    """How a turn of a loop computes what it stores to scratch: `ops` in order, the last value of which is `value`."""

    loop: SpecOp
    store: SpecOp
    ops: tuple[SpecOp, ...]

    @property
    def value(self) -> SSAValue:
        return self.store.operands[0]

    @property
    def turn(self) -> SSAValue:
        return self.loop.regions[0].block.args[0]


def computed_again(kernel: SpecOp) -> dict[SSAValue, Again]:
    """Scratch of a kernel by how its elements can be computed again; nothing where that is not so of all of it."""
    found: dict[SSAValue, Again] = {}
    for op in kernel.walk():
        if isinstance(op, SpecOp) and op.name == "ttile.scratch":
            again = _again(kernel, op.results[0])
            if again is None:
                return {}
            found[op.results[0]] = again
    return found


def _again(kernel: SpecOp, buffer: SSAValue) -> Again | None:
    users = [use.operation for use in buffer.uses]
    stores = [op for op in users if isinstance(op, SpecOp) and op.name == "ttile.store"]
    loads = [op for op in users if isinstance(op, SpecOp) and op.name == "ttile.load"]
    if len(stores) != 1 or len(stores) + len(loads) != len(users):
        return None
    (store,) = stores
    loop = store.parent_op()
    if not isinstance(loop, SpecOp) or loop.name != "ttile.for" or not all(_reads(op, store, loop) for op in loads):
        return None
    ops = _slice(kernel, loop, store.operands[0])
    return None if ops is None else Again(loop, store, ops)


def _reads(load: SpecOp, store: SpecOp, loop: SpecOp) -> bool:
    """Whether a later loop of as many turns reads in each what the one with the store has stored in it."""
    other = load.parent_op()
    if not isinstance(other, SpecOp) or other.name != "ttile.for" or other.parent_block() is not loop.parent_block():
        return False
    is_alike = all(load.value(name) == store.value(name) for name in ("coords", "axes", "map", "bounds", "windows"))
    turns = [part.regions[0].block.args[0] for part in (loop, other)]
    ends = zip(loop.operands[:2], other.operands[:2], strict=True)
    return (
        is_alike
        and store.value("mode") == "set"
        and [*store.operands[2:], *load.operands[1:]] == turns
        and load.results[0].type == store.operands[0].type
        and loop.value("step") == other.value("step")
        and all(_is_same_end(a, b) for a, b in ends)
        and _has_whole_turns(loop)
        and loop.is_before_in_block(other)
    )


def _has_whole_turns(loop: SpecOp) -> bool:
    """Whether no turn of a loop goes beyond its end, where scratch reads as something that is not stored."""
    ends = known_ends(loop)
    return ends is not None and (ends[1] - ends[0]) % loop.value("step") == 0


def _is_same_end(a: SSAValue, b: SSAValue) -> bool:
    left, right = a.owner, b.owner
    if a is b:
        return True
    if not isinstance(left, SpecOp) or not isinstance(right, SpecOp) or not left.name == right.name == "ttile.index":
        return False
    return left.values() == right.values() and list(left.operands) == list(right.operands)


def _slice(kernel: SpecOp, loop: SpecOp, value: SSAValue) -> tuple[SpecOp, ...] | None:
    """Ops of a loop that a value needs, in order; None where it needs what turns carry, or what may change."""
    block = loop.regions[0].block
    needed: set[SSAValue] = {value}
    ops: list[SpecOp] = []
    for op in reversed(list(block.ops)):
        if not needed & set(op.results):
            continue
        if not isinstance(op, SpecOp) or op.name not in _SAME:
            return None
        if op.name == "ttile.load" and not _is_given(kernel, op):
            return None
        ops.append(op)
        needed |= set(op.operands)
    return None if needed & set(block.args[1:]) or len(ops) > MOST else tuple(reversed(ops))


def _is_given(kernel: SpecOp, load: SpecOp) -> bool:
    buffer = load.operands[0]
    return isinstance(buffer, BlockArgument) and buffer.index not in kernel.value("writes")


__all__ = ["Again", "computed_again"]
