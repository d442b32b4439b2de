"""Control flow of plans and host programs; bodies see the values around them.

In a plan these ops work on values: a body takes what a loop carries, and yields it. Once buffers are placed nothing is
yielded but a condition: results are in buffers that were allocated before, `while` and `for` take two for each carried
value and swap them in each iteration, and their results are the ones written last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.ir.base.op import SpecOp
from tessera.ir.base.spec import Attribute
from tessera.ir.base.types import BufferAttr, TensorAttr
from tessera.ir.schedule.ops import host_op

if TYPE_CHECKING:
    from tessera.ir.schedule.typed_ops import ForOp


def has_buffers(op: SpecOp) -> bool:
    """Whether an op of control flow works on buffers."""
    return any(isinstance(value.type, BufferAttr) for value in (*op.operands, *op.results))


def _yields(op: SpecOp, region: int) -> list[Any]:
    last = op.regions[region].block.last_op
    return [value.type for value in last.operands] if last is not None else []


def _check_condition(op: SpecOp, types: Sequence[Any]) -> None:
    if (
        len(types) != 1
        or not isinstance(types[0], TensorAttr | BufferAttr)
        or types[0].shape
        or not types[0].dtype.is_bool
    ):
        op.fail(f"the condition of `{op.name}` is one bool, got {', '.join(map(str, types)) or 'nothing'}")


def _check_if(op: SpecOp) -> None:
    _check_condition(op, [op.operands[0].type])
    if has_buffers(op):
        return
    for region in (0, 1):
        if _yields(op, region) != list(op.result_types):
            op.fail(f"body {region} of `{op.name}` yields {_yields(op, region)}, not {list(op.result_types)}")


def _check_while(op: SpecOp) -> None:
    _check_condition(op, _yields(op, 0))
    given = [value.type for value in op.operands]
    tested, repeated = ([arg.type for arg in region.block.args] for region in op.regions)
    if repeated != given or tested != given[: len(op.results)]:
        op.fail("the bodies of `tsched.while` take the values that the loop carries")
    if not has_buffers(op) and _yields(op, 1) != list(op.result_types):
        op.fail("the body of `tsched.while` yields the values that the loop carries")


def _check_for(op: ForOp) -> None:
    if op.length is None and len(op.operands) < 2:
        op.fail("`tsched.for` needs a lower and an upper bound, or `length`")
    if not has_buffers(op) and _yields(op, 0)[: op.carried] != list(op.result_types)[: op.carried]:
        op.fail("the body of `tsched.for` yields the values that the loop carries")


SPECS = (
    host_op(
        name="tsched.if",
        summary="One of two plans, by a bool.",
        operands=("condition",),
        results=("results*",),
        regions=("then", "otherwise"),
        effects=frozenset({"memory"}),
        verify=_check_if,
    ),
    host_op(
        name="tsched.while",
        summary="A plan repeated as long as a condition on what it carries holds.",
        operands=("carried*",),
        results=("carried*",),
        regions=("condition", "body"),
        effects=frozenset({"memory"}),
        verify=_check_while,
    ),
    host_op(
        name="tsched.for",
        summary="A plan run for each index between two bounds, or for each row of what is scanned.",
        operands=("values*",),
        results=("results*",),
        attributes=(
            Attribute("carried", "int", 0, "how many values a loop carries"),
            Attribute("scanned", "int", 0, "how many operands are scanned, a row in each iteration"),
            Attribute("stacked", "int", 0, "how many buffers are written, a row in each iteration, once placed"),
            Attribute("length", "dim", None, "how many iterations; without it the first two operands are the bounds"),
            Attribute("reverse", "bool", False, "from the last row to the first"),
        ),
        regions=("body",),
        effects=frozenset({"memory"}),
        verify=_check_for,
    ),
    host_op(
        name="tsched.yield",
        summary="The end of a body: its results.",
        operands=("values*",),
        results=(),
        is_terminator=True,
    ),
)
