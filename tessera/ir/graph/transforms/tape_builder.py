"""`TapeBuilder`: the `Builder` that writes records on a tape, which rules of transforms are given."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

from tessera.diagnostics.codes import GraphVerifyError
from tessera.diagnostics.error import Span
from tessera.ir.base.infer import Guards, RuleContext, RuleError
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType


class TapeBuilder:
    """Appends records to a tape, running their shape rules; values are the tape's numbers.

    New records have the line, the policy and the device of the record of the forward program that they come from, which
    the builder is told to `follow`, so that errors, reports and profiles name the user's line.
    """

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = tape if tape is not None else Tape()
        self.span: Span | None = None
        self.policy: Policy = SILENT
        self.device = ""
        guards = Guards((guard.left, guard.right, guard.what) for guard in self.tape.guards)
        self._context = RuleContext(guards, self._guard)

    def _guard(self, left: Dim, right: Dim, what: str) -> None:
        self._context.guards.add(left, right, what)
        self.tape.guards.append(Guard(left, right, what, self.span))

    def follow(self, source: Record) -> None:
        """Let what is emitted next come from the line of a record."""
        self.span, self.policy, self.device = source.span, source.policy, source.device

    def type_of(self, value: Any) -> TensorType:
        return self.tape.types[int(value)]

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of op `tgraph.<name>`, or a tuple when it has several."""
        spec = REGISTRY[name]
        results: Any = self.append(spec, operands, spec.with_defaults(attributes))
        return results[0] if spec.has_one_result else results

    def append(self, spec: OpSpec, operands: Sequence[int], attributes: Mapping[str, Any]) -> tuple[int, ...]:
        """The results of an op with all its attributes."""
        try:
            types = spec.infer(self._context, [self.tape.types[operand] for operand in operands], attributes)
        except RuleError as error:
            raise GraphVerifyError(error.message, span=self.span, fix=error.advice or None) from error
        results = tuple(self.tape.new_value(type) for type in types)
        record = Record(spec.name, tuple(operands), attributes, results, self.span, self.policy, self.device)
        self.tape.records.append(record)
        for body in record.bodies if spec.region_names else ():
            # What a rule adds to a body comes from the line of the op around it.
            body.records[:] = [replace(one, span=self.span) if one.span is None else one for one in body.records]
        return results

    def copy(self, record: Record, operands: Sequence[int], types: Sequence[TensorType]) -> tuple[int, ...]:
        """The results, of these types, of a record of another tape, on operands of this one."""
        results = tuple(self.tape.new_value(type) for type in types)
        self.tape.records.append(replace(record, operands=tuple(operands), results=results))
        return results

    def inline(self, tape: Tape, operands: Sequence[int]) -> list[int]:
        """The outputs of another tape on operands of this one."""
        values = dict(zip(tape.inputs, operands, strict=True))
        for record in tape.records:
            made = self.copy(
                record, [values[operand] for operand in record.operands], [tape.types[v] for v in record.results]
            )
            values.update(zip(record.results, made, strict=True))
        return [values[output] for output in tape.outputs]

    def zeros(self, type: TensorType) -> int:
        """Zeros of a type."""
        return self.emit("full", shape=type.shape, value=0.0, dtype=type.dtype)


def as_values(made: Any) -> tuple[Any, ...]:
    """What a rule gives, one value or several, as a tuple."""
    return tuple(cast("Sequence[Any]", made)) if isinstance(made, tuple | list) else (made,)


def add_inputs(tape: Tape, types: Sequence[TensorType], names: Sequence[str]) -> list[int]:
    """New inputs of a tape."""
    values = [tape.new_value(type) for type in types]
    tape.inputs += values
    tape.names += names
    return values


def replace_values(tape: Tape, replaced: Mapping[int, int]) -> None:
    """Let records behind the one that makes a value, and outputs, read another in its place."""
    made: set[int] = set()
    for at, record in enumerate(tape.records):
        operands = tuple(replaced[v] if replaced.get(v) in made else v for v in record.operands)
        if operands != record.operands:
            tape.records[at] = replace(record, operands=operands)
        made.update(record.results)
    tape.outputs[:] = [replaced.get(value, value) for value in tape.outputs]


def remove_dead(tape: Tape) -> None:
    """Take away records whose results nothing needs and which do nothing else."""
    needed = set(tape.outputs)
    kept: list[Record] = []
    for record in reversed(tape.records):
        if not needed.isdisjoint(record.results) or has_effects(record):
            needed.update(record.operands)
            kept.append(record)
    tape.records[:] = kept[::-1]


def has_effects(record: Record) -> bool:
    """Whether a record does more than compute: draws depend on their keys alone, and may go."""
    spec = REGISTRY[record.op]
    own = spec.effects_for(record.attributes) - {"random"}
    return bool(own) or any(has_effects(inner) for body in record.bodies for inner in body.records)


@cache
def load_rule(package: str, facet: str) -> Callable[..., Any]:
    """The function that a facet names: "module:function" of a package of rules, or one of its `shared`."""
    module, _, name = facet.rpartition(":")
    return getattr(importlib.import_module(f"{package}.{module or 'shared'}"), name)
