"""Wrong operands for instructions of Target IR, made from these themselves: spaces, widths, counts, alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from xdsl.ir import Attribute, Block, Operation, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import ShapedAttr
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f32, f64, i8, i32
from tests.target.mutations import Fault

WIDTHS: dict[int, DType] = {1: i32, 2: f32, 4: bf16, 8: i8}
"""A dtype of another width, by bytes."""
ALIGNED = ("offset", "mailbox", "align", "swizzle")
"""Attributes that only some multiples are right for."""


def faults_of(op: SpecOp) -> Iterator[Fault]:
    """Every wrong operand, result and alignment that an instruction can have where it stands."""
    yield from _spaces(op)
    yield from _widths(op)
    yield from _counts(op)
    yield from _alignments(op)


def _spaces(op: SpecOp) -> Iterator[Fault]:
    """What is visible there and of another type in the place of each operand, one of each kind."""
    visible = list(_visible(op))
    for at, operand in enumerate(op.operands):
        seen: set[str] = {_kind(operand.type)}
        for place, value in enumerate(visible):
            if _kind(value.type) not in seen:
                seen.add(_kind(value.type))
                yield Fault("space", f"operand {at} is {value.type}", _replacing(at, place))


def _replacing(at: int, place: int) -> Callable[[SpecOp], None]:
    def inject(copy: SpecOp) -> None:
        copy.operands[at] = list(_visible(copy))[place]

    return inject


def _kind(type: Attribute) -> str:
    return type.name


def _visible(op: Operation) -> Iterator[SSAValue]:
    """Values that may stand as operands of an op, the nearest first."""
    block, at = op.parent_block(), op.prev_op
    while block is not None:
        while at is not None:
            yield from at.results
            at = at.prev_op
        yield from block.args
        parent = block.parent_op()
        if parent is None or parent.name.endswith("kernel"):
            return
        block, at = parent.parent_block(), parent.prev_op


def _widths(op: SpecOp) -> Iterator[Fault]:
    """Operands and results of another width, of more or fewer elements, or of another rank."""
    for at, operand in enumerate(op.operands):
        if isinstance(operand.type, ShapedAttr) and operand.owner is not _arguments_of(op):
            for what, type in _other_types(operand.type):
                yield Fault("width", f"operand {at} is {what}", _retyping_operand(at, type))
    for at, result in enumerate(op.results):
        if isinstance(result.type, ShapedAttr):
            for what, type in _other_types(result.type):
                yield Fault("width", f"result {at} is {what}", _retyping_result(at, type))


def _arguments_of(op: SpecOp) -> Block | None:
    """The block of the kernel, whose arguments are its caller's."""
    at: Operation | None = op
    while at is not None and not at.name.endswith("kernel"):
        at = at.parent_op()
    return at.regions[0].block if at is not None else None


def _other_types(type: ShapedAttr) -> Iterator[tuple[str, ShapedAttr]]:
    cls, data = type.__class__, type.data
    other = WIDTHS.get(data.dtype.bytes, f64)
    yield str(other), cls.of(type.data.__class__(data.shape, other))
    for axis, dim in enumerate(data.shape):
        if dim.value is not None:
            shape = (*data.shape[:axis], dim * 2, *data.shape[axis + 1 :])
            yield f"twice as long along {axis}", cls.of(data.with_shape(shape))
    yield "of one dim more", cls.of(data.with_shape((*data.shape, Dim.constant(2))))


def _retyping_operand(at: int, type: Any) -> Callable[[SpecOp], None]:
    def inject(copy: SpecOp) -> None:
        copy.operands[at]._type = type  # pyright: ignore[reportPrivateUsage]

    return inject


def _retyping_result(at: int, type: Any) -> Callable[[SpecOp], None]:
    def inject(copy: SpecOp) -> None:
        copy.results[at]._type = type  # pyright: ignore[reportPrivateUsage]

    return inject


def _counts(op: SpecOp) -> Iterator[Fault]:
    """An operand too few, and one too many."""
    if not op.operands:
        return

    def fewer(copy: SpecOp) -> None:
        copy.operands = list(copy.operands)[:-1]

    def more(copy: SpecOp) -> None:
        copy.operands = [*copy.operands, copy.operands[-1]]

    yield Fault("count", "the last operand is missing", fewer)
    yield Fault("count", "the last operand stands twice", more)


def _alignments(op: SpecOp) -> Iterator[Fault]:
    """Places and lines that are no multiples of what they have to be."""
    for name in ALIGNED:
        if op.kinds.get(name) == "int" and not (name == "mailbox" and op.value(name) == -1):
            for value in (op.value(name) + 1, op.value(name) + 4 if op.value(name) % 8 == 0 else 3):
                yield Fault("alignment", f"{name} = {value}", _setting(name, value))


def _setting(name: str, value: int) -> Callable[[SpecOp], None]:
    return lambda copy: copy.set_value(name, value)
