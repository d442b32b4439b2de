"""`TapeBuilder`: the `Builder` that writes records on a tape, which rules of transforms are given."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, cast

from tessera.diagnostics.codes import DifferentiationError, GraphVerifyError
from tessera.diagnostics.error import Span
from tessera.ir.base.infer import Guards, RuleContext, RuleError
from tessera.ir.base.spec import Builder, OpSpec
from tessera.ir.base.tape import Guard, Record, Tape
from tessera.ir.graph.building import cast as convert
from tessera.ir.graph.ops import REGISTRY, policy_of
from tessera.ir.graph.ops.custom import LINEAR
from tessera.ir.graph.policy_casts import OpUnderPolicy, needs_work, static_bits
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import BlockFormat, DType
from tessera.types.policy import NEAREST, SILENT, Policy
from tessera.types.promotion import holds
from tessera.types.shape import Shape, TensorType


class TapeBuilder:
    """Appends records to a tape, running their shape rules; values are the tape's numbers.

    New records have the line, the policy, the device and the mesh axes of the record of the forward program that they
    come from, which the builder is told to `follow`, so that errors, reports and profiles name the user's line.
    """

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = tape if tape is not None else Tape()
        self.span: Span | None = None
        self.policy: Policy = SILENT
        self.device = self.region = ""
        guards = Guards((guard.left, guard.right, guard.what) for guard in self.tape.guards)
        self._context = RuleContext(guards, self._guard)

    def _guard(self, left: Dim, right: Dim, what: str) -> None:
        self._context.guards.add(left, right, what)
        self.tape.guards.append(Guard(left, right, what, self.span))

    def assume(self, tape: Tape) -> None:
        """Check at every call what another tape relies on, as far as it is not known here."""
        for guard in tape.guards:
            if not self._context.guards.are_equal(guard.left, guard.right):
                self._guard(guard.left, guard.right, guard.what)

    def follow(self, source: Record) -> None:
        """Let what is emitted next come from the line of a record."""
        self.span, self.policy, self.device, self.region = source.span, source.policy, source.device, source.region

    def type_of(self, value: Any) -> TensorType:
        return self.tape.types[int(value)]

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of op `tgraph.<name>`, or a tuple when it has several."""
        spec = REGISTRY[name]
        results: Any = self.append(spec, operands, spec.complete(attributes, [self.type_of(one) for one in operands]))
        return results[0] if spec.has_one_result else results

    def append(self, spec: OpSpec, operands: Sequence[int], attributes: Mapping[str, Any]) -> tuple[int, ...]:
        """The results of an op with all its attributes."""
        results = tuple(self.tape.new_value(type) for type in self.infer(spec, operands, attributes))
        about = self.span, self.policy, self.device, self.region
        record = Record(spec.name, tuple(operands), attributes, results, *about)
        self.tape.records.append(record)
        for body in record.bodies if spec.region_names else ():
            self.assume(body)
            # What a rule adds to a body comes from the line of the op around it.
            body.records[:] = [replace(one, span=self.span) if one.span is None else one for one in body.records]
        return results

    def infer(self, spec: OpSpec, operands: Sequence[int], attributes: Mapping[str, Any]) -> Sequence[TensorType]:
        """The types of an op's results."""
        try:
            return spec.infer(self._context, [self.tape.types[operand] for operand in operands], attributes)
        except RuleError as error:
            raise GraphVerifyError(error.message, span=self.span, fix=error.advice or None) from error

    def copy(self, record: Record, operands: Sequence[int], types: Sequence[TensorType]) -> tuple[int, ...]:
        """The results, of these types, of a record of another tape, on operands of this one."""
        results = tuple(self.tape.new_value(type) for type in types)
        self.tape.records.append(replace(record, operands=tuple(operands), results=results))
        return results

    def inline(self, tape: Tape, operands: Sequence[int]) -> list[int]:
        """The outputs of another tape on operands of this one."""
        self.assume(tape)
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


_KEEPING = frozenset(f"tgraph.{name}" for name in ("round_to", "round_stochastic", "cast", "transpose", "reshape"))
"""Ops through which a value keeps the format that it was rounded to before."""


@lru_cache(maxsize=1 << 8)
def _without_storage(whole: Policy) -> tuple[Policy, Policy]:
    """A policy that stores and computes as the op does, and one that rounds as it does, too."""
    own = replace(whole, storage=None, compute=None)
    return own, replace(own, rounding="", saturation="")


