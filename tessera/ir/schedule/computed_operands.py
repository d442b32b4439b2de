"""Operands of contractions that are computed from one-byte elements as they are loaded: dequantized weights.

A weight of 8 bits with a scale for each row, or for each block of K, need not be written as 16-bit floats and read
again: tensor cores that take an A operand from registers multiply what threads compute there. Such an operand is the
A operand whether it is lhs or rhs, so a computed rhs gives the transposed result, which is stored transposed. That
pays as long as one block has all columns of the other operand: each element is then computed once, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import axes_of, is_walkable, operand_at, operand_reads, spec_of
from tessera.ir.tile.facets import Contraction, ContractionMaps, Pointwise, View
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen

MOST_COLUMNS = 256
"""Columns of the other operand up to which one block has all of them."""
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
class ComputedOperand:
    """Which operand of a contraction is computed, the K of a step, and what it reads that is the same along a step."""

    number: int
    step: int
    scales: tuple[Leaf, ...]


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
    makers = {value: maker for maker in body.records for value in maker.results}
    for number in (0, 1):
        value = record.operands[number]
        leaves = list(dict.fromkeys(_leaves(body, makers, value, operand_at(maps, number), is_inside)))
        if _can_compute(body, record, maps, number):
            found = _plan_operand(body, maps, number, leaves)
            if found is not None:
                return found
    return None


def _leaves(
    body: Tape, makers: dict[int, Record], value: int, at: IndexMap, is_inside: Callable[[Record], bool]
) -> Iterator[Leaf]:
    maker = makers.get(value)
    lower = None if maker is None else spec_of(maker).lower
    if maker is None or not isinstance(lower, View | Pointwise) or not (isinstance(lower, View) or is_inside(maker)):
        yield value, tuple(at)
        return
    for operand, where in operand_reads(body, maker, value, at):
        yield from _leaves(body, makers, operand, where, is_inside)


def _can_compute(body: Tape, record: Record, maps: ContractionMaps, number: int) -> bool:
    """Whether tensor cores take the other operand as it is, all of its rows or columns in one block."""
    dtypes = [body.types[operand].dtype for operand in record.operands]
    other = product((maps.n, maps.m)[number]).value
    is_narrow = dtypes[0] == dtypes[1] and dtypes[0].is_float and dtypes[0].bytes == 2
    is_plain = is_narrow and not maps.batch and not maps.windows and bool(maps.m and maps.n)
    return is_plain and other is not None and 0 < other <= MOST_COLUMNS


def _plan_operand(body: Tape, maps: ContractionMaps, number: int, leaves: Sequence[Leaf]) -> ComputedOperand | None:
    axes, size = axes_of(maps, number), product((maps.m, maps.n)[number]) * product(maps.k)
    bytes = [leaf for leaf in leaves if body.types[leaf[0]].dtype.bytes == 1 and body.types[leaf[0]].size == size]
    if len(bytes) != 1:
        return None
    ((values, at),) = bytes
    shape = body.types[values].shape
    width, k = (shape[-1].value or 0) if shape else 0, product(maps.k).value or 0
    if not width or width % _ALIGNED or not k or not is_walkable(at, shape, axes):
        return None
    scales = tuple(leaf for leaf in leaves if leaf is not bytes[0])
    period = gcd(k, *(_period(index) for _, where in scales for index in where))
    able = [step for step in STEPS if period % step == 0]
    # Steps that are in flight by twos are an even number.
    step = next((step for step in able if k // step % 2 == 0), able[0] if able else 0)
    return ComputedOperand(number, step, scales) if step else None


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
