"""Programs that combine the rows of arrays by a combiner: all prefixes of them, and the whole.

A combiner is a tape from two elements and captured values to one element, and is associative. Elements are the rows of
as many arrays. Rows are split into blocks of 16, which are gone through at the same time, one row of each after the
other; the results of blocks are then rows of the next level. So the number of steps grows with the logarithm of the
number of rows, while each row is combined twice and the program has a few loops for each level. Which rows are combined
depends on their number alone, and left is always before right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.ir.base.tape import Tape
from tessera.ir.graph.building import restate, slice_axis
from tessera.ir.graph.transforms.batch import batch_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types.dim import Dim, maximum
from tessera.types.frozen import frozen
from tessera.types.shape import ONE, ZERO, TensorType

BLOCK = 16
LEVELS = 1
"""How often rows of a symbolic number are split into blocks before the results are gone through in order.

Sizes of the next levels are expressions in which programs would drown.
"""


@frozen
class Combiner:
    """A tape of two elements, each of `count` values, and captured values."""

    tape: Tape
    count: int

    def batch(self, size: Dim) -> Combiner:
        """The combiner of two rows of elements."""
        captured = len(self.tape.inputs) - 2 * self.count
        made, flags = batch_tape(self.tape, [True] * 2 * self.count + [False] * captured, size)
        builder = TapeBuilder(made)
        for at, (output, is_batched) in enumerate(zip(made.outputs, flags, strict=True)):
            if not is_batched:
                made.outputs[at] = builder.emit("broadcast_to", output, shape=(size, *builder.type_of(output).shape))
        return Combiner(made, self.count)


class _Rows:
    """Writes how rows are combined."""

    def __init__(self, builder: TapeBuilder, combiner: Combiner, captured: Sequence[int]) -> None:
        self.builder, self.combiner, self.captured = builder, combiner, captured

    def size(self, rows: Sequence[int]) -> Dim:
        return self.builder.type_of(rows[0]).shape[0]

    def slice(self, rows: Sequence[int], start: Dim, count: Dim) -> list[int]:
        """So many rows from one on."""
        b = self.builder
        if start.value == 0 and self.size(rows) == count:
            return list(rows)
        cut = [slice_axis(b, one, 0, start, start + count) for one in rows]
        return [restate(b, one, (count, *b.type_of(one).shape[1:])) for one in cut]

    def join(self, *parts: Sequence[int]) -> list[int]:
        """Rows one after the other."""
        some = [part for part in parts if self.size(part).value != 0] or [parts[0]]
        return [
            one[0] if len(one) == 1 else self.builder.emit("concat", *one, axis=0) for one in zip(*some, strict=True)
        ]

    def row(self, rows: Sequence[int], at: Dim) -> list[int]:
        """One row; of no rows at all it is zeros."""
        b, found = self.builder, list[int]()
        for one in rows:
            type = b.type_of(one)
            if type.shape[0].value is None:
                low = (ZERO,) * type.rank
                one = b.emit("pad", one, low=low, high=(Dim.of(1), *low[1:]))
            found.append(b.emit("reshape", slice_axis(b, one, 0, at, at + 1), shape=type.shape[1:]))
        return found

    def blocks(self, rows: Sequence[int], count: Dim) -> list[int]:
        """Rows as [number in its block, block, ...]."""
        b, made = self.builder, list[int]()
        for one in rows:
            inner = b.type_of(one).shape[1:]
            apart = b.emit("reshape", one, shape=(count, Dim.of(BLOCK), *inner))
            made.append(b.emit("transpose", apart, axes=(1, 0, *range(2, 2 + len(inner)))))
        return made

    def emit_scan(self, combiner: Combiner, start: Sequence[int], rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """The combination of a first element and all rows in order, and of it and each row with all before it."""
        count, tape = combiner.count, combiner.tape
        loop: dict[str, Any] = {"carried": count, "scanned": count, "length": (self.size(rows),), "reverse": False}
        body = replace(tape, outputs=[*tape.outputs, *tape.outputs])
        made = self.builder.emit("scan", *start, *rows, *self.captured, body=body, **loop)
        return list(made[:count]), list(made[count:])

    def scan_in_order(self, combiner: Combiner, rows: Sequence[int]) -> list[int]:
        """All prefixes, one after the other."""
        size = self.size(rows)
        if size.value is not None and size.value < 2:
            return list(rows)
        later = maximum(size - 1, ZERO)
        made = self.emit_scan(combiner, self.row(rows, ZERO), self.slice(rows, size - later, later))[1]
        return self.join(self.slice(rows, ZERO, size - later), made)

    def scan(self, rows: Sequence[int], level: int = 0) -> list[int]:
        """All prefixes: the combination of each row with all before it."""
        b, size = self.builder, self.size(rows)
        # There is always a row in front of the first block, so that each block has one that comes before it.
        count = maximum(size - 1, ZERO) // BLOCK
        if count.value == 0 or (size.value is None and level == LEVELS):
            return self.scan_in_order(self.combiner, rows)
        front = self.scan_in_order(self.combiner, self.slice(rows, ZERO, size - count * BLOCK))
        blocks = self.blocks(self.slice(rows, size - count * BLOCK, count * BLOCK), count)
        inside = self.scan_in_order(self.combiner.batch(count), blocks)
        before = self.row(front, maximum(size - count * BLOCK - 1, ZERO))
        totals = self.row(inside, Dim.of(BLOCK - 1))
        first = [b.emit("reshape", one, shape=(ONE, *b.type_of(one).shape)) for one in before]
        ahead = self.scan(self.slice(self.join(first, totals), ZERO, count), level + 1)
        wide = [b.emit("broadcast_to", one, shape=(Dim.of(BLOCK), *b.type_of(one).shape)) for one in ahead]
        both = self.combiner.batch(count).batch(Dim.of(BLOCK))
        whole = b.inline(both.tape, [*wide, *inside, *self.captured])
        return self.join(front, [self._flatten(one) for one in whole])

    def _flatten(self, block: int) -> int:
        b, (_, count, *inner) = self.builder, self.builder.type_of(block).shape
        rows = b.emit("transpose", block, axes=(1, 0, *range(2, 2 + len(inner))))
        return b.emit("reshape", rows, shape=(count * BLOCK, *inner))

    def reduce(self, rows: Sequence[int], start: Sequence[int], level: int = 0) -> list[int]:
        """The combination of a first element and all rows."""
        size = self.size(rows)
        if size.value == 0:
            return list(start)
        count = size // BLOCK
        if count.value == 0 or (size.value is None and level == LEVELS):
            return self.emit_scan(self.combiner, start, rows)[0]
        left = size - count * BLOCK
        begun = self.reduce(self.slice(rows, ZERO, left), start, LEVELS)
        blocks = self.blocks(self.slice(rows, left, count * BLOCK), count)
        totals = self.emit_scan(
            self.combiner.batch(count), self.row(blocks, ZERO), self.slice(blocks, ONE, Dim.of(BLOCK - 1))
        )
        return self.reduce(totals[0], begun, level + 1)


def _open(combiner: Combiner, types: Sequence[TensorType]) -> tuple[TapeBuilder, list[int], list[int]]:
    """A program of values of these types, and of what the combiner captures."""
    builder = TapeBuilder()
    captured = [combiner.tape.types[value] for value in combiner.tape.inputs[2 * combiner.count :]]
    names = [f"input_{at}" for at in range(len(types) + len(captured))]
    values = add_inputs(builder.tape, [*types, *captured], names)
    return builder, values[: len(types)], values[len(types) :]


def scan_tape(combiner: Combiner, types: Sequence[TensorType]) -> Tape:
    """The program from arrays of these types, and captured values, to all prefixes along their first axis."""
    builder, rows, captured = _open(combiner, types)
    builder.tape.outputs = _Rows(builder, combiner, captured).scan(rows)
    return builder.tape


def reduce_tape(combiner: Combiner, types: Sequence[TensorType]) -> Tape:
    """The program from arrays, first elements and captured values to the combination of all along the first axis."""
    elements = [type.with_shape(type.shape[1:]) for type in types]
    builder, values, captured = _open(combiner, [*types, *elements])
    count = combiner.count
    builder.tape.outputs = _Rows(builder, combiner, captured).reduce(values[:count], values[count:])
    return builder.tape
