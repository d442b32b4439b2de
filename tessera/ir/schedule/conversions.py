"""Conversions of a plan: groups that write a value with its dims in another order, and groups that read it so.

A group that reads the converted value sees it as before: its body has a view that gives the dims their old order, which
is one with the views that were there. So a conversion is put into a plan, or taken out again, without a change of what
any op computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, SSAValue

from tessera.ir.base.dialect_of import installed_dialects, make
from tessera.ir.base.tape import CONSTANT, Record, Tape
from tessera.ir.base.types import TensorAttr, ValueAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.bodies import canonicalize, name_of
from tessera.ir.schedule.costs import cost_of
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.host_program.memory import ANNOTATIONS
from tessera.ir.schedule.kinds import GroupKind, kernel_kinds
from tessera.ir.schedule.layouts import Access, Order, identity
from tessera.ir.schedule.plan import (
    body_of,
    function_of,
    fusions_in,
    overwritten_arguments,
    programs_in,
    tape_in,
    tensor_of,
    tiles_of,
)
from tessera.ir.schedule.typed_ops import AliasOp, FuseOp
from tessera.ir.tile.facets import View
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType


@cache
def _ordering() -> tuple[str, str]:
    """The op that gives dims in another order, and its attribute that says which."""
    specs = (spec for registry in installed_dialects().values() for spec in registry)
    return next((spec.name, spec.lower.order) for spec in specs if isinstance(spec.lower, View) and spec.lower.order)


def order_of(record: Record) -> Order | None:
    """The order in which a record gives the dims of its operand; None for one that does anything else."""
    lower = spec_of(record).lower
    return tuple(record.attributes[lower.order]) if isinstance(lower, View) and lower.order else None


def _ordered(value: int, order: Order, result: int) -> Record:
    name, attribute = _ordering()
    return Record(name, (value,), {attribute: order}, (result,))


def _in_order(type: TensorType, order: Order) -> TensorType:
    return type.with_shape(type.shape[axis] for axis in order)


def _invert(order: Order) -> Order:
    return tuple(order.index(axis) for axis in range(len(order)))


def copy_body(type: TensorType, order: Order) -> Tape:
    """The body of a group that writes a tensor with its dims in an order."""
    return Tape([0], ["a0"], [_ordered(0, order, 1)], [1], [type, _in_order(type, order)])


def read_ordered(body: Tape, number: int, order: Order) -> Tape:
    """A body whose input of a number is given with its dims in an order, and seen as before.

    What gives the dims of that view yet another order is one view of what is given, or that itself.
    """
    value, tape = body.inputs[number], replace(body, types=list(body.types))
    given = tape.new_value(_in_order(body.types[value], order))
    orders = {value: _invert(order)}
    for record in body.records:
        own = order_of(record)
        if own is not None and record.operands[0] in orders:
            orders[record.results[0]] = tuple(orders[record.operands[0]][axis] for axis in own)
    kept = [record for record in body.records if orders.keys().isdisjoint(record.results)]
    used = {operand for record in kept for operand in record.operands} | set(body.outputs)
    same = {seen: given for seen, whole in orders.items() if whole == identity(len(order))}
    tape.records = [_ordered(given, whole, seen) for seen, whole in orders.items() if seen in used - same.keys()]
    for record in kept:
        operands = tuple(same.get(operand, operand) for operand in record.operands)
        tape.records.append(record if operands == record.operands else replace(record, operands=operands))
    tape.inputs = [given if one == value else one for one in body.inputs]
    tape.outputs = [same.get(output, output) for output in body.outputs]
    return tape


@frozen
class Reader:
    """A group that reads a value as its operand of a number, and how its kernel does."""

    fuse: FuseOp
    number: int
    accesses: tuple[Access, ...]

    def gains(self, order: Order) -> bool:
        """Whether some read of the value is slow, and that of a copy with its dims in an order is not."""
        own = identity(len(order))
        return any(one.is_slow(own) and not one.is_slow(order) for one in self.accesses)


class Conversions:
    """The values of the plans of a module, the groups that read them, and conversions between the two."""

    def __init__(self, module: ModuleOp) -> None:
        self.module, self.functions = module, symbol_table(module)
        self._accesses: dict[tuple[str, str], Mapping[int, Sequence[Access]]] = {}
        self._replaced: set[str] = set()
        every = (op for program in programs_in(module) for op in program.walk())
        self._positions = {op: float(number) for number, op in enumerate(every)}
        """Where each op is in its program; that of a copy is just before its first reader."""

    def readers(self, value: SSAValue) -> list[Reader]:
        """The groups beside a value that read it, each from memory that it does not write over, in their order."""
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        found: list[Reader] = []
        users = dict.fromkeys(use.operation for use in value.uses)
        for fuse in (op for op in users if isinstance(op, FuseOp)):
            if fuse.parent is not block or fuse.launch >= 0 or fuse.body not in self.functions:
                continue
            numbers = [at for at, operand in enumerate(fuse.operands) if operand is value and at not in fuse.in_place]
            accesses = self._accesses_of(fuse)
            found += [Reader(fuse, at, tuple(accesses.get(at, ()))) for at in numbers]
        return sorted(found, key=lambda reader: self._positions[reader.fuse])

    def _accesses_of(self, fuse: FuseOp) -> Mapping[int, Sequence[Access]]:
        key = (fuse.body, fuse.kind)
        if key not in self._accesses:
            kind = kernel_kinds().get(fuse.kind, GroupKind())
            body = tape_in(body_of(fuse, self.functions))
            # What only moves elements would be copied for a copy.
            is_copy = all(isinstance(spec_of(record).lower, View) for record in body.records)
            self._accesses[key] = {} if is_copy else kind.accesses(body, tuple(fuse.axes))
        return self._accesses[key]

    def copies(self, value: SSAValue) -> dict[Order, FuseOp]:
        """The groups that do nothing but write a value with its dims in an order, for groups that could go across."""
        found: dict[Order, FuseOp] = {}
        for reader in self.readers(value):
            body = tape_in(body_of(reader.fuse, self.functions))
            order = order_of(body.records[0]) if len(body.records) == 1 else None
            if order is not None and self._is_only_read(reader.fuse):
                found.setdefault(order, reader.fuse)
        return found

    def _is_only_read(self, copy: FuseOp) -> bool:
        """Whether all that uses a copy is groups beside it whose kernels read it in any order."""
        uses = [use for use in copy.results[0].uses if not isinstance(use.operation, ANNOTATIONS)]
        known = {(one.fuse, one.number) for one in self.readers(copy.results[0]) if one.accesses}
        return bool(uses) and all((use.operation, use.index) in known for use in uses)

    def can_be_given(self, value: SSAValue, order: Order) -> bool:
        """Whether a value is a constant argument of its program, and nothing reads it but groups that gain by an order.

        Whoever calls the program can then give it in that order, which is written once.
        """
        program = value.owner.parent_op() if isinstance(value.owner, Block) else None
        numbers = program.attributes.get(CONSTANT) if program is not None else None
        if (
            not isinstance(numbers, ValueAttr)
            or not isinstance(value, BlockArgument)
            or value.index not in numbers.data
        ):
            return False
        readers = self.readers(value)
        uses = [use for use in value.uses if not isinstance(use.operation, ANNOTATIONS)]
        return len(readers) == len(uses) and all(reader.gains(order) for reader in readers)

    def settle(self, value: SSAValue, order: Order) -> bool:
        """Let groups read a value with its dims in an order, and no copy in any other; False where none gains by it."""
        for other, copy in self.copies(value).items():
            if other != order:
                self.dissolve(copy)
        return self.convert(value, order) or order == identity(len(order)) or order in self.copies(value)

    def convert(self, value: SSAValue, order: Order) -> bool:
        """Let groups that gain by it read a value with its dims in an order; False where none does."""
        readers = [reader for reader in self.readers(value) if reader.gains(order)]
        if not readers:
            return False
        copies = self.copies(value)
        copy = copies[order].results[0] if order in copies else self._write_copy(value, order, readers[0].fuse)
        for reader in readers:
            self._replace_body(reader.fuse, reader.number, order)
            reader.fuse.operands[reader.number] = copy
        return True

    def dissolve(self, copy: FuseOp) -> None:
        """Let the groups that read a copy read what it is of."""
        (record,) = tape_in(body_of(copy, self.functions)).records
        order = order_of(record)
        assert order is not None
        (value,), (result,) = copy.operands, copy.results
        for use in [use for use in result.uses if isinstance(use.operation, FuseOp)]:
            fuse = use.operation
            assert isinstance(fuse, FuseOp)
            self._replace_body(fuse, use.index, _invert(order))
            fuse.operands[use.index] = value
        for op in (*tiles_of(copy), copy):
            op.detach()
            op.erase()
        self._replaced.add(copy.body)

    def _write_copy(self, value: SSAValue, order: Order, before: FuseOp) -> SSAValue:
        """A value with its dims in an order, written by a group in front of another one."""
        tape = copy_body(tensor_of(value), order)
        name, sizes = self._body(tape, "map", ())
        cost = cost_of(tape)
        about = {"body": name, "kind": "map", "sizes": tuple(sizes.items()), "flops": cost.flops, "bytes": cost.bytes}
        op = make("tsched.fuse", [value], about, types=[TensorAttr.of(tape.types[1])], span=before.span)
        block = before.parent
        assert block is not None
        block.insert_op_before(op, before)
        self._positions[op] = self._positions[before] - 0.5
        return op.results[0]

    def _replace_body(self, fuse: FuseOp, number: int, order: Order) -> None:
        """Give a group the body that reads an operand with its dims in an order."""
        old, here = fuse.body, {name: Dim.of(dim) for name, dim in fuse.sizes}
        tape = read_ordered(tape_in(body_of(fuse, self.functions)), number, order)
        kernel_kinds()[fuse.kind].check(tape, tuple(fuse.axes))
        fuse.body, sizes = self._body(tape, fuse.kind, tuple(fuse.axes), overwritten_arguments(fuse))
        fuse.sizes = tuple((name, dim.substitute(here)) for name, dim in sizes.items())
        self._replaced.add(old)

    def _body(
        self, tape: Tape, kind: str, axes: tuple[int, ...], in_place: tuple[int, ...] = ()
    ) -> tuple[str, dict[str, Dim]]:
        """The name of a body among the functions of the module, and what its sizes are in the tape."""
        canonical, sizes = canonicalize(tape)
        name = name_of(canonical, kind, axes, in_place)
        if name not in self.functions:
            function = self.functions[name] = function_of(canonical, name, canonical.guards)
            self.module.body.block.add_op(function)
        return name, sizes

    def drop_unused(self) -> None:
        """Remove the bodies that no group has any more."""
        used = {fuse.body for fuse in fusions_in(self.module)}
        for name in self._replaced - used:
            self.functions.pop(name).detach()


def given_orders(module: ModuleOp) -> dict[int, Order]:
    """By their number, the orders of constant arguments that nothing reads any more but a conversion."""
    conversions, found = Conversions(module), dict[int, Order]()
    for program in programs_in(module):
        numbers = program.attributes.get(CONSTANT)
        for value in program.body.block.args:
            uses = [use for use in value.uses if not isinstance(use.operation, ANNOTATIONS)]
            copies = conversions.copies(value) if isinstance(numbers, ValueAttr) and value.index in numbers.data else {}
            if len(copies) == len(uses) == 1:
                found[value.index] = next(iter(copies))
    return found


def values_in(block: Block) -> Iterator[SSAValue]:
    """The values of a block that may be in another order: arguments, what groups compute, and both in other shapes."""
    yield from block.args
    for op in block.ops:
        if isinstance(op, FuseOp) or (isinstance(op, AliasOp) and not op.space):
            yield from op.results
