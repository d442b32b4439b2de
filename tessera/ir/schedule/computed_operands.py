"""Operands of contractions that are computed from one-byte elements as they are loaded: dequantized weights.

A weight of 8 bits with a scale for each row, or for each block of K, need not be written as 16-bit floats and read
again: tensor cores that take an A operand from registers multiply what threads compute there. Such an operand is the
A operand whether it is lhs or rhs, so a computed rhs gives the transposed result, which is stored transposed. That
pays as long as one block has all columns of the other operand: each element is then computed once, as before.

Two weights of 4 bits in a byte are a concatenation along K of two functions of the same bytes: an operand may be put
together from boxes that follow each other along K, and K is then walked box after box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from tessera.ir.base.index_maps import IndexMap, compose
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import axes_of, is_walkable, operand_at, operand_reads, spec_of
from tessera.ir.tile.facets import Assembly, Contraction, ContractionMaps, Piece, Pointwise, View
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen

MOST_COLUMNS = 256
"""Columns of the other operand up to which one block has all of them; half as many for each box more.

Each box has stages of its own, for which shared memory must be left.
"""
STEPS = (128, 64, 32)
"""Elements of K of a step: whole lines of shared memory, of one byte each."""
COMPUTED_ROWS = (64, 128)
"""Rows of a block with an operand that threads compute."""
_TIMES = {64: 1.0, 128: 1.5}
"""What a step of such a block takes on an H200 beside one of 64 rows (8192 x 8192, 16384 x 4096, 1 to 64 columns)."""
_ALIGNED = 16
"""Bytes that rows of a copied tensor are multiples of."""

Leaf = tuple[int, IndexMap]
"""A value in memory, and the index at which it is read, over the coordinates of tiles."""


@frozen
class Box:
    """Where an operand is read for elements of K from `low` on, below `high`: which box of `assembly`, if of any."""

    low: Dim
    high: Dim
    assembly: int = -1
    number: int = 0


@frozen
class ComputedOperand:
    """Which operand of a contraction is computed, the K of a step, and what it reads that is the same along a step.

    `boxes` are one after the other along K.
    """

    number: int
    step: int
    scales: tuple[Leaf, ...]
    boxes: tuple[Box, ...]


def computed_operand(
    body: Tape, record: Record, is_inside: Callable[[Record], bool] = lambda record: True
) -> ComputedOperand | None:
    """The operand of a contraction that its kernel computes from one-byte elements; None where there is none.

    `is_inside` says of what is computed whether the kernel would compute it; all else is in memory.
    """
    facet = spec_of(record).lower
    assert isinstance(facet, Contraction)
    maps = facet.maps([body.types[operand] for operand in record.operands], record.attributes)
    if maps.cut is not None or record.attributes.get("segment") is not None:
        return None  # what is beyond the end of a last segment is read as zeros, which scales are not
    walk = _Walk(body, {value: maker for maker in body.records for value in maker.results}, is_inside)
    for number in (0, 1):
        if _can_compute(body, record, maps, number):
            found = _plan_operand(walk, maps, number, record.operands[number])
            if found is not None:
                return found
    return None


@frozen
class _Walk:
    """The way from an operand to the values in memory that it is computed from."""

    body: Tape
    makers: Mapping[int, Record]
    is_inside: Callable[[Record], bool]

    def leaves(self, value: int, at: IndexMap) -> list[Leaf]:
        """What is read for a value at an index; an assembly is a leaf too."""
        return list(dict.fromkeys(self._leaves(value, at)))

    def _leaves(self, value: int, at: IndexMap) -> Iterator[Leaf]:
        maker = self.makers.get(value)
        lower = None if maker is None else spec_of(maker).lower
        is_walked = isinstance(lower, View) or (isinstance(lower, Pointwise) and maker and self.is_inside(maker))
        if maker is None or not is_walked:
            yield value, tuple(at)
            return
        for operand, where in operand_reads(self.body, maker, value, at):
            yield from self._leaves(operand, where)

    def boxes(self, leaf: Leaf) -> list[tuple[Box, Leaf]]:
        """The boxes of an assembly that follow each other along K, each with the one value that it is computed from.

        Empty where the value of a leaf is no assembly that is computed, or its boxes are others.
        """
        value, at = leaf
        maker = self.makers.get(value)
        if maker is None or not isinstance(spec_of(maker).lower, Assembly) or not self.is_inside(maker):
            return []
        found, end = list[tuple[Box, Leaf]](), Dim.constant(0)
        for number, piece in enumerate(pieces_of(self.body, maker)):
            axes = [axis for axis, size in enumerate(piece.extent) if size != self.body.types[value].shape[axis]]
            if piece.operand is None or len(axes) != 1 or at[axes[0]] != _K or piece.start[axes[0]] != end:
                return []
            box = Box(end, end + piece.extent[axes[0]], value, number)
            leaves = self.leaves(*box_read(self.body, maker, number, at))
            if len(leaves) != 1 or box.high.value is None:
                return []
            found.append((box, leaves[0]))
            end = box.high
        return found


_K = Dim.symbol("_k")


def pieces_of(body: Tape, record: Record) -> Sequence[Piece]:
    """The boxes that an assembly is put together from."""
    types = [body.types[operand] for operand in record.operands]
    return spec_of(record).lower.pieces(types, [body.types[result] for result in record.results], record.attributes)


def box_read(body: Tape, record: Record, number: int, at: IndexMap) -> Leaf:
    """The operand of a box of an assembly, and its index for an element of the result at `at`, which is in the box."""
    piece = pieces_of(body, record)[number]
    assert piece.operand is not None, "a box of numbers is none of an operand"
    return record.operands[piece.operand], compose(
        piece.map, [index - start for index, start in zip(at, piece.start, strict=True)]
    )


def _can_compute(body: Tape, record: Record, maps: ContractionMaps, number: int) -> bool:
    """Whether tensor cores take the other operand as it is, all of its rows or columns in one block."""
    dtypes = [body.types[operand].dtype for operand in record.operands]
    other = product((maps.n, maps.m)[number]).value
    is_narrow = dtypes[0] == dtypes[1] and dtypes[0].is_float and dtypes[0].bytes == 2
    is_plain = is_narrow and not maps.batch and not maps.windows and bool(maps.m and maps.n)
    return is_plain and other is not None and 0 < other <= MOST_COLUMNS


def _plan_operand(walk: _Walk, maps: ContractionMaps, number: int, value: int) -> ComputedOperand | None:
    types, leaves = walk.body.types, walk.leaves(value, operand_at(maps, number))
    size = product((maps.m, maps.n)[number]) * product(maps.k)
    bytes = [leaf for leaf in leaves if types[leaf[0]].dtype.bytes == 1 and types[leaf[0]].size == size]
    k = product(maps.k).value or 0
    if len(bytes) != 1 or not k:
        return None
    boxes = walk.boxes(bytes[0]) or [(Box(Dim.constant(0), Dim.constant(k)), bytes[0])]
    if (product((maps.n, maps.m)[number]).value or 0) > MOST_COLUMNS >> (len(boxes) - 1):
        return None
    for box, (values, at) in boxes:
        axes = {**axes_of(maps, number), "_k": box.high}
        shape, is_byte = types[values].shape, types[values].dtype.bytes == 1
        width = (shape[-1].value or 0) if shape else 0
        if not is_byte or not width or width % _ALIGNED or not is_walkable(at, shape, axes):
            return None
    scales = tuple(leaf for leaf in leaves if leaf is not bytes[0])
    ends = [box.high.value or 0 for box, _ in boxes]
    period = gcd(*ends, *(_period(index) for _, where in scales for index in where))
    able = [step for step in STEPS if period % step == 0]
    # Steps that are in flight by twos are an even number.
    step = next((step for step in able if all(end // step % 2 == 0 for end in ends)), able[0] if able else 0)
    return ComputedOperand(number, step, scales, tuple(box for box, _ in boxes)) if step else None


def _period(index: Dim) -> int:
    """Elements of K along which an index stays the same, from a multiple of them on; 0 is for ever, 1 not at all."""
    found = 0
    for monomial, _ in index.terms:
        for atom in monomial:
            if "_k" not in (atom.name, *(name for part in atom.args for name in part.symbols)):
                continue
            if atom.kind != "floordiv" or atom.args[0] != Dim.symbol("_k") or not atom.args[1].value:
                return 1
            found = gcd(found, atom.args[1].value)
    return found


def computed_block(candidates: Sequence[Any], context: Mapping[str, Any]) -> Any:
    """The block whose waves take the least time: two warpgroups hide what one waits for, but not all of it."""
    machine, rows = context["machine"], context["rows"].value or 0

    def cost(block: Sequence[int]) -> float:
        return -(-rows // (block[0] * machine.blocks)) * _TIMES[block[0]]

    return min(candidates, key=cost)
