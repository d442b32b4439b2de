"""Find sums that are looked at only if another one of the same loop is infinite, and let them wait for that."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from tessera.backends.nvptx.row_plan import DEFERRED
from tessera.ir.base.passes import Pass
from tessera.ir.base.types import VectorAttr
from tessera.ir.target import typed_ops as ops
from tessera.types.dtype import f32


class DeferAccumulators(Pass):
    """Write `nvptx.deferred` on loops of kernels whose rows several warps share.

    A norm computes its sum of squares twice, the second time of numbers scaled so that it cannot overflow, and takes
    the second where the first is infinite. Warps wait for each other once for every sum, and the second one is almost
    never taken: it is computed in a branch, once the first is known to be large.

    Before: `%a:2 = ttarget.loop` whose second sum is used in `select(isinf(%a#0), %a#1, %a#0)`. After: the same with
    `nvptx.deferred = [[1, 0]]`.
    """

    def run(self, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, ops.KernelOp) and op.warps_per_row:
                for loop in op.walk():
                    if isinstance(loop, ops.LoopOp):
                        found = find_deferred_accumulators(loop, tail_of(loop))
                        if found:
                            DEFERRED.write(loop, tuple(found.items()))


def tail_of(loop: ops.LoopOp) -> ops.TailOp | None:
    """The tail that continues a loop."""
    after = loop.next_op
    while after is not None and not isinstance(after, ops.LoopOp):
        if isinstance(after, ops.TailOp):
            return after
        after = after.next_op
    return None


def find_deferred_accumulators(loop: ops.LoopOp, tail: ops.TailOp | None) -> dict[int, int]:
    """Numbers of accumulators of a loop, which a tail continues, each with that of the sum that it stands in for."""
    parts = [op for body in (loop, tail) if body is not None for op in body.body.block.ops]
    results = list((tail or loop).results)
    is_plain = all(isinstance(value.type, VectorAttr) and value.type.dtype is f32 for value in results)
    if len(results) < 2 or not is_plain or any(isinstance(op, ops.StoreOp) for op in parts):
        return {}
    if tail is not None and list(tail.carried) != list(loop.results):
        return {}
    sums = [_sum_of(value) for value in results]
    found: dict[int, int] = {}
    for number, one in enumerate(sums):
        tests = set[SSAValue]() if one is None else _tests_of(one.result)
        others = [other for other, main in enumerate(sums) if main is not None and other != number]
        main = next((other for other in others if tests and all(_is_infinite(t, sums[other]) for t in tests)), None)
        if main is not None and main not in found:
            found[number] = main
    return found


def _sum_of(value: SSAValue) -> ops.ReduceOp | None:
    """The sum over lanes that is the only one to look at a value."""
    users = [use.operation for use in value.uses]
    only = users[0] if len(users) == 1 else None
    return only if isinstance(only, ops.ReduceOp) and only.kind == "sum" else None


def _tests_of(value: SSAValue) -> set[SSAValue]:
    """What decides whether anybody looks at a value; nothing where somebody does in any case."""
    tests: set[SSAValue] = set()
    waiting: list[SSAValue] = [value]
    while waiting:
        at = waiting.pop()
        users: Sequence[Operation] = [use.operation for use in at.uses]
        for op in users:
            if isinstance(op, ops.SelectOp) and op.operands[1] is at and op.operands[2] is not at:
                tests.add(op.operands[0])
            elif isinstance(op, ops.ElementwiseOp):
                waiting += op.results
            else:
                return set()
    return tests


def _is_infinite(test: SSAValue, sum_: ops.ReduceOp | None) -> bool:
    """Whether a test is whether a sum is infinite, or the mean that it is divided to."""
    value = _operands_of(test, "isinf")
    if sum_ is None or value is None:
        return False
    parts = _operands_of(value[0], "div")
    if parts is not None and not _is_count(parts[1].owner):
        return False
    return (value if parts is None else parts)[0] is sum_.result


def _operands_of(value: SSAValue, fn: str) -> Sequence[SSAValue] | None:
    """The operands of the function that gives a value; None where it is another function."""
    return value.owner.operands if isinstance(value.owner, ops.ElementwiseOp) and value.owner.fn == fn else None


def _is_count(op: object) -> bool:
    """Whether an op gives a number that is 1 or more, or counts no elements at all."""
    if isinstance(op, ops.CastOp):
        return _is_count(op.operands[0].owner)
    return isinstance(op, ops.CoordinateOp) or (isinstance(op, ops.ConstantOp) and op.value("value") >= 1)