_DRAWS = 64
"""How far apart the first roundings of two ops are numbered."""


class DerivativeBuilder(TapeBuilder):
    """The builder of derivative rules: an op that they emit is under the policy of the op that they belong to.

    Cotangents and tangents have the dtype of their values, and are rounded to it as the policy says. Operands of
    contractions are stored as those of the op were, sums have its accumulator; what is in f32 stays as it is.
    """

    first_rounding = 1 << 30
    """Roundings at random are numbered from here on, as no forward rounding is."""

    def __init__(self, tape: Tape | None = None) -> None:
        super().__init__(tape)
        self.rounded = 0
        """How many ops drew random bits: the same number where a part of the program is checkpointed."""
        self._drawn = 0
        self._is_converting = False
        self._makers: dict[int, Record] = {}
        self._known = 0

    def append(self, spec: OpSpec, operands: Sequence[int], attributes: Mapping[str, Any]) -> tuple[int, ...]:
        whole = self.policy
        if self._is_converting or not whole:
            return super().append(spec, operands, attributes)
        work, self.policy = self._policies_for(spec, operands)
        self._is_converting, self._drawn = True, 0
        try:
            if not needs_work(work):
                return super().append(spec, operands, attributes)
            op = OpUnderPolicy(self, spec.short_name, attributes, work, self._draw_bits, self.span, self._skip_stored)
            return as_values(op.apply(operands))
        finally:
            self._is_converting, self.policy = False, whole

    def _draw_bits(self, b: Builder, shape: Shape) -> Any:
        return static_bits(first=self._count_rounding())(b, shape)

    def _count_rounding(self) -> int:
        """The number of the next rounding; an op counts once it has one, as the tape decides which others are there."""
        if not self._drawn:
            self.rounded += 1
        self._drawn += 1
        return self.first_rounding + self.rounded * _DRAWS + self._drawn

    def _skip_stored(self, value: int) -> bool:
        """Whether a factor is stored already; rounding it again, where this is not known, would take a number."""
        storage, is_stored = self.policy.storage, self._is_stored(value)
        if is_stored and isinstance(storage, DType) and not holds(storage, self.type_of(value).dtype):
            self._count_rounding()
        return is_stored

    def _policies_for(self, spec: OpSpec, operands: Sequence[int]) -> tuple[Policy, Policy]:
        """The policy that an op of a derivative is built under, and the one that its record states.

        The second is never silent, or that of the function would hold, which stores what is here in f32.
        """
        whole, rule = self.policy, policy_of(spec)
        if rule.role == "contract" and isinstance(whole.storage, BlockFormat):
            # Blocks are of the axis that is summed over, which is another one in each derivative.
            whole = replace(whole, storage=None)
        if rule.role == "contract" or not rule.is_arithmetic:
            return whole, whole
        own, plain = _without_storage(whole)
        dtypes = [self.tape.types[value].dtype for value in operands]
        is_wide = all(one is dt.f32 for one in dtypes if one.is_float)
        return plain if is_wide else own, own or NEAREST

    def _is_stored(self, value: int) -> bool:
        """Whether a value went through the dtype that the policy stores, and is in the one that it computes in."""
        storage, compute = self.policy.storage, self.policy.compute
        if self.type_of(value).dtype is not (compute if isinstance(compute, DType) else storage):
            return False
        for record in self.tape.records[self._known :]:
            self._makers.update(dict.fromkeys(record.results, record))
        self._known = len(self.tape.records)
        while (record := self._makers.get(value)) is not None and record.op in _KEEPING:
            if record.attributes.get("format") == str(storage):
                return True
            value = record.operands[0]
        return self.type_of(value).dtype is storage

    def add_cotangents(self, total: int, part: int) -> int:
        """The sum of two cotangents of a value, in the accumulator of the policy."""
        wide = self.accumulator(self.type_of(part))
        return self.emit("add", *(self.convert(value, wide) for value in (total, part)))

    def accumulator(self, type: TensorType) -> TensorType:
        """The type in which cotangents of a type are summed."""
        total = self.policy.accumulate
        is_wider = total is not None and total.is_float and total.bits > type.dtype.bits
        return type.with_dtype(total) if is_wider and total is not None else type

    def convert(self, value: int, type: TensorType) -> int:
        """A value in the dtype of a type, rounded as the policy says."""
        return convert(self, value, type.dtype)

    def divide(self, value: int, number: float) -> int:
        """A value over a number, in the dtype that it computes in, rounded once."""
        own = self.type_of(value).dtype
        divisor = self.emit("full", shape=(), value=number, dtype=own.compute)
        return convert(self, self.emit("div", convert(self, value, own.compute), divisor), own)

    def cotangent_type(self, type: TensorType) -> TensorType:
        """The type of a cotangent: what is stored narrower than it is computed with has a result's as its cotangent."""
        compute = self.policy.compute
        return type.with_dtype(compute) if isinstance(compute, DType) and holds(compute, type.dtype) else type


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


