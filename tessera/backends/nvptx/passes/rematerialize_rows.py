"""Rematerialize, where it is read, what a kernel would store to scratch and load.

A softmax stores the exponentials of a row and loads them to divide by their sum. A row that no registers hold goes
through memory twice for that; to rematerialize the exponentials from the row costs less, where the row is an argument
and the ops are few.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tessera.backends.nvptx.row_plan import REMATERIALIZED, ROWS
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.tile.indexing import known_ends
from tessera.ir.tile.typed_ops import ForOp, IndexOp, KernelOp, LoadOp, ScratchOp, StoreOp
from tessera.types.frozen import frozen

MOST_OPS = 24
"""Ops that an element is computed with at most; more take longer than a load."""

_PURE = frozenset(
    f"ttile.{name}"
    for names in (
        ("load", "elementwise", "cast", "select", "constant", "broadcast"),
        ("index", "coordinate", "round", "bitcast"),
    )
    for name in names
)
"""Ops that give the same for the same operands; loads of arguments that are not written do."""


class RematerializeRows(Pass):
    """Replace loads of scratch by the ops that computed it, in kernels with `nvptx.rows = "rematerialized"`.

    Before: a loop that stores `exp(x - max)` to a scratch row, and one that loads it. After: two loops that compute
    it, each from the row in memory, and no scratch. `plan_rows` chooses it for rows that no registers hold.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, KernelOp) and ROWS.of(op) == REMATERIALIZED:
                for buffer, recipe in find_recipes(op).items():
                    rematerialize(buffer, recipe)


def rematerialize(buffer: SSAValue, recipe: Recipe) -> None:
    """Compute what is loaded from a buffer in each loop that loads it; the buffer and its store go."""
    for load in [use.operation for use in buffer.uses]:
        if not isinstance(load, LoadOp):
            continue
        values: dict[SSAValue, SSAValue] = {recipe.index: load.at[0]}
        block = load.parent_block()
        assert block is not None
        for op in recipe.ops:
            block.insert_op_before(op.clone(values), load)
        Rewriter.replace_op(load, [], [values[recipe.value]])
    scratch = buffer.owner
    assert isinstance(scratch, Operation)
    for op in (recipe.store, scratch):
        Rewriter.erase_op(op)


# What can be rematerialized, and by which ops.


@frozen
class Recipe:
    """How an iteration computes what it stores to scratch: by `ops` in order, the last of which gives `value`."""

    loop: ForOp
    store: StoreOp
    ops: tuple[SpecOp, ...]

    @property
    def value(self) -> SSAValue:
        return self.store.tile

    @property
    def index(self) -> SSAValue:
        """The loop's index."""
        return self.loop.body.block.args[0]


def find_recipes(kernel: KernelOp) -> dict[SSAValue, Recipe]:
    """All scratch of a kernel, each with how it is rematerialized; nothing where some of it cannot be."""
    found: dict[SSAValue, Recipe] = {}
    for op in kernel.walk():
        if isinstance(op, ScratchOp):
            recipe = _recipe(kernel, op.result)
            if recipe is None:
                return {}
            found[op.result] = recipe
    return found


def _recipe(kernel: KernelOp, buffer: SSAValue) -> Recipe | None:
    users = [use.operation for use in buffer.uses]
    stores = [op for op in users if isinstance(op, StoreOp)]
    loads = [op for op in users if isinstance(op, LoadOp)]
    if len(stores) != 1 or len(stores) + len(loads) != len(users):
        return None
    (store,) = stores
    loop = store.parent_op()
    if not isinstance(loop, ForOp) or not all(_reads_same(op, store, loop) for op in loads):
        return None
    ops = _slice(kernel, loop, store.tile)
    return None if ops is None else Recipe(loop, store, ops)


def _reads_same(load: LoadOp, store: StoreOp, loop: ForOp) -> bool:
    """Whether a later loop of as many iterations reads in each what the one with the store has stored in it."""
    other = load.parent_op()
    if not isinstance(other, ForOp) or other.parent_block() is not loop.parent_block():
        return False
    is_alike = all(load.value(name) == store.value(name) for name in ("coords", "axes", "map", "bounds", "windows"))
    indices = [part.body.block.args[0] for part in (loop, other)]
    return (
        is_alike
        and store.mode == "set"
        and [*store.at, *load.at] == indices
        and load.result.type == store.tile.type
        and loop.step == other.step
        and _is_same_end(loop.low, other.low)
        and _is_same_end(loop.high, other.high)
        and _has_whole_steps(loop)
        and loop.is_before_in_block(other)
    )


def _has_whole_steps(loop: ForOp) -> bool:
    """Whether no iteration of a loop goes beyond its end, where scratch reads as something that is not stored."""
    ends = known_ends(loop)
    return ends is not None and (ends[1] - ends[0]) % loop.step == 0


def _is_same_end(a: SSAValue, b: SSAValue) -> bool:
    left, right = a.owner, b.owner
    if a is b:
        return True
    if not isinstance(left, IndexOp) or not isinstance(right, IndexOp):
        return False
    return left.values() == right.values() and list(left.operands) == list(right.operands)


def _slice(kernel: KernelOp, loop: ForOp, value: SSAValue) -> tuple[SpecOp, ...] | None:
    """Ops of a loop that a value needs, in order; None where it needs what iterations carry, or what may change."""
    block = loop.body.block
    needed: set[SSAValue] = {value}
    ops: list[SpecOp] = []
    for op in reversed(list(block.ops)):
        if not needed & set(op.results):
            continue
        if not isinstance(op, SpecOp) or op.name not in _PURE:
            return None
        if isinstance(op, LoadOp) and not _is_constant(kernel, op.buffer):
            return None
        ops.append(op)
        needed |= set(op.operands)
    return None if needed & set(block.args[1:]) or len(ops) > MOST_OPS else tuple(reversed(ops))


def _is_constant(kernel: KernelOp, buffer: SSAValue) -> bool:
    """Whether a buffer is an argument that the kernel does not write."""
    return isinstance(buffer, BlockArgument) and buffer.index not in kernel.writes
