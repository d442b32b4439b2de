"""Stencils in programs: which elements of its inputs a body reads for a result element, dim by dim, from facets.

An op says how it reads by its lowering: views and contractions by index maps, pads and concats by boxes, pointwise ops
element by element. Accesses are composed from a result back to the inputs. What is read otherwise (reduced, gathered,
by a library kernel) is read in whole. Where a value in between is padded, the composed access reads as if there was
no padding: a halo may then be too wide at the ends of the tensor, and is never too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.index_maps import IndexMap, broadcast_at, coordinates
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import spec_of
from tessera.ir.schedule.planning.halo import IDENTITY, Access, Halo, access_of, infer_halo
from tessera.ir.tile.facets import Assembly, Contraction, Pointwise, View
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType


@frozen
class DimRead:
    """One dim of an input: read by `access` along dim `axis` of a result."""

    axis: int
    access: Access


Reads: TypeAlias = dict[int, tuple["DimRead | None", ...]]
"""By the number of an input: how each of its dims is read, None for one that is read in whole."""
Map: TypeAlias = tuple[int, IndexMap | None, Mapping[str, int]]
"""A value, where it is read (None: anywhere) over `d0`, `d1`, ... and windows, and the static sizes of those."""


def reads_of(body: Tape) -> list[Reads]:
    """How each output of a body reads its inputs."""
    found: dict[int, Reads] = {}
    for number, value in enumerate(body.inputs):
        rank = body.types[value].rank
        found[value] = {number: tuple(DimRead(axis, IDENTITY) for axis in range(rank))}
    for record in body.records:
        for at, result in enumerate(record.results):
            total: Reads = {}
            for operand, map, windows in _maps(record, at, body):
                through = _through(map, windows, body.types[operand].rank)
                for number, dims in found[operand].items():
                    read = tuple(None if dim is None else _compose(dim, through) for dim in dims)
                    total[number] = _union(total[number], read) if number in total else read
            found[result] = total
    return [found[value] for value in body.outputs]


def _compose(inner: DimRead, through: Sequence[DimRead | None]) -> DimRead | None:
    outer = through[inner.axis]
    return None if outer is None else DimRead(outer.axis, outer.access.of(inner.access))


def _union(first: Sequence[DimRead | None], second: Sequence[DimRead | None]) -> tuple[DimRead | None, ...]:
    found: list[DimRead | None] = []
    for a, b in zip(first, second, strict=True):
        is_common = a is not None and b is not None and (a.axis, a.access.scale) == (b.axis, b.access.scale)
        found.append(DimRead(a.axis, a.access.beside(b.access)) if is_common and a and b else None)
    return tuple(found)


def _through(map: IndexMap | None, windows: Mapping[str, int], rank: int) -> list[DimRead | None]:
    """Each dim of an operand, as it is read for a result element."""
    return [None] * rank if map is None else [_dim_read(expression, windows) for expression in map]


def _dim_read(expression: Dim, windows: Mapping[str, int]) -> DimRead | None:
    own = sorted(name for name in expression.symbols if name[0] == "d" and name[1:].isdigit())
    if len(own) != 1:
        return None
    used = {name: size for name, size in windows.items() if name in expression.symbols}
    try:
        return DimRead(int(own[0][1:]), access_of(expression, own[0], used))
    except ScheduleError:
        return None  # not linear, reversed, or with a window of a symbolic size: it is read in whole


def _maps(record: Record, at: int, body: Tape) -> Iterator[Map]:
    """Where each operand of a record is read for its result number `at`."""
    facet = spec_of(record).lower
    types = [body.types[value] for value in record.operands]
    outs = [body.types[value] for value in record.results]
    out = outs[at]
    if isinstance(facet, View):
        yield record.operands[0], facet.maps(types[0], outs, record.attributes)[at], {}
    elif isinstance(facet, Pointwise):
        for value, type in zip(record.operands, types, strict=True):
            yield value, broadcast_at(type, out, coordinates(out.rank)), {}
    elif isinstance(facet, Contraction):
        yield from _contraction_maps(record, facet, types)
    elif isinstance(facet, Assembly):
        for piece in facet.pieces(types, outs, record.attributes):
            if piece.operand is not None:
                moved = {f"d{axis}": Dim.symbol(f"d{axis}") - start for axis, start in enumerate(piece.start)}
                yield record.operands[piece.operand], tuple(dim.substitute(moved) for dim in piece.map), {}
    else:
        for value in record.operands:
            yield value, None, {}


def _contraction_maps(record: Record, facet: Contraction, types: Sequence[TensorType]) -> Iterator[Map]:
    maps = facet.maps(types, record.attributes)
    lists = (("b", maps.batch), ("m", maps.m), ("n", maps.n))
    names = [f"{letter}{at}" for letter, extents in lists for at in range(len(extents))]
    renamed = {name: Dim.symbol(f"d{axis}") for axis, name in enumerate(names)}
    windows = {f"k{at}": extent.value for at, extent in enumerate(maps.k) if extent.value is not None}
    for value, map in zip(record.operands, (maps.lhs, maps.rhs), strict=False):
        yield value, tuple(expression.substitute(renamed) for expression in map), windows
    for value in record.operands[2:]:
        yield value, None, {}


def halo_of(read: DimRead, size: Dim, results: Dim, ranks: int) -> Halo:
    """The halo of a dim; of a symbolic one, that of blocks that are no narrower than it.

    Raises ScheduleError (T0401) where ranks do not divide it, or a symbolic dim is read at a step.
    """
    if size.value is not None and results.value is not None:
        return infer_halo(read.access, size.value, results.value, ranks)
    if read.access.scale != 1 or size != results:
        raise ScheduleError(
            f"a dim of {size} elements is read for {results} at {read.access}: its halo depends on its size",
            span=None,
            fix="make the dim static, or shard another one",
        )
    low, high = max(0, -read.access.offsets[0]), max(0, read.access.offsets[-1])
    ends = [(0, high), *[(low, high)] * (ranks - 2), (low, 0)] if ranks > 1 else [(0, 0)]
    return Halo(max(a for a, _ in ends), max(b for _, b in ends), tuple(ends), 1 if low or high else 0)
