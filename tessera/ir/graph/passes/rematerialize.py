"""Decide for each residual whether it is kept from the forward part or rematerialized in the backward part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from tessera.ir.base.build import Build, is_removable, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.base.types import attribute_of, location_of
from tessera.ir.graph.kept_values import Value, choose_kept, estimate
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.passes.eliminate_common import EliminateCommon
from tessera.ir.graph.typed_ops import SavedValueOp
from tessera.ir.tile.facets import Contraction, Library, Pointwise, Reduction, View
from tessera.types.frozen import frozen

KEPT, REMATERIALIZED = "tessera.kept", "tessera.rematerialized"
"""Attributes of a function: a line for each value that is kept for the backward part, or rematerialized there."""

BYTES, POINTWISE, ROWS = 0, 1, 2
"""Levels: what moves the fewest bytes; pointwise ops wherever that needs less memory; reductions too. Each level above
is one more contraction or library kernel."""


NEAR = 2
"""Kernels, one behind the other, between uses that share what is rematerialized: a contraction and its reader."""


@frozen
class Rematerialize(Pass):
    """Replace each `saved_value` by what it is of, or by the ops that compute it, behind barriers.

    Before: `%r = tgraph.saved_value %e, %c` of `%e = tgraph.exp %x`. After: `%b = tgraph.optimization_barrier %x, %c`,
    `%r = tgraph.exp %b`, where that moves fewer bytes than to write `%e` and to read it again.
    """

    level: int = BYTES

    def run(self, module: ModuleOp) -> None:
        if not any(isinstance(op, SavedValueOp) for op in module.walk()):
            return
        # What a rule of a derivative computes of the forward part may be what that computes too.
        EliminateCommon().run(module)
        for function in module.ops:
            assert isinstance(function, SpecOp)
            lines: dict[str, list[str]] = {KEPT: [], REMATERIALIZED: []}
            for block in list(function.walk_blocks()):
                residuals = [op for op in block.ops if isinstance(op, SavedValueOp)]
                if residuals:
                    _Decision(block, residuals, self.level).apply(lines)
            for name, found in lines.items():
                if found:
                    counted = (f"{count} x {one}" if count > 1 else one for one, count in Counter(found).items())
                    function.attributes[name] = attribute_of("any", tuple(counted))


def count_heavy(tape: Tape) -> int:
    """How many levels above `ROWS` a program has at most."""
    inner = sum(count_heavy(body) for record in tape.records for body in record.bodies)
    return inner + sum(not isinstance(REGISTRY[record.op].lower, Pointwise | View) for record in tape.records)


def _is_heavy(op: Operation) -> bool:
    return isinstance(op, SpecOp) and isinstance(op.spec.lower, Contraction | Library) and is_removable(op)


class _Decision:
    """The residuals of one block, and the values behind them as a network."""

    def __init__(self, block: Block, residuals: Sequence[SavedValueOp], level: int) -> None:
        self.block, self.residuals, self.level = block, residuals, level
        self.late = self._find_late()
        self.allowed = set(_choose_heavy(block, self.late)[: level - ROWS] if level > ROWS else ())
        self.numbers: dict[SSAValue, int] = {}
        self.values: dict[int, Value] = {}
        self.made: dict[SSAValue, dict[tuple[SSAValue, ...], SSAValue]] = {}
        """What was rematerialized of each value, by what it waits for."""
        self.barriers: dict[tuple[SSAValue, tuple[SSAValue, ...]], SSAValue] = {}
        order: list[SSAValue] = [*block.args, *(result for op in block.ops for result in op.results)]
        self.depth: dict[SSAValue, int] = {}
        """How many kernels a value needs at least, one behind the other."""
        self.unreduced: set[SSAValue] = set()
        """Values that the last of those kernels has before any reduction, which no contraction takes into its own."""
        for value in order:
            self.depth[value] = self._count_kernels(value)
        for value in order:
            self.numbers[value] = len(self.numbers)
            self.values[self.numbers[value]] = self._describe(value)

    def _count_kernels(self, value: SSAValue) -> int:
        op = value.owner
        if isinstance(op, Block):
            return 0
        assert isinstance(op, SpecOp)
        operands, unreduced = op.operand_values, self.unreduced
        before = max([self.depth[operand] for operand in operands], default=0)
        is_unreduced = any(operand in unreduced and self.depth[operand] == before for operand in operands)
        if isinstance(op.spec.lower, Reduction):
            return before + is_unreduced
        is_kernel = not isinstance(op.spec.lower, Pointwise | View)
        if is_kernel or is_unreduced:
            self.unreduced.add(value)
        return before + is_kernel

    def _is_in_memory(self, value: SSAValue) -> bool:
        """Whether the forward part writes a value whatever is kept: it is read by ops of another kernel.

        Kernels read narrow values and widen them in registers, so that what a widening cast gives is not written.
        """
        if _is_widening(value.owner):
            return any(map(_reads_memory, _readers(value)))
        readers = _readers(value, through_casts=True)
        return any(_reads_memory(op) or self.depth[op.results[0]] > self.depth[value] for op in readers)

    def _find_late(self) -> set[Operation]:
        """Ops that the backward part alone needs, behind values that it needs earlier: there they are no more work.

        `first` is the first residual that each value leads to. The forward part itself leads to those of its end, which
        the backward part begins with; what only some rule of a derivative needs leads to residuals of its own.
        """
        first: dict[SSAValue, int] = {}
        ops = [op for op in self.block.ops if isinstance(op, SpecOp)]
        moved = {op for op in ops if is_removable(op) and not isinstance(op, SavedValueOp)}
        for number, op in reversed(list(enumerate(ops))):
            if isinstance(op, SavedValueOp):
                own, operands = number, op.operand_values[:1]
            else:
                own, operands = _first_of(first, op) if op in moved else -1, op.operand_values
            for operand in operands:
                first[operand] = min(first.get(operand, own), own)
        late, numbers = set[Operation](), set[Operation]()
        for op in ops:
            is_moved, own = op in moved, _first_of(first, op)
            known = [value for value in op.operand_values if value.owner not in numbers]
            is_behind = [value.owner in late or first.get(value, -1) < own for value in known]
            if not known:
                numbers.add(op)
            elif own >= 0 and all(is_behind) and is_moved:
                late.add(op)
        return late

    def _describe(self, value: SSAValue) -> Value:
        """A value as the network has it; what is in the memory of the caller costs nothing."""
        op = value.owner
        if isinstance(op, Block):
            return Value(0)
        assert isinstance(op, SpecOp)
        operands = tuple([self.numbers[operand] for operand in op.operand_values])
        if op.spec.moves_elements:
            return Value(inf, operands, True)
        can = self._can_recompute(op) and not (self.level == BYTES and _is_written_late(value))
        return Value(self._price(value, op), operands, can or op in self.late)

    def _price(self, value: SSAValue, op: SpecOp) -> float:
        if any(isinstance(use.operation, SpecOp) and use.operation.spec.is_terminator for use in value.uses):
            return 0
        bytes = estimate(tensor_value(value).bytes)
        # What nobody else needs in memory is written for the backward part alone, and read there.
        return bytes if self.level > BYTES or self._is_in_memory(value) else 2 * bytes

    def _can_recompute(self, op: SpecOp) -> bool:
        if not is_removable(op) or op.regions or isinstance(op, SavedValueOp):
            return False
        lower = op.spec.lower
        if isinstance(lower, Reduction):
            return self.level >= ROWS
        return isinstance(lower, Pointwise) or op in self.allowed

    def apply(self, lines: dict[str, list[str]]) -> None:
        needed = {self.numbers[op.operands[0]] for op in self.residuals}
        kept = choose_kept(self.values, needed)
        self.kept = {value: None for value, number in self.numbers.items() if number in kept}
        lines[KEPT] += [line_of(value, "") for value in self.kept if not isinstance(value, BlockArgument)]
        usual = "moves fewer bytes" if self.level == BYTES else "needs less memory"
        for op in self.residuals:
            value = op.operands[0]
            found = self._late(value, tuple(op.operands[1:]), op)
            if found is not value and not isinstance(_root(value).owner, Block) and _root(value) not in self.kept:
                why = "needed there alone" if _root(value).owner in self.late else usual
                lines[REMATERIALIZED].append(line_of(_root(value), f", {why}"))
            op.results[0].replace_all_uses_with(found)
            op.detach()
            op.erase()

    def _late(self, value: SSAValue, after: tuple[SSAValue, ...], before: SpecOp) -> SSAValue:
        """A value where a residual is read: itself where it is there, else rematerialized once `after` are."""
        if not self._is_missing(value):
            return value
        pending, ops = [value], dict[Operation, None]()
        while pending:
            one = pending.pop()
            if self._is_missing(one) and self._find_made(one, after) is None and one.owner not in ops:
                assert isinstance(one.owner, Operation)
                ops[one.owner] = None
                pending += one.owner.operands
        for op in sorted(ops, key=lambda op: self.numbers[op.results[0]]):
            assert isinstance(op, SpecOp)
            self._clone(op, after, before)
        return self._find_made(value, after) or value

    def _find_made(self, value: SSAValue, after: tuple[SSAValue, ...]) -> SSAValue | None:
        """A value that was rematerialized, for the same place; what is computed there alone, for any before it.

        One for a place a little earlier will do, where memory is no matter: a norm needs its rows once for the means
        that its gradient has in it, and once behind them, and both are one kernel.
        """
        made = self.made.get(value, {})
        found = made.get(() if self._is_moved(value.owner) else after)
        if found is not None or self.level != BYTES:
            return found
        kernels = self._kernels_before(after)
        near = (one for where, one in made.items() if 0 <= kernels - self._kernels_before(where) <= NEAR)
        return next(near, None)

    def _kernels_before(self, after: tuple[SSAValue, ...]) -> int:
        return max((self.depth.get(value, 0) for value in after), default=0)

    def _is_moved(self, op: Operation | Block) -> bool:
        return op in self.late and isinstance(op, SpecOp) and not isinstance(op.spec.lower, Pointwise | View)

    def _is_missing(self, value: SSAValue) -> bool:
        """Whether a value has to be rematerialized; one that was put in the place of a residual is there."""
        number = self.numbers.get(value)
        return number is not None and value not in self.kept and self.values[number].can_recompute

    def _clone(self, op: SpecOp, after: tuple[SSAValue, ...], before: SpecOp) -> None:
        build = Build(self.block, before, op.span)
        operands: dict[SSAValue, SSAValue] = {}
        for operand in op.operands:
            found = (
                self._find_made(operand, after) if self._is_missing(operand) else self.barriers.get((operand, after))
            )
            if found is None:
                found = self.barriers[operand, after] = build.emit("optimization_barrier", operand, *after)
            operands[operand] = found
        again = op.clone(operands)
        if op.span is not None:
            again.location = location_of(op.span.with_role("rematerialized"))
        self.block.insert_op_before(again, before)
        where = () if self._is_moved(op) else after
        for old, new in zip(op.results, again.results, strict=True):
            self.made.setdefault(old, {})[where] = new


def _first_of(first: Mapping[SSAValue, int], op: SpecOp) -> int:
    """The first residual that results of an op lead to, as far as those are used; -1 for none."""
    return min([first.get(result, -1) for result in op.results if result.first_use is not None], default=-1)


def _choose_heavy(block: Block, late: Collection[Operation]) -> list[Operation]:
    """Heavy ops that may be rematerialized, of which none reads another: then each is computed from what is kept.

    Those come first that give the most bytes for their flops, and of equal ones the largest.
    """
    behind: dict[SSAValue, frozenset[Operation]] = {}
    reads: dict[Operation, frozenset[Operation]] = {}
    needed: set[SSAValue] = set()
    for op in reversed(list(block.ops)):
        if isinstance(op, SavedValueOp) or not needed.isdisjoint(op.results):
            needed.update(op.operands[:1] if isinstance(op, SavedValueOp) else op.operands)
    for op in block.ops:
        found = frozenset[Operation]().union(*(behind.get(operand, ()) for operand in op.operands))
        if _is_heavy(op) and op not in late and not needed.isdisjoint(op.results):
            reads[op], found = found, frozenset([op])
        behind.update(dict.fromkeys(op.results, found))
    chosen: dict[Operation, None] = {}
    for op in sorted(reads, key=_flops_per_byte):
        if reads[op].isdisjoint(chosen) and not any(op in reads[other] for other in chosen):
            chosen[op] = None
    return list(chosen)


def _flops_per_byte(op: Operation) -> tuple[float, int]:
    assert isinstance(op, SpecOp)
    assert op.spec.cost is not None
    operands, results = ([tensor_value(value) for value in values] for values in (op.operands, op.results))
    bytes = max(estimate(results[0].bytes), 1)
    return estimate(op.spec.cost(operands, results, op.values()).flops) / bytes, -bytes


def _root(value: SSAValue) -> SSAValue:
    """The value that a view is of."""
    while isinstance(op := value.owner, SpecOp) and op.spec.moves_elements:
        value = op.operands[0]
    return value


def _is_widening(op: Operation | Block) -> bool:
    """Whether an op is a cast to a wider dtype."""
    if not isinstance(op, SpecOp) or op.spec.short_name != "cast":
        return False
    return tensor_value(op.results[0]).dtype.bits > tensor_value(op.operands[0]).dtype.bits


def _readers(value: SSAValue, *, through_casts: bool = False) -> Iterable[SpecOp]:
    """The ops that read a value, itself, through views or also through widening casts, but for residuals."""
    for use in value.uses:
        op = use.operation
        assert isinstance(op, SpecOp)
        if op.spec.moves_elements or (through_casts and _is_widening(op)):
            yield from _readers(op.results[0], through_casts=through_casts)
        elif not isinstance(op, SavedValueOp):
            yield op


def _reads_memory(op: SpecOp) -> bool:
    """Whether an op reads whole tensors, which some kernel has written before."""
    return not isinstance(op.spec.lower, Pointwise | Reduction | View)


def _is_written_late(value: SSAValue) -> bool:
    """Whether the backward part would have to write a value: an op there reads it from memory."""
    return any(map(_reads_memory, _late_readers(value)))


def _late_readers(value: SSAValue) -> Iterable[SpecOp]:
    """The ops of the backward part that read a value, itself or through views."""
    for use in value.uses:
        op = use.operation
        assert isinstance(op, SpecOp)
        if isinstance(op, SavedValueOp):
            yield from _readers(op.results[0])
        elif op.spec.moves_elements:
            yield from _late_readers(op.results[0])


def line_of(value: SSAValue, why: str) -> str:
    """A value with its bytes, what is said of it, and where it comes from."""
    op, type = value.owner, tensor_value(value)
    assert isinstance(op, SpecOp)
    where = f" at {op.span.described}" if op.span is not None else ""
    return f"{op.spec.short_name} {type}: {type.bytes} bytes{why}{where}"
