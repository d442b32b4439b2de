"""Reductions along columns compute what they reduce themselves, where rows need the same values too.

The backward pass of a norm is the pattern: gradients of its parameters add up `g * n` along columns, the gradient of
its input needs means of `g * n` along rows. One kernel walks rows, another one columns; a value that both read would be
in the kernel of one of them, and in memory for the other: two tensors of f32 written and read, where the tensors that
they are computed from are two of bf16. So the ops that lead to such reductions are repeated for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.tile.facets import Contraction, Library, Pointwise, Reduction, View
from tessera.types.frozen import frozen

_MOST_FLOPS = 16
"""Work for one element that is repeated at most."""


@frozen
class _Part:
    """Reductions along the same axes whose elementwise ops are in part the same, and those ops."""

    axes: tuple[int, ...]
    reductions: frozenset[int]
    chain: frozenset[int]


def column_axes(tape: Tape, record: Record) -> tuple[int, ...]:
    """The axes of a reduction that keeps the last one; none of anything else."""
    lower = spec_of(record).lower
    if not isinstance(lower, Reduction):
        return ()
    source = tape.types[record.operands[0]]
    axes = tuple(lower.axes(source, record.attributes))
    return () if source.rank - 1 in axes else axes


def with_own_producers(tape: Tape) -> Tape:
    """The tape with cheap elementwise ops repeated for reductions along columns, where others read their results."""
    finder = _Finder(tape)
    parts = [part for part in finder.parts() if finder.pays(part)]
    if not parts:
        return tape
    made = replace(tape, records=[], types=list(tape.types))
    values: dict[_Part, dict[int, int]] = {part: {} for part in parts}
    owners = {number: part for part in parts for number in part.reductions}
    copies: dict[int, list[_Part]] = {}
    for part in parts:
        for number in part.chain:
            copies.setdefault(number, []).append(part)
    for number, record in enumerate(tape.records):
        made.records.append(_reading(record, values[owners[number]]) if number in owners else record)
        for part in copies.get(number, ()):
            results = tuple(made.new_value(tape.types[value]) for value in record.results)
            made.records.append(replace(_reading(record, values[part]), results=results))
            values[part].update(zip(record.results, results, strict=True))
    return made


def _reading(record: Record, values: Mapping[int, int]) -> Record:
    """A record that reads other values in place of some."""
    return replace(record, operands=tuple(values.get(operand, operand) for operand in record.operands))


class _Finder:
    """Walks from reductions along columns back to the tensors in memory that they are computed from."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.records = tape, tape.records
        self.makers = {value: number for number, record in enumerate(tape.records) for value in record.results}
        self.readers: dict[int, list[int]] = {}
        for number, record in enumerate(tape.records):
            for operand in record.operands:
                self.readers.setdefault(operand, []).append(number)
        self.epilogues = self._find_epilogues()
        self.in_memory = self._find_in_memory()

    def parts(self) -> list[_Part]:
        """The reductions along columns with their ops; those that share some are one part."""
        found: list[_Part] = []
        for number, record in enumerate(self.records):
            axes = column_axes(self.tape, record)
            chain = self._chain(record.operands[0]) if axes else frozenset[int]()
            if not chain:
                continue
            same = [part for part in found if part.axes == axes and part.chain & chain]
            found = [part for part in found if part not in same]
            found.append(
                _Part(
                    axes,
                    frozenset({number}).union(*(part.reductions for part in same)),
                    chain.union(*(part.chain for part in same)),
                )
            )
        return found

    def _chain(self, value: int) -> frozenset[int]:
        """The elementwise ops behind a value, up to values that are in memory whoever reads them."""
        found, pending, shape = set[int](), [value], self.tape.types[value].shape
        while pending:
            one = pending.pop()
            number = self.makers.get(one, -1)
            if number < 0 or number in found or self.tape.types[one].shape != shape or one in self.in_memory:
                continue
            if isinstance(spec_of(self.records[number]).lower, Pointwise) and number not in self.epilogues:
                found.add(number)
                pending += self.records[number].operands
        return frozenset(found)

    def _find_epilogues(self) -> set[int]:
        """Ops that are computed on what a contraction gives, by itself or behind others that nothing else reads."""
        found: set[int] = set()
        for number, record in enumerate(self.records):
            for operand in record.operands:
                maker = self.makers.get(operand, -1)
                lower = spec_of(self.records[maker]).lower if maker >= 0 else None
                is_next = isinstance(lower, Pointwise) and len(self.readers[operand]) == 1 and maker in found
                if is_next or isinstance(lower, Contraction | Library):
                    found.add(number)
        return found

    def _find_in_memory(self) -> set[int]:
        """Values that are results, or read by anything but elementwise ops and reductions, through views too."""
        found = set(self.tape.outputs)
        for record in reversed(self.records):
            lower = spec_of(record).lower
            is_seen = isinstance(lower, View) and not found.isdisjoint(record.results)
            if is_seen or not isinstance(lower, View | Pointwise | Reduction):
                found.update(record.operands)
        return found

    def pays(self, part: _Part) -> bool:
        """Whether reading the sources once more moves fewer bytes than writing and reading what others need."""
        flops = 0
        for number in part.chain:
            lower = spec_of(self.records[number]).lower
            assert isinstance(lower, Pointwise)
            if lower.expensive or lower.is_promise:
                return False
            flops += lower.flops
        own = part.chain | part.reductions
        results = [value for number in part.chain for value in self.records[number].results]
        shared = [value for value in results if not own.issuperset(self.readers.get(value, ()))]
        sources = {operand for number in part.chain for operand in self.records[number].operands}.difference(results)
        return flops <= _MOST_FLOPS and self._bits(part, sources) <= 2 * self._bits(part, shared)

    def _bits(self, part: _Part, values: Iterable[int]) -> int:
        """Bits of each element of the tensors that are as large as what is reduced."""
        (number, *_) = part.chain
        shape = self.tape.types[self.records[number].results[0]].shape
        types = [self.tape.types[value] for value in values]
        return sum(type.dtype.bits for type in types if type.shape == shape)
