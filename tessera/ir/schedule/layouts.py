"""Orders of dims in memory: how groups read their operands, what the wrong order costs, and the model that chooses.

A kernel goes through its operands with one dim innermost, in vectors. An operand that is contiguous in another dim is
gathered element by element, or transposed in registers, each time it is read; written once in the order in which it is
read, it costs a walk over its elements. What each kind of kernel loses was measured on a CPU (AMD EPYC, AVX2, one core,
f32, sizes from 32 to 1024 a dim), as the difference to the same kernel on contiguous operands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.tape import Tape
from tessera.ir.tile.facets import ContractionMaps
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.machine import Machine

KNOB = "layout.order"
Order: TypeAlias = tuple[int, ...]

MAP, ROW, EPILOGUE, BATCH, WINDOW = 0.25, 0.8, 1.4, 0.6, 1.0
"""Nanoseconds that an element costs more where it is read across the order of memory: by a map, a row group (up to 3.5,
by its passes), the epilogue of a contraction; and of an operand of a contraction, where its batch or the channels of
its windows are innermost (up to 3.8)."""
CONVERSION, LAUNCH = 0.3, 1000
"""Nanoseconds of an element that is written in another order, and of one more kernel."""
FEW = 8
"""Rows of a contraction up to which an operand is not packed, and its batch may be innermost."""
VECTOR, ROWS = 0.085, 4
"""Nanoseconds of an element of the right operand of a contraction of so few rows, where that is contiguous in K: too
few for a copy, and half of the time where a constant is copied once and for all."""
_TYPICAL = 512
"""What a symbolic dim is taken to be."""
_COORDINATE = re.compile(r"([dbmnk])(\d+)$")


@frozen
class Access:
    """How a kernel reads an operand: the order of dims that it would like, and those that must not be innermost.

    `cost` is what the operand takes longer, in nanoseconds, where one of the `refused` dims is the innermost.
    """

    order: Order
    refused: frozenset[int]
    cost: float

    def is_slow(self, order: Order) -> bool:
        """Whether an order has a refused dim innermost; dims of one element do not count."""
        known = [axis for axis in order if axis in self.refused or axis == self.order[-1]]
        return bool(known) and known[-1] in self.refused


def identity(rank: int) -> Order:
    """The order of dims that a tensor has by itself."""
    return tuple(range(rank))


def size_of(dims: Iterable[Dim]) -> int:
    """Elements of some dims, symbolic ones taken as typical."""
    whole = product(dims)
    return whole.evaluate(dict.fromkeys(whole.symbols, _TYPICAL))


def along_rows(
    body: Tape, found: Mapping[int, Iterable[IndexMap]], shape: Sequence[Dim], rate: float
) -> dict[int, list[Access]]:
    """How inputs are read at index maps over the coordinates of a space whose last dim is innermost, by their number.

    One that has no dim along the last of the space has one element for all of a row, and any order.
    """
    long = [axis for axis, dim in enumerate(shape) if dim.value != 1]
    accesses: dict[int, list[Access]] = {}
    for number, value in enumerate(body.inputs):
        for at in found.get(value, ()):
            ranks = [max((int(one) for _, one in _coordinates(index)), default=-1) for index in at]
            if long and max(ranks, default=-1) == long[-1]:
                seen = {f"d{axis}" for index in at for _, axis in _coordinates(index)}
                elements = size_of(dim for axis, dim in enumerate(shape) if f"d{axis}" in seen)
                access = _access(body.types[value].shape, ranks, rate * elements)
                accesses.setdefault(number, []).append(access)
    return accesses


def operand_accesses(
    body: Tape, found: Mapping[int, Iterable[IndexMap]], maps: ContractionMaps
) -> dict[int, list[Access]]:
    """How inputs are read that an operand of a contraction is made of, by their number.

    Windows go along dims with coordinates of both the result and K, which are the last ones then; else a batch is
    outermost, as neighbours in memory would belong to different products.
    """
    accesses: dict[int, list[Access]] = {}
    has_few_rows = size_of(maps.m) <= ROWS and size_of(maps.n) > FEW
    single = {("k", str(number)) for number, dim in enumerate(maps.k) if dim.value == 1}
    for number, value in enumerate(body.inputs):
        for at in found.get(value, ()):
            letters = [{letter for letter, _ in set(_coordinates(index)) - single} for index in at]
            ranks = [2 if "k" in one and one & {"m", "n"} else 1 if one - {"b"} else 0 for one in letters]
            is_windowed, is_packed = 2 in ranks, size_of(maps.m) > FEW and size_of(maps.n) > FEW
            if is_windowed or (is_packed and 0 in ranks and 1 in ranks):
                rate = WINDOW if is_windowed else BATCH
                access = _access(body.types[value].shape, ranks, rate * size_of(body.types[value].shape))
                accesses.setdefault(number, []).append(access)
            elif has_few_rows and {"k"} in letters and {"n"} in letters:
                ranks = ["bmkn".index(max(one, default="b", key="bmkn".index)) for one in letters]
                access = _access(body.types[value].shape, ranks, VECTOR * size_of(body.types[value].shape))
                accesses.setdefault(number, []).append(access)
    return accesses


def _access(shape: Sequence[Dim], ranks: Sequence[int], cost: float) -> Access:
    """Dims in the order of their ranks; those below the highest are refused."""
    ranks = [-1 if dim.value == 1 else rank for dim, rank in zip(shape, ranks, strict=True)]
    order = tuple(sorted(range(len(shape)), key=lambda axis: ranks[axis]))
    long = [axis for axis, dim in enumerate(shape) if dim.value != 1]
    return Access(order, frozenset(axis for axis in long if ranks[axis] < max(ranks)), cost)


def _coordinates(index: Dim) -> list[tuple[str, str]]:
    matches = (_COORDINATE.match(name) for name in index.symbols)
    return [(match[1], match[2]) for match in matches if match is not None]


def choose_order(candidates: Sequence[Order], context: Mapping[str, Any]) -> Order:
    """The order with the least time: of a conversion, and of groups that neither the first order nor this one suits.

    The first is how the value is there already, and those that are `free` are written once for all calls. Of GPUs
    nothing was measured: their kernels read what they read without a choice.
    """
    machine: Machine = context["machine"]
    accesses: Sequence[Access] = context["accesses"]
    if machine.is_gpu:
        return candidates[0]

    def cost(order: Order) -> float:
        is_there = order == candidates[0] or order in context["free"]
        made = 0 if is_there else LAUNCH + CONVERSION * context["elements"]
        return made + sum(one.cost for one in accesses if one.is_slow(candidates[0]) and one.is_slow(order))

    return min(candidates, key=cost)


MODELS = {KNOB: ("static model", choose_order)}
