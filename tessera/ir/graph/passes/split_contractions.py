"""Cut contractions with several segments of K into partial results and the tree that joins them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.build import Pattern, Rewriter, rewrite, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.policies import policies_of
from tessera.ir.base.spec import Builder
from tessera.ir.base.tape import Tape
from tessera.ir.graph.building import cast, index_axis, restate
from tessera.ir.graph.ops.segments import join_segments
from tessera.ir.graph.passes.canonicalize import replace_results
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.ir.graph.typed_ops import FusedOp
from tessera.ir.tile.facets import Contraction, Pointwise
from tessera.types.dim import Dim, product
from tessera.types.dtype import bf16, f16, f32
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT

FEW = 16
"""Segments that are added where they are read, with what follows; more are joined by a loop."""


@frozen
class SplitContractions(Pass):
    """Give the segments of a contraction to programs of their own.

    Before: `%0 = tgraph.matmul %a, %b {segment = 4096} : (bf16, bf16) -> bf16`. After: `%0 = tgraph.matmul %a, %b
    {segment = 4096, partial = true}` in f32 with the segments as its first axis, slices of it that are added in
    pairs, and a cast to bf16; what follows is computed with them. An epilogue that was promised one kernel with the
    contraction is promised one with the join, which needs no promise.

    A machine that computes so many `blocks` of 128 x 128 at a time, and has registers for a few more of them, joins
    segments where it computes them, if that takes less time: what is left as it is has results enough to fill it, and
    partial results would be more to write and read than joining them between dots costs.
    """

    blocks: int = 0

    def run(self, module: ModuleOp) -> None:
        rewrite(module, self._patterns)

    def _patterns(self, op: SpecOp) -> Sequence[Pattern]:
        is_whole = "segment" in op.kinds and op.value("segment") is not None and not op.value("partial")
        return (_split,) if is_whole and not is_joined(op, self.blocks) else ()


_BLOCK, _HELD = 128, 384
"""Rows of a block whose segments are joined, and columns of all that it holds in registers: its accumulators, and a
partial result for each level of the tree."""
_STEP, _STEP_CYCLES = 64, {192: 800, 128: 540, 96: 550, 64: 490, 48: 400, 32: 300, 16: 300}
"""Elements of K in a step, and cycles of a step of a block by its columns."""
_DRAIN_CYCLES, _LEVEL_CYCLES = 400, 3
"""Cycles in which the dots of a program stop where a segment ends, and more for each column and level of the tree
(16384 x 256 x 4096 on an H200)."""
_MULTIPLY_ADDS, _RATE = 2048, 0.97
"""Multiply-adds of a multiprocessor in a cycle, and the part of them that blocks reach which join nothing."""
_MEMORY, _CACHED = 2750, 32 << 20
"""Bytes that memory hands out in a cycle, or takes; bytes of partial results that are still in L2 when they are read,
which is about twice as fast."""
_LAUNCH_CYCLES = 4000
"""Cycles from the end of a kernel to what the next one has done first: that which joins partial results."""


def is_joined(op: SpecOp, blocks: int) -> bool:
    """Whether a contraction is one kernel that joins its segments, on a machine of so many blocks at a time."""
    count, sizes = _count_segments(op).value or 0, _joinable_sizes(op) if blocks else None
    if count < 2 or sizes is None:
        return False
    return _joined_cycles(sizes, count, blocks) < _split_cycles(sizes, count, blocks)


def _joinable_sizes(op: SpecOp) -> tuple[int, int, int, int] | None:
    """Batch, rows, columns and K of a contraction whose kernel can join segments; None where it has partial results."""
    lower, types = op.spec.lower, [tensor_value(value) for value in op.operands]
    assert isinstance(lower, Contraction)
    if any(type.dtype not in (bf16, f16) for type in types) or op.value("segment").value is None:
        return None
    maps = lower.maps(types, op.values())
    batch, m, n, k = (product(part).value for part in (maps.batch, maps.m, maps.n, maps.k))
    if maps.windows or op.value("accumulate") is not f32 or not batch or not m or not n or not k:
        return None
    return batch, m, n, k


def _joined_cycles(sizes: tuple[int, int, int, int], count: int, blocks: int) -> float:
    """Cycles of programs that have all of K, in blocks of as many columns as take the fewest."""
    widest = _HELD // (1 + (count - 1).bit_length())
    widths = [width for width in _STEP_CYCLES if width <= widest]
    return min((_time_joined(sizes, count, blocks, width) for width in widths), default=float("inf"))


def _time_joined(sizes: tuple[int, int, int, int], count: int, blocks: int, width: int) -> float:
    """Cycles of waves of programs, each no faster than memory hands out the A operand."""
    (batch, m, _, k), across = sizes, -(-sizes[2] // width)
    joins = count * (_DRAIN_CYCLES + _LEVEL_CYCLES * (count - 1).bit_length() * width)
    computed = -(-k // _STEP) * _STEP_CYCLES[width] + joins
    waves, last = divmod(batch * -(-m // _BLOCK) * across, blocks)
    read = 2 * k * _BLOCK / (across * _MEMORY)
    return sum(many * max(computed, few * read) for many, few in ((waves, blocks), (1, last)) if few)


def _split_cycles(sizes: tuple[int, int, int, int], count: int, blocks: int) -> float:
    """Cycles of partial results, which fill the machine, and of writing, reading and joining them."""
    batch, m, n, k = sizes
    computed = batch * m * n * k / (blocks * _MULTIPLY_ADDS * _RATE)
    parts = 4 * count * batch * m * n
    moved = 2 * parts if parts > _CACHED else parts
    return max(computed, 2 * batch * k * (m + n) / _MEMORY) + moved / _MEMORY + _LAUNCH_CYCLES


def _split(op: SpecOp, rewriter: Rewriter) -> bool:
    count = _count_segments(op)
    if count.value == 1:
        op.set_value("segment", None)
        return True
    _drop_promises(op.results[0], rewriter)
    build = rewriter.build(op)
    if count.value is None:
        _branch(op, count, rewriter)
    else:
        replace_results(op, _cut(op, build, op.operands), build, rewriter)
    return True


def _count_segments(op: SpecOp) -> Dim:
    lower = op.spec.lower
    assert isinstance(lower, Contraction)
    maps = lower.maps([tensor_value(value) for value in op.operands], {**op.values(), "partial": True})
    return maps.batch[0]


def _drop_promises(result: SSAValue, rewriter: Rewriter) -> None:
    for use in list(result.uses):
        if isinstance(use.operation, FusedOp) and use.index == 1:
            rewriter.replace(use.operation, [use.operation.operands[0]])


def _cut(op: SpecOp, b: Builder, operands: Sequence[Any]) -> Any:
    """Partial results, and what joins them."""
    values, dtype, count = op.values(), tensor_value(op.results[0]).dtype, _count_segments(op).value
    attributes = {**values, "partial": True, "dtype": values["accumulate"]}
    parts = b.emit(op.spec.short_name, *operands, **attributes)
    if count is None or count > FEW:
        return b.emit("join_segments", parts, dtype=dtype)
    slices = [index_axis(b, parts, 0, number) for number in range(count)]
    return cast(b, join_segments(slices, lambda x, y: b.emit("add", x, y)), dtype)


# Sizes that are not known may make one segment, which is then computed as ever: with what would share its kernel.


def _branch(op: SpecOp, count: Dim, rewriter: Rewriter) -> None:
    before, after = _sources(op), _followers(op)
    inside = [*before, op, *after]
    made = {value for one in inside for value in one.results}
    operands = list(dict.fromkeys(value for one in inside for value in one.operands if value not in made))
    outputs = [value for one in (op, *after) for value in one.results if _is_read_outside(value, inside)]
    build = rewriter.build(op)
    bodies = [_body(op, inside, operands, outputs, is_cut) for is_cut in (False, True)]
    results = build.emit("size_cond", *operands, size=2 - count, then=bodies[0], otherwise=bodies[1])
    for old, new in zip(outputs, results, strict=True):
        old.replace_all_uses_with(new)
    for one in reversed((op, *after)):
        rewriter.erase(one)


def _body(
    op: SpecOp, inside: Sequence[SpecOp], operands: Sequence[SSAValue], outputs: Sequence[SSAValue], is_cut: bool
) -> Tape:
    """The ops as a branch, with the contraction whole or cut."""
    builder = TapeBuilder()
    given = add_inputs(builder.tape, list(map(tensor_value, operands)), [f"x{at}" for at in range(len(operands))])
    values: dict[SSAValue, int] = dict(zip(operands, given, strict=True))
    for one in inside:
        builder.span, builder.policy = one.span, next(iter(policies_of(one)), SILENT)
        taken = [values[value] for value in one.operands]
        whole = {**one.values(), "segment": None} if one is op else one.values()
        is_here = one is op and is_cut
        made = _cut(op, builder, taken) if is_here else builder.emit(one.spec.short_name, *taken, **whole)
        values[one.results[0]] = restate(builder, made, tensor_value(one.results[0]).shape)
    builder.tape.outputs = [values[value] for value in outputs]
    return builder.tape


def _sources(op: SpecOp) -> list[SpecOp]:
    """Views that a contraction reads through, and what is computed for it alone, in order."""
    found: list[SpecOp] = []
    pending = [*op.operands]
    while pending:
        maker = pending.pop().owner
        if isinstance(maker, SpecOp) and maker not in found and _is_computed_there(maker, op):
            found.append(maker)
            pending += maker.operands
    return [one for one in _ops_around(op) if one in found]


def _is_computed_there(maker: SpecOp, op: SpecOp) -> bool:
    """Whether a maker of an operand costs nothing to repeat, or is read by nobody else."""
    if maker.parent is not op.parent or len(maker.results) != 1 or maker.spec.region_names:
        return False
    is_own = isinstance(maker.spec.lower, Pointwise) and len(list(maker.results[0].uses)) == 1
    return maker.spec.moves_elements or is_own


def _followers(op: SpecOp) -> list[SpecOp]:
    """What follows a contraction element by element, of operands that are computed before it."""
    shape, found = tensor_value(op.results[0]).shape, list[SpecOp]()
    ops = _ops_around(op)
    before = {value for one in ops[: ops.index(op)] for value in one.results}
    reached: set[SSAValue] = {*op.results}
    for one in ops[ops.index(op) + 1 :]:
        is_computed = isinstance(one.spec.lower, Pointwise) and len(one.results) == 1 and one.spec.is_mergeable
        others = [value for value in one.operands if value not in reached]
        is_ready = all(value in before or not isinstance(value.owner, SpecOp) for value in others)
        is_alike = is_computed and tensor_value(one.results[0]).shape == shape
        if is_alike and is_ready and len(others) < len(one.operands):
            found.append(one)
            reached.update(one.results)
    return found


def _ops_around(op: SpecOp) -> list[SpecOp]:
    assert op.parent is not None
    return [one for one in op.parent.ops if isinstance(one, SpecOp)]


def _is_read_outside(value: SSAValue, inside: Sequence[SpecOp]) -> bool:
    return any(use.operation not in inside for use in value.uses)