def take_apart(tape: Tape, record: Record) -> Tape:
    """The program that a record of a composite op stands for, of its operands."""
    spec, builder = REGISTRY[record.op], TapeBuilder()
    assert spec.decompose is not None
    builder.follow(record)
    types = [tape.types[value] for value in record.operands]
    inputs = add_inputs(builder.tape, types, [f"x{at}" for at in range(len(types))])
    builder.tape.outputs = list(as_values(spec.decompose(builder, tuple(inputs), record.attributes)))
    return builder.tape


def renumber_functions(tape: Tape, slot_of: Callable[[Any], int]) -> Tape:
    """A tape that keeps Python functions of its own, also in its bodies, with the slots that others are given."""
    slots: dict[int, int] = {}

    def renumber_attribute(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(renumber_attribute("", one) for one in cast("tuple[Any, ...]", value))
        if isinstance(value, Tape):
            return renumber(value)
        if name == "slot":
            if value not in slots:
                slots[value] = slot_of(tape.functions[value])
            return slots[value]
        return value

    def renumber(own: Tape) -> Tape:
        records = [
            replace(one, attributes={name: renumber_attribute(name, value) for name, value in one.attributes.items()})
            if one.bodies or one.op == "tgraph.io_callback"
            else one
            for one in own.records
        ]
        return replace(own, records=records, functions=[])

    return renumber(tape)


def remove_dead(tape: Tape) -> None:
    """Take away records whose results nothing needs and which do nothing else."""
    needed = set(tape.outputs)
    kept: list[Record] = []
    for record in reversed(tape.records):
        if not needed.isdisjoint(record.results) or has_effects(record):
            needed.update(record.operands)
            kept.append(record)
    tape.records[:] = kept[::-1]


def silence(record: Record) -> Record:
    """A record that rematerializes the values of another one, and leaves the effects to that one.

    Raises DifferentiationError (T0306) where a value in it comes of an effect, which would happen twice.
    """
    if record.op == LINEAR:
        return record  # its rules are of tangents
    own = sorted(REGISTRY[record.op].effects_for(record.attributes) & {"io", "state"})
    if own:
        raise DifferentiationError(
            f"`{record.op.split('.', 1)[1]}` gives a value to a loop that is run again for its tangents, and it has "
            f"the effect `{own[0]}`, which would happen twice",
            span=record.span,
            fix="move it out of the loop, or use `tessera.jvp`, which runs values and tangents in one loop",
        )
    if not record.bodies:
        return record
    made = {name: _silence_body(one) if isinstance(one, Tape) else one for name, one in record.attributes.items()}
    return replace(record, attributes=made)


def _silence_body(tape: Tape) -> Tape:
    needed, kept = set(tape.outputs), list[Record]()
    for record in reversed(tape.records):
        if not needed.isdisjoint(record.results):
            needed.update(record.operands)
            kept.append(silence(record))
    return replace(tape, records=kept[::-1])


def has_effects(record: Record) -> bool:
    """Whether a record does more than compute: draws depend on their keys alone, and may go."""
    return bool(effects_of(record) - {"random"})


def effects_of(record: Record) -> frozenset[str]:
    """The effects of a record, and of those in its bodies."""
    inner = (effects_of(one) for body in record.bodies for one in body.records)
    return REGISTRY[record.op].effects_for(record.attributes).union(*inner)


@cache
def load_rule(package: str, facet: str) -> Callable[..., Any]:
    """The function that a facet names: "module:function" of a package of rules, or one of its `shared`."""
    module, _, name = facet.rpartition(":")
    return getattr(importlib.import_module(f"{package}.{module or 'shared'}"), name)
