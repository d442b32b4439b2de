"""Reductions along columns compute what they reduce themselves, where rows need the same values too.

The backward pass of a norm is the pattern: gradients of its parameters add up `g * n` along columns, the gradient of
its input needs means of `g * n` along rows. One kernel walks rows, another one columns; a value that both read would be
in the kernel of one of them, and in memory for the other: two tensors of f32 written and read, where the tensors that
they are computed from are two of bf16. So the ops that lead to such reductions are repeated for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

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


def with_own_producers(tape: Tape) -> Tape:
    """The tape with cheap elementwise ops repeated for reductions along columns, where others read their results."""
    finder = _Finder(tape)
    copies: dict[int, list[_Part]] = {}
    for part in finder.parts():
        for number in part.chain if finder.pays(part) else ():
            copies.setdefault(number, []).append(part)
    if not copies:
        return tape
    made = replace(tape, records=[], types=list(tape.types))
    values: dict[_Part, dict[int, int]] = {part: {} for parts in copies.values() for part in parts}
    for number, record in enumerate(tape.records):
        owner = next((part for part in values if number in part.reductions), None)
        made.records.append(record if owner is None else _reading(record, values[owner]))
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
        self.outputs = frozenset(tape.outputs)
        self.is_in_memory, self.is_epilogue = cache(self._is_in_memory), cache(self._is_epilogue)

    def parts(self) -> list[_Part]:
        """The reductions along columns with their ops; those that share some are one part."""
        found: list[_Part] = []
        for number, record in enumerate(self.records):
            axes = self._column_axes(record)
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

    def _column_axes(self, record: Record) -> tuple[int, ...]:
        lower = spec_of(record).lower
        if not isinstance(lower, Reduction):
            return ()
        source = self.tape.types[record.operands[0]]
        axes = tuple(lower.axes(source, record.attributes))
        return () if source.rank - 1 in axes else axes

    def _chain(self, value: int) -> frozenset[int]:
        """The elementwise ops behind a value, up to values that are in memory whoever reads them."""
        found, pending, shape = set[int](), [value], self.tape.types[value].shape
        while pending:
            one = pending.pop()
            number = self.makers.get(one, -1)
            if number < 0 or number in found or self.tape.types[one].shape != shape or self.is_in_memory(one):
                continue
            if isinstance(spec_of(self.records[number]).lower, Pointwise) and not self.is_epilogue(number):
                found.add(number)
                pending += self.records[number].operands
        return frozenset(found)

    def _is_epilogue(self, number: int) -> bool:
        """Whether an op is computed on what a contraction gives, by itself or behind others that nothing else reads."""
        for operand in self.records[number].operands:
            maker = self.makers.get(operand, -1)
            lower = spec_of(self.records[maker]).lower if maker >= 0 else None
            if isinstance(lower, Contraction | Library):
                return True
            if isinstance(lower, Pointwise) and len(self.readers[operand]) == 1 and self.is_epilogue(maker):
                return True
        return False

    def _is_in_memory(self, value: int) -> bool:
        """Whether a value is a result, or is read by anything but elementwise ops and reductions, through views too."""
        for reader in self.readers.get(value, ()):
            record = self.records[reader]
            lower = spec_of(record).lower
            if isinstance(lower, View):
                if any(self.is_in_memory(result) for result in record.results):
                    return True
            elif not isinstance(lower, Pointwise | Reduction):
                return True
        return value in self.outputs

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
