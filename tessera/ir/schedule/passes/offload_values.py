"""Offload values that wait long for their next use to host memory, until the workspace fits into a number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import accumulate, pairwise

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue, Use

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule import typed_ops as tsched
from tessera.ir.schedule.host_program.memory import ALIGNMENT, ANNOTATIONS, enclosing_op, root_of
from tessera.ir.schedule.passes.place_buffers import place_buffers
from tessera.ir.schedule.passes.plan_memory import plan_memory
from tessera.ir.schedule.plan import programs_in, tensor_of
from tessera.types.frozen import frozen
from tessera.types.machine import HostLink, Machine


@frozen
class OffloadValues(Pass):
    """Copy as few values as it takes to host memory after a use, and back ahead of the next, far behind it.

    Before: `%a = tsched.fuse @f(%x)`, `%b = tsched.fuse @g(%a)`, groups that do not read `%a`, `tsched.fuse @h(%a)`.
    After: `%c = tsched.offload %a` behind the second, `%d = tsched.prefetch %c` some groups before the last, which
    reads `%d`. Activations that a backward part needs are such values. Those with the most bytes times groups in
    between come first. The memory of `%a` is kept, and that of `%d` taken, for as many groups as take as long as a copy
    over the link to host memory: copies have streams of their own, and groups then wait for none. Where memory is too
    small for that, it is for fewer groups, or none. Without `memory`, in bytes, nothing is offloaded; where even all
    values are too few, the plan with the smallest workspace stays.
    """

    memory: int = -1
    machine: Machine = field(default_factory=lambda: Machine("generic"))

    def run(self, module: ModuleOp) -> None:
        kernels = symbol_table(module)
        for program in programs_in(module) if self.memory >= 0 else ():
            _insert(program, _choose(program, kernels, self.memory, self.machine.link))


@frozen
class _Pair:
    """A value that may be offloaded, by numbers of ops in the block.

    Its offload is put behind `end`, its prefetch before `start`, and `late` is the first op that uses it after that;
    `groups` are in between.
    """

    maker: int
    result: int
    end: int
    start: int
    late: int
    bytes: int
    groups: int


def _choose(program: tsched.ModuleOp, kernels: Mapping[str, SpecOp], memory: int, link: HostLink) -> Sequence[_Pair]:
    """The fewest of the pairs, in their order, with which the workspace has at most so many bytes; else all."""
    planned = partial(_plan, program, kernels)
    before = planned(())
    if before <= memory:
        return ()
    pairs: Sequence[_Pair] = ()
    for share in (1, 4, 16, 0):
        pairs = _find_pairs(program.body.block, link.divide(share) if share else None)
        # No pair saves more bytes than its value has, which says how many it takes at least.
        saved = accumulate(one.bytes + ALIGNMENT for one in pairs)
        least = 1 + sum(1 for size in saved if size < before - memory)
        count = _count_pairs(lambda count, pairs=pairs: planned(pairs[:count]) <= memory, least, len(pairs))
        if count is not None:
            return pairs[:count]
    return pairs if planned(pairs) < before else ()


def _count_pairs(fits: Callable[[int], bool], least: int, most: int) -> int | None:
    """The smallest number that fits, of those from `least` to `most`; None where the largest does not."""
    low, high = least - 1, least
    while high <= most and not fits(high):
        low, high = high, min(2 * high - least + 1, most) if high < most else most + 1
    if high > most:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _plan(program: tsched.ModuleOp, kernels: Mapping[str, SpecOp], pairs: Sequence[_Pair]) -> int:
    """The bytes of a program's workspace with these pairs, by the passes that plan it; 0 where sizes are not known."""
    trial = program.clone()
    _insert(trial, pairs)
    place_buffers(trial, kernels)
    plan_memory(trial)
    return (trial.workspace.value if trial.workspace is not None else None) or 0


# Which values can be offloaded, and where.


