"""Two rewrites of loops and blocks of ops while they are written: split reductions, and a version without edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from tessera.backends.cpu.registers import Vectors
from tessera.ir.base.op import SpecOp
from tessera.ir.target.llvm.instructions import Value, dim_value
from tessera.ir.target.typed_ops import ClipOp, LoadOp, StoreOp
from tessera.ir.target.types import VectorAttr
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.backends.cpu.emit import Emitter
    from tessera.ir.target.typed_ops import LoopOp


# Loops over rows in two: first the reductions of several rows, then what each row does with its result. A reduction
# ends in a chain of dependent steps, and what follows waits for it; a CPU looks too few instructions ahead to begin the
# next row meanwhile. Reductions of several rows in one short loop overlap.

_ROWS = 16
"""Rows reduced before the first of them is finished: few enough to stay in the nearest cache."""
_WORTH = 4
"""Vectors of a row from which on its reduction is worth a loop of its own."""
_PURE = frozenset(["load", "clip", "reduce", "elementwise", "select", "constant", "index", "cast", "broadcast"])


@frozen
class Split:
    """A body in two: the ops that reduce, the ops of the second loop, and the scalars kept between them."""

    first: tuple[SpecOp, ...]
    second: tuple[SpecOp, ...]
    saved: tuple[SSAValue, ...]


def find_split(op: LoopOp) -> Split | None:
    """How the body of a loop is cut, or None where there is nothing to gain, or rows may see each other."""
    block = op.regions[0].block
    ops = [part for part in block.ops if isinstance(part, SpecOp)]
    if op.step != 1 or len(block.args) != 1 or any(part.regions for part in ops):
        return None
    reduced = _depending_on_reductions(ops)
    wanted = [part.operands[0] for part in ops if part.spec.short_name == "broadcast" and part.operands[0] in reduced]
    first = _slice(ops, wanted)
    if not wanted or not all(part.spec.short_name in _PURE for part in first):
        return None
    if not all(_keeps_to_its_row(part, ops, block.args[0]) for part in first if isinstance(part, LoadOp)):
        return None
    second = [part for part in ops if part not in first or not any(value in reduced for value in part.results)]
    used = {value for part in second for value in part.operands}
    saved = [value for part in first if part not in second for value in part.results if value in used]
    if any(not isinstance(value.type, VectorAttr) or value.type.shape for value in saved):
        return None
    return Split(tuple(first), tuple(second), tuple(saved))


def _depending_on_reductions(ops: Sequence[SpecOp]) -> set[SSAValue]:
    """What is computed from the reduction of a long row, directly or not."""
    found: set[SSAValue] = set()
    for op in ops:
        if _is_long_reduction(op) or any(value in found for value in op.operands):
            found.update(op.results)
    return found


def _is_long_reduction(op: SpecOp) -> bool:
    if op.spec.short_name != "reduce":
        return False
    type = op.operands[0].type
    return isinstance(type, VectorAttr) and len(type.shape) == 1 and (type.shape[0].value or 0) >= _WORTH * 16


def _slice(ops: Sequence[SpecOp], wanted: Sequence[SSAValue]) -> list[SpecOp]:
    """The ops that some values are computed by."""
    needed = set(wanted)
    for op in reversed(ops):
        if any(value in needed for value in op.results):
            needed.update(op.operands)
    return [op for op in ops if any(value in needed for value in op.results)]


def _keeps_to_its_row(load: LoadOp, ops: Sequence[SpecOp], row: SSAValue) -> bool:
    """Whether no other row writes what this one reads, so that it may be read before they do."""
    for op in ops:
        if not isinstance(op, StoreOp):
            if not _is_read_only(op) and load.operands[0] in op.operands:
                return False
        elif op.operands[1] is load.operands[0] and not _is_same_part(load, op, row):
            return False
    return True


def _is_read_only(op: SpecOp) -> bool:
    return op.spec.short_name in _PURE or op.spec.short_name == "yield"


def _is_same_part(load: LoadOp, store: StoreOp, row: SSAValue) -> bool:
    """Whether both access the same part of a row, and no two rows share it."""
    names, offset = load.coords, load.offset
    if (names, offset) != (store.coords, store.offset):
        return False
    pairs = list(zip(load.operands[1:], store.operands[2:], strict=False))
    if len(pairs) != len(names) or not all(_is_same_index(*pair) for pair in pairs):
        return False
    at = [name for name, (index, _) in zip(names, pairs, strict=True) if index is row]
    parts = offset.coefficient(at[0]) if len(at) == 1 else None
    widths = [_elements(load.results[0]), _elements(store.operands[0])]
    return parts is not None and parts[0].value is not None and all(width <= parts[0].value for width in widths)


def _elements(value: SSAValue) -> int:
    assert isinstance(value.type, VectorAttr)
    total = Dim.constant(1)
    for dim in value.type.shape:
        total = total * dim
    return total.value or 0


def _is_same_index(a: SSAValue, b: SSAValue) -> bool:
    if a is b:
        return True
    makers = [value.owner for value in (a, b)]
    exprs = [
        op.value("expr")
        for op in makers
        if isinstance(op, SpecOp) and op.spec.short_name == "index" and not op.operands
    ]
    return len(exprs) == 2 and exprs[0] == exprs[1]


def emit_split(emitter: Emitter, op: LoopOp, split: Split) -> None:
    """Write the two loops, a few rows at a time."""
    f = emitter.f
    low, high, _ = emitter.bounds(op)
    emitter.prepare_body(op)
    slots: dict[SSAValue, tuple[Value, str]] = {}
    for value in split.saved:
        layout, dtype = emitter.layout(value)
        type_ = Vectors(layout, dtype, lambda _: Value("", "")).type
        slots[value] = (f.alloca(type_, _ROWS), type_)

    def rows(base: Value) -> None:
        end = f.smin(f.add(base, _ROWS), high)

        def reduce(row: Value) -> None:
            def save() -> None:
                for value, (slot, type_) in slots.items():
                    f.store(emitter.blocks[value][0], f.gep(slot, f.sub(row, base), type_))

            _emit_iteration(emitter, op, row, split.first, save)

        def finish(row: Value) -> None:
            for value, (slot, type_) in slots.items():
                layout, dtype = emitter.layout(value)
                emitter.blocks[value] = Vectors.of(layout, dtype, [f.load(f.gep(slot, f.sub(row, base), type_), type_)])
            _emit_iteration(emitter, op, row, split.second, lambda: None)

        f.loop(base, end, 1, reduce)
        f.loop(base, end, 1, finish)

    f.loop(low, high, _ROWS, rows)


def _emit_iteration(emitter: Emitter, op: SpecOp, row: Value, ops: Sequence[SpecOp], then: Callable[[], None]) -> None:
    emitter.indices[op.regions[0].block.args[0]] = row
    with emitter.own_reads():
        emitter.run_ops(ops, then)


# The remainder of a block of ops in two versions: one where nothing reaches beyond an edge, one where something may.

_ALIKE = ("coords", "axes", "axis", "bound")

"""Vectors of a clipped row from which on one branch costs less than a mask for each."""


@frozen
class Version:
    """What is known where one of two versions is written: whether the whole row of this clip is there."""

    clip: ClipOp
    is_inside: bool

    def is_whole(self, clip: SpecOp) -> bool:
        """Whether a clip cuts nothing off: it has the bound that was asked about, at the same coordinates."""
        ours = (self.clip.operands[1:], *(self.clip.value(name) for name in _ALIKE))
        return self.is_inside and ours == (clip.operands[1:], *(clip.value(name) for name in _ALIKE))


def is_worth_versions(emitter: Emitter, op: SpecOp) -> bool:
    """Whether an op is the clip of a row long enough to ask once whether all of it is there."""
    if not isinstance(op, ClipOp) or emitter.version is not None:
        return False
    layout, _ = emitter.layout(op.result)
    axes, bound = op.axes, op.bound
    return len(axes) == 1 and op.axis == axes[0] not in bound.symbols and layout.count >= _WORTH


def emit_versions(emitter: Emitter, ops: Sequence[SpecOp], then: Callable[[], None] | None = None) -> None:
    """Write `ops`, which begin with a clip, and what `then` writes: for whole rows, and for others."""
    clip, ended = ops[0], ops[-1]
    assert isinstance(clip, ClipOp)
    given = ended.operands if ended.spec.short_name == "yield" else ()
    _write_what_is_used(emitter, ops)

    def arm(is_inside: bool) -> list[Value]:
        emitter.version = Version(clip, is_inside)
        emitter.forget()
        emitter.run_ops(ops, then)
        emitter.forget()
        return [vector for value in given for vector in emitter.blocks[value].all()]

    merged = emitter.f.if_(_is_inside(emitter, clip), lambda: arm(True), lambda: arm(False))
    emitter.version = None
    at = 0
    for value in given:
        layout, dtype = emitter.layout(value)
        emitter.blocks[value] = Vectors.of(layout, dtype, merged[at : at + layout.count])
        at += layout.count


def _is_inside(emitter: Emitter, clip: ClipOp) -> Value:
    f, axis = emitter.f, clip.axis
    env = emitter.env_of(clip, clip.coords, 1)
    layout, _ = emitter.layout(clip.result)
    left = f.sub(dim_value(f, clip.bound, env), env[axis])
    return f.icmp("sge", left, layout.sizes[-1])


def _write_what_is_used(emitter: Emitter, ops: Sequence[SpecOp]) -> None:
    """What both versions read is written before they part."""
    emitter.settle_all()
    used: dict[SSAValue, None] = {value: None for op in ops for part in op.walk() for value in part.operands}
    for value in used:
        if value in emitter.blocks:
            emitter.blocks[value].all()
