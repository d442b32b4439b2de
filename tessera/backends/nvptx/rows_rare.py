"""Sums that nobody looks at unless another one of the same loop is infinite: they are made only where that may be.

A norm has its sum of squares twice, the second time of numbers that are scaled so that it cannot overflow. Where the
first is far from that, the second is never chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.target.types import VectorAttr
from tessera.types.dtype import f32

FAR = 2.0**120
"""Lanes below this have a sum that is finite: there are 32 of them."""


def rare_sums(loop: SpecOp, tail: SpecOp | None) -> dict[int, int]:
    """Numbers of carried sums of a loop, which a tail goes on with, each with that of the sum that it stands in for."""
    parts = [op for body in (loop, tail) if body is not None for op in body.regions[0].block.ops]
    results = list((tail or loop).results)
    is_plain = all(isinstance(value.type, VectorAttr) and value.type.dtype is f32 for value in results)
    if len(results) < 2 or not is_plain or any(op.name == "ttarget.store" for op in parts):
        return {}
    if tail is not None and list(tail.operands[2:]) != list(loop.results):
        return {}
    folds = [_fold_of(value) for value in results]
    found: dict[int, int] = {}
    for number, fold in enumerate(folds):
        tests = set[SSAValue]() if fold is None else _tests_of(fold.results[0])
        others = [other for other, main in enumerate(folds) if main is not None and other != number]
        main = next((other for other in others if tests and all(_is_of(test, folds[other]) for test in tests)), None)
        if main is not None and main not in found:
            found[number] = main
    return found


def _fold_of(value: SSAValue) -> SpecOp | None:
    """The sum over lanes that is the only one to look at a value."""
    users = [use.operation for use in value.uses]
    is_one = len(users) == 1 and isinstance(users[0], SpecOp) and users[0].name == "ttarget.reduce"
    return users[0] if is_one and isinstance(users[0], SpecOp) and users[0].value("kind") == "sum" else None


def _tests_of(value: SSAValue) -> set[SSAValue]:
    """What decides whether anybody looks at a value; nothing where somebody does in any case."""
    tests: set[SSAValue] = set()
    waiting: list[SSAValue] = [value]
    while waiting:
        at = waiting.pop()
        users: Sequence[Operation] = [use.operation for use in at.uses]
        for op in users:
            if op.name == "ttarget.select" and op.operands[1] is at and op.operands[2] is not at:
                tests.add(op.operands[0])
            elif op.name == "ttarget.elementwise":
                waiting += op.results
            else:
                return set()
    return tests


def _is_of(test: SSAValue, fold: SpecOp | None) -> bool:
    """Whether a test is whether a sum is infinite, or what it is divided by a count."""
    if fold is None or not _is_math(test.owner, "isinf"):
        return False
    assert isinstance(test.owner, SpecOp)
    value = test.owner.operands[0]
    if _is_math(value.owner, "div"):
        assert isinstance(value.owner, SpecOp)
        value, count = value.owner.operands
        if not _is_count(count.owner):
            return False
    return value is fold.results[0]


def _is_math(op: object, fn: str) -> bool:
    return isinstance(op, SpecOp) and op.name == "ttarget.elementwise" and op.value("fn") == fn


def _is_count(op: object) -> bool:
    """Whether an op gives a number that is 1 or more, or counts no elements at all."""
    if not isinstance(op, SpecOp):
        return False
    if op.name == "ttarget.cast":
        return _is_count(op.operands[0].owner)
    return op.name == "ttarget.coordinate" or (op.name == "ttarget.constant" and op.value("value") >= 1)