def _find_pairs(block: Block, link: HostLink | None) -> list[_Pair]:
    """The values of a block that are not needed for some groups, those with the most bytes times groups first.

    Without a link copies stand right at the uses.
    """
    ops = list(block.ops)
    numbers = {op: number for number, op in enumerate(ops)}
    groups = [sum(isinstance(inner, tsched.FuseOp) for inner in op.walk()) for op in ops]
    found: list[_Pair] = []
    for value in _list_values(block):
        maker, size = numbers[value.owner], tensor_of(value).bytes.value or 0
        used = {maker: 0}
        for _, use in _uses(value):
            number, op = numbers[enclosing_op(use.operation, block)], use.operation
            sent = isinstance(op, tsched.CollectiveStartOp) - isinstance(op, tsched.CollectiveWaitOp)
            used[number] = used.get(number, 0) + sent
        order = sorted(used)
        # What a collective sends stays where it is until its wait.
        in_flight = accumulate(used[number] for number in order)
        pairs = zip(pairwise(order), in_flight, strict=False)
        gaps = [(sum(groups[early + 1 : late]), early, late) for (early, late), sent in pairs if not sent]
        if not gaps:
            continue
        _, early, late = max(gaps)
        end, start = early, late
        if link is not None:
            end += _count_ops(ops[early + 1 : late], size, link)
            start -= _count_ops(ops[late - 1 : early : -1], size, link)
        between = sum(groups[end + 1 : start])
        if between:
            found.append(_Pair(maker, value.index, end, start, late, size, between))
    return sorted(found, key=lambda one: (-one.bytes * one.groups, one.maker, one.result))


def _list_values(block: Block) -> Iterator[OpResult]:
    """Values of a block in the workspace, of known sizes; not what a loop carries, which is in one of two buffers."""
    assert block.last_op is not None
    returned = {root_of(value) for value in block.last_op.operands}
    for op in block.ops:
        if isinstance(op, tsched.FuseOp | tsched.ForOp | tsched.IfOp):
            for value in op.results[op.carried if isinstance(op, tsched.ForOp) else 0 :]:
                root = root_of(value)
                is_own = not isinstance(root, BlockArgument) and root not in returned
                if is_own and tensor_of(value).bytes.value:
                    yield value


def _uses(value: SSAValue) -> Iterator[tuple[SSAValue, Use]]:
    """The uses of a value, with the form that each has it in: itself, or it in another shape."""
    for use in list(value.uses):
        if isinstance(use.operation, tsched.AliasOp):
            yield from _uses(use.operation.results[0])
        elif not isinstance(use.operation, ANNOTATIONS):
            yield value, use


def _count_ops(ops: Sequence[Operation], size: int, link: HostLink) -> int:
    """How many of the ops, one after the other, take as long as a copy of so many bytes over the link; all at most."""
    left = size
    for number, op in enumerate(ops):
        if left <= 0:
            return number
        left -= sum(_count_link_bytes(one, link) for one in op.walk() if isinstance(one, tsched.FuseOp))
    return len(ops)


def _count_link_bytes(op: tsched.FuseOp, link: HostLink) -> int:
    """The bytes that the link moves while a group runs."""
    flops, moved = ((cost.value if cost is not None else None) or 0 for cost in (op.flops, op.bytes))
    return max(flops // link.flops, moved // link.bytes)


# Insertion: what uses a value late uses what is prefetched, in the shape that it has it in.


def _insert(program: tsched.ModuleOp, pairs: Sequence[_Pair]) -> None:
    block = program.body.block
    ops = list(block.ops)
    numbers = {op: number for number, op in enumerate(ops)}
    for one in pairs:
        maker = ops[one.maker]
        assert isinstance(maker, SpecOp)
        value = maker.results[one.result]
        late = [pair for pair in _uses(value) if numbers[enclosing_op(pair[1].operation, block)] >= one.late]
        offload = make("tsched.offload", [value], types=[value.type], span=maker.span)
        block.insert_op_after(offload, ops[one.end])
        prefetch = make("tsched.prefetch", [offload.result], types=[value.type], span=maker.span)
        block.insert_op_before(prefetch, ops[one.start])
        forms: dict[SSAValue, SSAValue] = {value: prefetch.result}
        for form, use in late:
            use.operation.operands[use.index] = _prefetched_form(form, forms, ops[one.start])
    for op in reversed(ops if pairs else ()):
        if isinstance(op, tsched.AliasOp) and not op.results[0].uses:
            op.detach()
            op.erase()


def _prefetched_form(form: SSAValue, forms: dict[SSAValue, SSAValue], before: Operation) -> SSAValue:
    """A prefetched value in the shape of a form, for ops from one on."""
    if form not in forms:
        alias, block = form.owner, before.parent
        assert isinstance(alias, tsched.AliasOp)
        assert block is not None
        again = alias.clone({alias.source: _prefetched_form(alias.source, forms, before)})
        block.insert_op_before(again, before)
        forms[form] = again.results[0]
    return forms[form]
