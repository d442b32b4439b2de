"""Blocks and tapes: a traced sub-program as a region, and a region as a tape again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import Block, SSAValue

from tessera.ir.base.dialect_of import make, op_class
from tessera.ir.base.location import location_of
from tessera.ir.base.op import TAPES, SpecOp, plain, rule_attributes
from tessera.ir.base.tape import POLICY, Record, Tape
from tessera.ir.base.types import TensorAttr, attribute_of
from tessera.types.policy import SILENT, Policy


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
