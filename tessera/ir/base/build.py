"""Building IR: the `Builder` that `decompose` gets, writers at the end of a block, and regions made from tapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.dialect_of import inferred_types, make, op_class, properties_of
from tessera.ir.base.infer import Guards, RuleContext
from tessera.ir.base.op import TAPES, SpecOp, plain, rule_attributes
from tessera.ir.base.spec import Producer, Registry
from tessera.ir.base.tape import POLICY, Record, Tape
from tessera.ir.base.types import ShapedAttr, TensorAttr, attribute_of, location_of
from tessera.types.dim import Dim
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

# Writing IR: ops of one dialect, one after the other, into a block.


class OpWriter:
    """A block that grows, at its end or `before` an op, and the line that its next ops come from.

    `dialect` finds ops by their short names.
    """

    dialect: Registry
    block: Block

    def __init__(self, block: Block, before: SpecOp | None = None) -> None:
        self.block, self.before = block, before
        self.span: Span | None = None if before is None else before.span

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue] = (),
        values: Mapping[str, Any] | None = None,
        types: Sequence[Any] = (),
        regions: Sequence[Any] = (),
    ) -> SpecOp:
        """Write an op."""
        op = make(self.dialect[name], list(operands), values, types=types, regions=regions, span=self.span)
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)
        return op


# Blocks and tapes: a traced sub-program as a region, and a region as a tape again.


def block_of(tape: Tape, terminator: str) -> Block:
    """The tape as a block: arguments are its inputs, and `terminator` (an op's full name) takes its outputs."""
    block = Block(arg_types=[TensorAttr.of(tape.types[value]) for value in tape.inputs])
    values: dict[int, SSAValue] = dict(zip(tape.inputs, block.args, strict=True))
    for value, name in zip(tape.inputs, tape.names, strict=False):
        values[value].name_hint = name if SSAValue.is_valid_name(name) else None
    for record in tape.records:
        op = _op_of(record, values, tape)
        block.add_op(op)
        for number, result in zip(record.results, op.results, strict=True):
            values[number] = result
    block.add_op(make(terminator, [values[value] for value in tape.outputs]))
    return block


def _op_of(record: Record, values: Mapping[int, SSAValue], tape: Tape) -> SpecOp:
    cls = op_class(record.op)
    given, defaults = record.attributes, cls.defaults
    properties: dict[str, Any] = {
        name: attribute_of(kind, given[name]) if name in given else defaults[name] for name, kind in cls.kinds.items()
    }
    regions = regions_of(cls, given) if cls.spec.region_names else ()
    promises = {POLICY: attribute_of("any", record.policy.entries)} if record.policy else {}
    return cls.create(
        operands=[values[operand] for operand in record.operands],
        result_types=[TensorAttr.of(tape.types[result]) for result in record.results],
        properties=properties,
        attributes=promises,
        location=location_of(record.span),
        regions=regions,
    )


def regions_of(cls: type[SpecOp], values: Mapping[str, Any]) -> list[Any]:
    """The tapes among an op's attributes as regions, in the order of the spec."""
    from xdsl.ir import Region  # noqa: PLC0415 - few ops have regions

    terminator = f"{cls.dialect_name()}.yield"
    tapes: list[Tape] = []
    for attribute in cls.spec.attributes:
        if attribute.kind == "tape":
            tapes.append(values[attribute.name])
        elif attribute.kind == "tapes":
            tapes.extend(values[attribute.name])
    return [Region(block_of(tape, terminator)) for tape in tapes]


def tapes_of(op: SpecOp) -> dict[str, Any]:
    """The regions of an op that were tapes, as tapes, by attribute."""
    found: dict[str, Any] = {}
    at = 0
    for attribute in op.spec.attributes:
        if attribute.kind == "tape":
            found[attribute.name] = tape_of(op.regions[at].block)
            at += 1
        elif attribute.kind == "tapes":
            count = len(op.regions) - at - len(op.spec.regions)
            found[attribute.name] = tuple(tape_of(region.block) for region in op.regions[at : at + count])
            at += count
    return found


def tape_of(block: Block, names: Sequence[str] = ()) -> Tape:
    """A block of ops with shape rules, ended by a terminator, as a tape."""
    tape = Tape()
    numbers: dict[SSAValue, int] = {}

    def number(value: SSAValue) -> int:
        assert isinstance(value.type, TensorAttr)
        numbers[value] = tape.new_value(value.type.data)
        return numbers[value]

    tape.inputs = [number(argument) for argument in block.args]
    tape.names = list(names) or [argument.name_hint or f"arg{i}" for i, argument in enumerate(block.args)]
    for op in block.ops:
        assert isinstance(op, SpecOp)
        operands = tuple(numbers[operand] for operand in op.operands)
        if op.spec.is_terminator:
            tape.outputs = list(operands)
            continue
        attributes = rule_attributes(op) if any(a.kind in TAPES for a in op.spec.attributes) else op.values()
        results = tuple(number(result) for result in op.results)
        own = op.attributes.get(POLICY)
        policy = SILENT if own is None else Policy.of(plain(own))
        tape.records.append(Record(op.name, operands, attributes, results, op.span, policy))
    return tape


class Build:
    """Puts ops into a block before `before` (or at its end), with one span, running their shape rules.

    Equalities that nothing proves become guards of the function around; ops made are in `made`, in order, and say of
    themselves what `promises` say.
    """

    def __init__(
        self,
        block: Block,
        before: Operation | None = None,
        span: Span | None = None,
        dialect: str = "tgraph",
        promises: Mapping[str, Attribute] | None = None,
    ) -> None:
        self.block, self.before, self.dialect = block, before, dialect
        self.promises = promises
        self.location = location_of(span)
        self.made: list[SpecOp] = []
        self._rules: RuleContext | None = None

    @property
    def _context(self) -> RuleContext:
        # Found at the first emit: most rules look at an op and make nothing.
        if self._rules is None:
            self._function = _function_around(self.block)
            pairs = self._function.value("guards") if self._function is not None else ()
            self._rules = RuleContext(Guards(pairs or ()), self._guard)
        return self._rules

    def _guard(self, left: Dim, right: Dim, what: str) -> None:
        guards = self._context.guards
        guards.add(left, right, what)
        if self._function is not None:
            self._function.set_value("guards", tuple(guards.pairs))

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of op `<dialect>.<name>`, or a tuple when it has several."""
        cls = op_class(name if "." in name else f"{self.dialect}.{name}")
        properties = properties_of(cls, attributes)
        regions: Any = ()
        values = {name: attribute.data for name, attribute in properties.items()}
        if cls.spec.region_names:
            values.update({k: v for k, v in attributes.items() if k not in cls.kinds})
            regions = regions_of(cls, values)
        op = cls.create(
            operands=operands,
            result_types=inferred_types(cls, operands, properties, values, self._context),
            properties=properties,
            location=self.location,
            regions=regions,
        )
        self.insert(op)
        several = len(cls.spec.results) != 1 or cls.spec.results[0].endswith("*")
        return tuple(op.results) if several else op.results[0]

    def insert(self, op: SpecOp) -> None:
        self.made.append(op)
        if self.promises:
            op.attributes.update(self.promises)
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)

    def type_of(self, value: Any) -> TensorType:
        type = value.type
        assert isinstance(type, ShapedAttr)
        return type.data

    def producer(self, value: Any) -> Producer | None:
        """The op whose only result `value` is; None for an argument, or one result of several."""
        op = value.owner if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or len(op.results) != 1:
            return None
        attributes = rule_attributes(op) if op.regions else op.values()
        return Producer(op.spec.short_name, tuple(op.operands), attributes, op.spec.moves_elements)

    def undo(self) -> None:
        """Take back what was made."""
        for op in reversed(self.made):
            op.detach()
            op.erase()
        self.made.clear()


def _function_around(block: Block) -> SpecOp | None:
    at = block.parent_op()
    while at is not None:
        if isinstance(at, SpecOp) and at.spec.form == "function" and "guards" in at.kinds:
            return at
        at = at.parent_op()
    return None


def tensor_value(value: SSAValue) -> TensorType:
    """The plain type of a value of Graph IR."""
    assert isinstance(value.type, TensorAttr)
    return value.type.data
