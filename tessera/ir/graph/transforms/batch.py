"""Batch: a program for one element as the program for a batch of them, which is a first axis of its values.

Values that do not depend on a batched input have no such axis and are computed once. Each op is rewritten by its
`batch` rule (`ir/graph/batching`) or through its `decompose`; one that has neither, such as a kernel that a user wrote,
runs for one element after the other, in a loop that is part of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Attributes, OpSpec
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.batching.shared import PACKAGE, BatchedOp, batch_rule
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, as_values, load_rule, remove_dead
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType


@frozen
class Batched:
    """A value, and whether it has the batch as its first axis."""

    value: int
    is_batched: bool


class _BatchedBuilder:
    """The builder that `decompose` of an op gets: what it emits is batched on the way."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    def type_of(self, value: Batched) -> TensorType:
        type = self._batcher.builder.type_of(value.value)
        return type.with_shape(type.shape[1:]) if value.is_batched else type

    def emit(self, name: str, *operands: Batched, **attributes: Any) -> Any:
        spec = REGISTRY[name]
        made = tuple(
            self._batcher.apply(spec, operands, spec.complete(attributes, [self.type_of(one) for one in operands]))
        )
        return made[0] if spec.has_one_result else made


class Batcher:
    """Puts a program on a tape record by record, for a batch of some size; collectives over its name are over it."""

    def __init__(self, builder: TapeBuilder, size: Dim, name: str = "") -> None:
        self.builder, self.size, self.name = builder, size, name

    def run(self, tape: Tape, operands: Sequence[Batched]) -> list[Batched]:
        """The outputs of a tape on these values."""
        values = dict(zip(tape.inputs, operands, strict=True))
        for record in tape.records:
            self.builder.follow(record)
            given = [values[operand] for operand in record.operands]
            types = [tape.types[result] for result in record.results]
            values.update(zip(record.results, self._step(record, given, types), strict=True))
        return [values[output] for output in tape.outputs]

    def _step(self, record: Record, given: Sequence[Batched], types: Sequence[TensorType]) -> Sequence[Batched]:
        if any(value.is_batched for value in given) or self._is_named(record.attributes):
            return self.apply(REGISTRY[record.op], given, record.attributes)
        results = self.builder.copy(record, [value.value for value in given], types)
        return [Batched(result, False) for result in results]

    def apply(self, spec: OpSpec, given: Sequence[Batched], attributes: Attributes) -> list[Batched]:
        """The results of an op on values of which some may be batched."""
        b = self.builder
        is_named = self._is_named(attributes)
        if is_named and not spec.region_names:
            return [load_rule(PACKAGE, "control:over_batch")(self, spec, given, attributes)]
        if not is_named and not any(value.is_batched for value in given):
            plain = b.append(spec, [value.value for value in given], attributes)
            return [Batched(result, False) for result in plain]
        if spec.region_names and spec.batch is not None:
            rewrite: Any = batch_rule(spec)
            return rewrite(self, given, attributes)
        rule, made = batch_rule(spec), None
        if rule is not None:
            values, flags = tuple(value.value for value in given), tuple(value.is_batched for value in given)
            made = rule(b, BatchedOp(values, flags, self.size, attributes, spec))
        elif spec.decompose is not None:
            parts = spec.decompose(_BatchedBuilder(self), tuple(given), attributes)
            return [Batched(self.whole(part), True) for part in as_values(parts)]
        if made is None:
            return [Batched(result, True) for result in self.loop(spec, given, attributes)]
        return [one if isinstance(one, Batched) else Batched(one, True) for one in as_values(made)]

    def _is_named(self, attributes: Attributes) -> bool:
        """Whether an op is a collective over the batch, or has one in a body."""
        if not self.name:
            return False
        bodies = [value for value in attributes.values() if isinstance(value, Tape)]
        return attributes.get("axis") == self.name or any(
            self._is_named(record.attributes) for body in bodies for record in body.records
        )

    def batch_body(self, tape: Tape, is_batched: Sequence[bool], always: Sequence[bool]) -> tuple[Tape, list[bool]]:
        """A body of control flow for the batch, as `batch_body` has it."""
        return batch_body(tape, is_batched, self.size, always, self.name)

    def whole(self, value: Batched) -> int:
        """A value with the batch, which it is broadcast to where it lacks it."""
        if value.is_batched:
            return value.value
        shape = self.builder.type_of(value.value).shape
        return self.builder.emit("broadcast_to", value.value, shape=(self.size, *shape))

    def loop(self, spec: OpSpec, given: Sequence[Batched], attributes: Attributes) -> Sequence[int]:
        """The results of an op for one element of the batch after the other, stacked."""
        b = self.builder
        rows = [value.value for value in given if value.is_batched]
        others = [value.value for value in given if not value.is_batched]
        inner = TapeBuilder()
        inner.span, inner.policy, inner.device, inner.region = b.span, b.policy, b.device, b.region
        types = [b.type_of(value) for value in rows]
        scanned = add_inputs(
            inner.tape, [one.with_shape(one.shape[1:]) for one in types], [f"row_{at}" for at in range(len(rows))]
        )
        names = [f"captured_{at}" for at in range(len(others))]
        captured = add_inputs(inner.tape, [b.type_of(value) for value in others], names)
        left, right = iter(scanned), iter(captured)
        operands = [next(left) if value.is_batched else next(right) for value in given]
        inner.tape.outputs = list(inner.append(spec, operands, attributes))
        counts = {"carried": 0, "scanned": len(rows), "length": (self.size,), "reverse": False}
        return as_values(b.emit("scan", *rows, *others, body=inner.tape, **counts))


def batch_body(
    tape: Tape, is_batched: Sequence[bool], size: Dim, always: Sequence[bool], name: str = ""
) -> tuple[Tape, list[bool]]:
    """A body whose inputs are batched as said, and which of its outputs then are: those of `always` in any case."""
    builder = TapeBuilder(Tape(guards=list(tape.guards)))
    types = [tape.types[value] for value in tape.inputs]
    batched = [
        one.with_shape((size, *one.shape)) if given else one for one, given in zip(types, is_batched, strict=True)
    ]
    inputs = add_inputs(builder.tape, batched, tape.names)
    batcher = Batcher(builder, size, name)
    outputs = batcher.run(tape, [Batched(*pair) for pair in zip(inputs, is_batched, strict=True)])
    flags = [output.is_batched or one for output, one in zip(outputs, always, strict=True)]
    builder.tape.outputs = [
        batcher.whole(output) if flag else output.value for output, flag in zip(outputs, flags, strict=True)
    ]
    remove_dead(builder.tape)
    return builder.tape, flags


def batch_tape(tape: Tape, is_batched: Sequence[bool], size: Dim, name: str = "") -> tuple[Tape, list[bool]]:
    """A program for a batch, and which of its outputs have it: of inputs that do, the others are shared by all.

    Collectives over the mesh axis `name` are those of the batch.
    """
    made, flags = batch_body(tape, is_batched, size, [False] * len(tape.outputs), name)
    made.promises, made.functions = dict(tape.promises), list(tape.functions)
    return made, flags
