"""A tape as grouping reads it: which values are free, at which indices each op reads, and which must be in memory.

The idea: views, constants and widening casts cost nothing where they are read, so no group computes them. `trace`
follows a read through them to the values behind, composing index maps on the way; the result is a list of `Read`s, each
a value and the index at which it is read, over the coordinates of the reader. All that fusion asks is asked of those
maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tessera.ir.base.index_maps import IndexMap, broadcast_at, compose, coordinates, linear
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.computed_operands import computed_operand
from tessera.ir.schedule.emit.evaluate import axes_of, is_walkable, operand_at, operand_reads, producers, spec_of
from tessera.ir.schedule.oriented_operands import Orientation
from tessera.ir.tile.facets import Contraction, ContractionMaps, Gather, Library, Pointwise, Reduction, View
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.policy import Policy
from tessera.types.promotion import holds
from tessera.types.shape import ZERO, TensorType

CHEAP = 4
"""Flops for one element up to which a value may be rematerialized where it is read."""


@frozen
class Read:
    """A value of another op or an input, and the index at which it is read, over the coordinates of the reader.

    One that is read `in_memory` is read as a whole tensor, and cannot be computed by its reader.
    """

    value: int
    at: IndexMap
    in_memory: bool = False


class Program:
    """The records of one tape, classified by their facets.

    A *free* value costs nothing where it is read: a view, a number made from sizes, a conversion to a wider dtype. Free
    records belong to no group; they are repeated in the bodies of all groups that read through them. All others are
    *solid*: each is computed in one group. Where contractions copy `whole_tiles`, they read narrow operands through
    views only if those leave them along single dims of memory; others are materialized first. With `rounded`, the
    policy of contractions that have none, the copies of a machine round their operands; where it `computes`, it
    multiplies what threads compute from one-byte elements. An `orientation` says which operands it takes in some orders
    of their dims alone.
    """

    def __init__(
        self,
        tape: Tape,
        whole_tiles: bool = False,
        rounded: Policy | None = None,
        computes: bool = False,
        orientation: Orientation | None = None,
    ) -> None:
        tape, self._after = remove_barriers(tape)
        self.tape, self.whole_tiles, self.rounded, self.computes = tape, whole_tiles, rounded, computes
        self.orientation = orientation
        self.makers: dict[int, int] = {}
        self.free: set[int] = set()
        self._flops: dict[int, int] = {}
        self._reads: dict[int, list[Read]] = {}
        self._waits: dict[int, list[Read]] = {}
        self._aliases: dict[int, int] = {}
        self._maps: dict[int, Sequence[IndexMap]] = {}
        self._in_memory: dict[tuple[tuple[int, ...], tuple[int, ...]], Sequence[int]] = {}
        for number, record in enumerate(tape.records):
            if self._is_free(record):
                self.free.update(record.results)
            for result in record.results:
                self.makers[result] = number

    def maker(self, value: int) -> Record | None:
        """The record that makes a value; None for an input."""
        number = self.makers.get(value)
        return None if number is None else self.tape.records[number]

    def type(self, value: int) -> TensorType:
        return self.tape.types[value]

    def is_solid(self, value: int) -> bool:
        """Whether a group computes a value (which is neither an input, nor data, nor free)."""
        record = self.maker(value)
        return record is not None and value not in self.free and data_of(record) is None

    @cached_property
    def solid(self) -> list[int]:
        """The records that groups compute, in order."""
        records = enumerate(self.tape.records)
        return [number for number, record in records if not record.results or self.is_solid(record.results[0])]

    @cached_property
    def readers(self) -> dict[int, list[tuple[int, Read]]]:
        """The solid records that read each value, and how."""
        found: dict[int, list[tuple[int, Read]]] = {}
        for number in self.solid:
            for read in self.reads(number):
                found.setdefault(read.value, []).append((number, read))
        return found

    @cached_property
    def result_values(self) -> set[int]:
        """The values that results of the program are read from."""
        found: set[int] = set()
        for output in self.tape.outputs:
            found |= {read.value for read in self.trace(output, coordinates(self.type(output).rank))}
        return found

    def _is_free(self, record: Record) -> bool:
        lower = spec_of(record).lower
        if isinstance(lower, View):
            return True
        if not isinstance(lower, Pointwise) or lower.expensive or lower.flops > CHEAP or data_of(record) is not None:
            return False
        if is_widening(self.tape, record):
            return True
        # Numbers made from sizes and coordinates alone, such as masks; their cost grows along a chain.
        if not all(operand in self._flops for operand in record.operands):
            return False
        flops = lower.flops + sum(self._flops[operand] for operand in record.operands)
        if flops > 2 * CHEAP:
            return False
        self._flops.update(dict.fromkeys(record.results, flops))
        return True

    def waits(self, number: int) -> list[Read]:
        """What must be computed before a record may read its operands, itself or through free values."""
        found = self._waits.get(number)
        if found is None:
            found = [
                read
                for value in self._after.get(number, ())
                for read in self.trace(value, coordinates(self.type(value).rank))
            ]
            for operand in self.tape.records[number].operands if self._after else ():
                if operand in self.free:
                    found += self.waits(self.makers[operand])
            found = self._waits[number] = list(dict.fromkeys(found))
        return found

    def reads(self, number: int) -> list[Read]:
        """What a solid record reads, through free values, over the coordinates of its result.

        For a reduction the coordinates are those of its operand. Ops that work on whole tensors read them in memory.
        """
        found = self._reads.get(number)
        if found is None:
            found = self._reads[number] = list(dict.fromkeys(self._reads_of(self.tape.records[number])))
        return found

    def _reads_of(self, record: Record) -> list[Read]:
        lower = spec_of(record).lower
        if isinstance(lower, Pointwise | Gather):
            (first, *_), here = record.results, coordinates(self.type(record.results[0]).rank)
            reads = operand_reads(self.tape, record, first, here)
        else:
            used = record.operands[:1] if isinstance(lower, Reduction) else record.operands
            reads = [(operand, coordinates(self.type(operand).rank)) for operand in used]
        if isinstance(lower, Gather):
            in_memory = [True] + [False] * (len(reads) - 1)
        else:
            memory = set(self.memory_operands(record))
            in_memory = [operand in memory for operand, _ in reads]
        pairs = zip(reads, in_memory, strict=True)
        return [read for (operand, at), held in pairs for read in self.trace(operand, at, in_memory=held)]

    def trace(self, value: int, at: IndexMap, *, in_memory: bool = False) -> list[Read]:
        """The values that are not free behind a read of `value` at `at`."""
        if value not in self.free:
            return [Read(value, at, in_memory)]
        record = self.tape.records[self.makers[value]]
        if isinstance(spec_of(record).lower, View):
            return self.trace(record.operands[0], compose(self.view_map(value), at), in_memory=in_memory)
        out = self.type(value)
        return [
            read
            for operand in record.operands
            for read in self.trace(operand, broadcast_at(self.type(operand), out, at), in_memory=in_memory)
        ]

    def index_of(self, read: Read) -> IndexMap:
        """The index of a read, in the form in which index maps are compared."""
        return normalize_index(read.at, self.type(read.value).shape)

    def are_elementwise(self, reads: Sequence[Read], shape: tuple[Dim, ...]) -> bool:
        """Whether reads are element by element: by identity index maps, of values that groups over a shape compute."""
        here = normalize_index(coordinates(len(shape)), shape)
        return all(not read.in_memory and self.index_of(read) == here for read in reads)

    def view_map(self, value: int) -> IndexMap:
        """The index in a view's operand of each element of its result."""
        number = self.makers[value]
        record = self.tape.records[number]
        if number not in self._maps:
            lower: View = spec_of(record).lower
            outs = [self.type(result) for result in record.results]
            self._maps[number] = lower.maps(self.type(record.operands[0]), outs, record.attributes)
        return tuple(self._maps[number][record.results.index(value)])

    def memory_operands(self, record: Record) -> Sequence[int]:
        """The operands that an op reads as whole tensors in memory."""
        key = (record.results, record.operands)
        found = self._in_memory.get(key)
        if found is None:
            found = self._in_memory[key] = self._memory_operands(record)
        return found

    def _memory_operands(self, record: Record) -> Sequence[int]:
        lower = spec_of(record).lower
        if isinstance(lower, Gather):
            return record.operands[:1]
        if isinstance(lower, Contraction):
            types = [self.type(operand) for operand in record.operands]
            maps = lower.maps(types, record.attributes)
            needed = {*maps.in_memory, *(operand for operand, _, _ in maps.windows)}
            if self.whole_tiles and not maps.windows:
                needed = {number for number in (0, 1) if self._is_scattered(maps, number, record.operands[number])}
                needed |= {number for number in (0, 1) if self._is_eight_bits(record, number)}
                needed |= {number for number in (0, 1) if self._is_across(record, number)}
            return [v for number, v in enumerate(record.operands) if number in needed or self._is_computed(v)]
        if isinstance(lower, Reduction):
            return () if self.whole_tiles else self._rows_apart(record, lower)
        if isinstance(lower, Library) and lower.reads_views:
            return [operand for operand in record.operands if not self._has_whole_rows(operand)]
        if lower is None or isinstance(lower, Library):
            return record.operands
        return ()

    def _rows_apart(self, record: Record, lower: Reduction) -> Sequence[int]:
        """The view that a CPU reduces along rows whose elements are apart in memory, where others read it as well.

        A softmax of a transposed tensor goes along such rows several times, and gathers their elements each time:
        they are transposed in memory once. What is only reduced is reduced along the columns of memory.
        """
        value = record.operands[0]
        rank, chain = self.type(value).rank, [value]
        while value in self.free and is_widening(self.tape, self.tape.records[self.makers[value]]):
            value = self.tape.records[self.makers[value]].operands[0]
            chain.append(value)
        maker = self.maker(value)
        if value not in self.free or maker is None or not isinstance(spec_of(maker).lower, View):
            return ()
        is_row = rank - 1 in lower.axes(self.type(record.operands[0]), record.attributes)
        if not is_row or self._is_computed(value) or self._has_whole_rows(value):
            return ()
        readers = [one for one in self.tape.records if one.results and not set(chain).isdisjoint(one.operands)]
        others = (one for one in readers if not isinstance(spec_of(one).lower, Reduction))
        return [value] if any(one.results[0] not in chain for one in others) else ()

    def _has_whole_rows(self, value: int) -> bool:
        """Whether a value is a strided view of memory whose last dim is contiguous."""
        root, rank = value, self.type(value).rank
        at = coordinates(rank)
        while root in self.free:
            record = self.tape.records[self.makers[root]]
            if not isinstance(spec_of(record).lower, View):
                return False
            if self.alias_of(root) not in self.free:
                break  # the same memory in another shape
            at, root = compose(self.view_map(root), at), record.operands[0]
        address = linear(at, self.type(root).shape)
        strides = [address.coefficient(f"d{axis}") for axis in range(rank)]
        last = strides[-1] if strides else None
        return all(stride is not None for stride in strides) and last is not None and last[0].value == 1

    def _is_scattered(self, maps: ContractionMaps, number: int, value: int) -> bool:
        """Whether a narrow operand is read through views that leave its tiles along no single dims of memory."""
        if self.type(value).dtype.bytes > 2 or value not in self.free or self._is_computed(value):
            return False
        reads = self.trace(value, operand_at(maps, number))
        axes = axes_of(maps, number)
        # Copies of the rhs may stop before a dim ends.
        return not all(is_walkable(read.at, self.type(read.value).shape, axes, number == 1) for read in reads)

    def _is_across(self, record: Record, number: int) -> bool:
        """Whether an operand is a view of memory in an order that products are not read in, and itself is in none."""
        value, orientation = record.operands[number], self.orientation
        maker = self.maker(value)
        is_view = maker is not None and value in self.free and isinstance(spec_of(maker).lower, View)
        if orientation is None or not is_view or not orientation.is_ready(self.tape, record, number):
            return False
        return orientation.is_across(self.tape, record, number, self._producers)

    @cached_property
    def _producers(self) -> dict[int, Record]:
        return producers(self.tape)

    def _is_eight_bits(self, record: Record, number: int) -> bool:
        """Whether an operand of a contraction is widened 8-bit numbers that tensor cores take from memory alone.

        Where threads widen them for tensor cores, those accumulate in the same order: the number of rows does not
        decide over bits.
        """
        value, is_vector = record.operands[number], self.type(record.results[0]).rank < 2
        maker = self.maker(value)
        while maker is not None and value in self.free and isinstance(spec_of(maker).lower, View):
            value = maker.operands[0]
            maker = self.maker(value)
        if is_vector or maker is None or value not in self.free or not is_widening(self.tape, maker):
            return False
        source, target = self.type(maker.operands[0]).dtype, self.type(value).dtype
        is_eight_bits = source.bytes == 1 and not source.is_bool and target.is_float and target.bytes == 2
        return is_eight_bits and not (self.computes and self._is_widened_by_threads(record, number))

    def _is_widened_by_threads(self, record: Record, number: int) -> bool:
        found = computed_operand(self.tape, record, lambda maker: maker.results[0] in self.free)
        return found is not None and found.number == number

    def _is_computed(self, value: int) -> bool:
        """Whether a free value is computed numbers, which no memory holds, behind views and conversions."""
        record = self.maker(value)
        if record is None or value not in self.free:
            return False
        if isinstance(spec_of(record).lower, View) or is_widening(self.tape, record):
            return self._is_computed(record.operands[0])
        return True

    def alias_of(self, value: int) -> int:
        """The value whose memory holds `value` too: through views that move no element."""
        found = self._aliases.get(value)
        if found is None:
            found = self._aliases[value] = self._alias_of(value)
        return found

    def alias_space(self, value: int) -> str:
        """The memory that a value is prefetched to, somewhere between it and the value whose memory holds it."""
        root = self.alias_of(value)
        while value != root:
            record = self.maker(value)
            assert record is not None
            if space := prefetch_space(record):
                return space
            (value,) = record.operands
        return ""

    def _alias_of(self, value: int) -> int:
        if value not in self.free:
            return value
        record = self.tape.records[self.makers[value]]
        if not isinstance(spec_of(record).lower, View) or not self.keeps_layout(record, value):
            return value
        return self.alias_of(record.operands[0])

    def keeps_layout(self, record: Record, value: int) -> bool:
        """Whether a view sees all elements of its operand in the order of memory."""
        source, out = self.type(record.operands[0]), self.type(value)
        if source.size != out.size:
            return False
        here = coordinates(out.rank)
        # Along a dim of one element the index is 0, whether a map names it or not.
        single = {f"d{axis}": ZERO for axis, dim in enumerate(out.shape) if dim.value == 1}
        there, own = linear(self.view_map(value), source.shape), linear(here, out.shape)
        return there.substitute(single) == own.substitute(single)


def remove_barriers(tape: Tape) -> tuple[Tape, dict[int, tuple[int, ...]]]:
    """The tape without views that wait, and the values that the record of each number waits for by them.

    What is behind such a view is read in its place: it has no part in what a group computes, only in when.
    """
    sources: dict[int, tuple[int, tuple[int, ...]]] = {}
    records: list[Record] = []
    after: dict[int, tuple[int, ...]] = {}
    for record in tape.records:
        behind = [sources.get(operand, (operand, ())) for operand in record.operands]
        operands = tuple(value for value, _ in behind)
        if is_barrier(record):
            sources[record.results[0]] = (operands[0], (*behind[0][1], *operands[1:]))
            continue
        late = tuple(dict.fromkeys(value for _, values in behind for value in values))
        if late:
            after[len(records)] = late
        records.append(replace(record, operands=operands) if operands != record.operands else record)
    if not sources:
        return tape, {}
    outputs = [sources.get(output, (output, ()))[0] for output in tape.outputs]
    return replace(tape, records=records, outputs=outputs), after


def is_barrier(record: Record) -> bool:
    """Whether an op is a view that waits for other values."""
    lower = spec_of(record).lower
    return isinstance(lower, View) and lower.waits


def data_of(record: Record) -> Any:
    """The array of a constant of more than one element; None for any other op."""
    if record.operands or not isinstance(spec_of(record).lower, Pointwise):
        return None
    arrays = [record.attributes[a.name] for a in spec_of(record).attributes if a.kind == "array"]
    return arrays[0] if len(arrays) == 1 and arrays[0].size > 1 else None


def is_widening(tape: Tape, record: Record) -> bool:
    """Whether an op changes nothing but the dtype, to one that holds every value of the old."""
    if len(record.operands) != 1 or len(record.results) != 1:
        return False
    source, out = tape.types[record.operands[0]], tape.types[record.results[0]]
    return is_conversion(record) and holds(out.dtype, source.dtype)


def is_conversion(record: Record) -> bool:
    """Whether an op is a change of dtype, element by element."""
    lower = spec_of(record).lower
    return isinstance(lower, Pointwise) and lower.converts


def normalize_index(at: IndexMap, shape: Sequence[Dim]) -> IndexMap:
    """An index map with 0 along dims of one element, so that maps of equal indices are equal."""
    return tuple(ZERO if dim.value == 1 else expr for expr, dim in zip(at, shape, strict=True))


def prefetch_space(record: Record) -> str:
    """The memory that an op prefetches a tensor to; empty for any other op."""
    lower = spec_of(record).lower
    return lower.space(record.attributes) if isinstance(lower, View) and lower.space is not None else ""


# The iteration space of a group with reductions: its full shape, the reduced axes, and where each value is in it.


@dataclass
class RowSpace:
    """`shape` with `axes` reduced; `rows` maps each row value to whether it kept the reduced dims."""

    shape: tuple[Dim, ...]
    axes: tuple[int, ...]
    rows: dict[int, bool] = field(default_factory=dict[int, bool])

    @property
    def full(self) -> IndexMap:
        """The coordinates of the space."""
        return coordinates(len(self.shape))

    def is_row(self, value: int) -> bool:
        return value in self.rows

    def row_shape(self, keepdims: bool) -> tuple[Dim, ...]:
        if keepdims:
            return tuple(Dim.constant(1) if axis in self.axes else dim for axis, dim in enumerate(self.shape))
        return tuple(dim for axis, dim in enumerate(self.shape) if axis not in self.axes)

    def at(self, value: int, full: IndexMap) -> IndexMap:
        """The index of a value of the group, for coordinates of the full space."""
        if value not in self.rows:
            return full
        return self.row_at(full, self.rows[value])

    def row_at(self, full: IndexMap, keepdims: bool) -> IndexMap:
        """The index of a row value, for coordinates of the full space."""
        if keepdims:
            return tuple(ZERO if axis in self.axes else expr for axis, expr in enumerate(full))
        return tuple(expr for axis, expr in enumerate(full) if axis not in self.axes)

    def row_coordinates(self, keepdims: bool) -> IndexMap:
        """Coordinates of the full space for those of a row value; any along what is reduced."""
        kept = [axis for axis in range(len(self.shape)) if axis not in self.axes]
        return tuple(
            Dim.symbol(f"_f{axis}") if axis in self.axes else Dim.symbol(f"d{axis if keepdims else kept.index(axis)}")
            for axis in range(len(self.shape))
        )

    def are_elementwise(self, program: Program, full: IndexMap, reads: Sequence[Read]) -> bool:
        """Whether values of the group are all read where they are computed, for these coordinates of the space."""
        return all(
            program.index_of(read) == normalize_index(self.at(read.value, full), program.type(read.value).shape)
            for read in reads
        )

    def role_of(self, program: Program, out: tuple[Dim, ...], reads: Sequence[Read]) -> str | None:
        """What a pointwise op that reads the group would be in it: a `row` value, a `full` one, or None for neither."""
        if all(self.is_row(read.value) for read in reads):
            for keepdims in (True, False):
                if out != self.row_shape(keepdims):
                    continue
                if self.are_elementwise(program, self.row_coordinates(keepdims), reads):
                    return "row"
        return "full" if out == self.shape and self.are_elementwise(program, self.full, reads) else None


def row_space(body: Tape, axes: tuple[int, ...]) -> RowSpace:
    """The space of a row group's body: the shape of its first reduction; how values are read says which are rows."""
    return row_reads(body, axes)[0]


def row_reads(body: Tape, axes: tuple[int, ...]) -> tuple[RowSpace, ReadMaps]:
    """The space of a row group's body, and the indices at which its values are read."""
    shape = next(body.types[r.operands[0]].shape for r in body.records if isinstance(spec_of(r).lower, Reduction))
    space = RowSpace(shape, axes)
    reads = ReadMaps(body)
    for record in body.records:
        if isinstance(spec_of(record).lower, Reduction):
            result = record.results[0]
            space.rows[result] = body.types[result].shape == space.row_shape(True)
            reads.visit(record.operands[0], space.full)
    for record in body.records:
        for value in record.results:
            keepdims = body.types[value].shape == space.row_shape(True)
            if value in space.rows or not (keepdims or body.types[value].shape == space.row_shape(False)):
                continue
            if value in body.outputs:
                reads.visit(value, space.row_at(space.full, keepdims))
    for output in body.outputs:
        if body.types[output].shape == shape and output not in space.rows:
            reads.visit(output, space.full)
    reads.mark_rows(space)
    return space, reads


class ReadMaps:
    """The index maps at which each value of a body is read, over the coordinates of what is stored or reduced."""

    def __init__(self, body: Tape) -> None:
        self.body = body
        self.makers = producers(body)
        self.found: dict[int, set[IndexMap]] = {}

    def visit(self, value: int, at: IndexMap) -> None:
        at = normalize_index(at, self.body.types[value].shape)
        seen = self.found.setdefault(value, set())
        record = self.makers.get(value)
        if at in seen:
            return
        seen.add(at)
        if record is None:
            return
        reads = operand_reads(self.body, record, value, at)
        # A gather reads its first operand wherever the indices say, from memory.
        for operand, where in reads[1:] if isinstance(spec_of(record).lower, Gather) else reads:
            self.visit(operand, where)

    def check(self, value: int, at: IndexMap) -> None:
        """Raise ValueError if a value that the kernel has at one index only is read at another."""
        own = normalize_index(at, self.body.types[value].shape)
        for other in self.found.get(value, set()) - {own}:
            here, there = (f"[{', '.join(map(str, index))}]" for index in (own, other))
            raise ValueError(
                f"a group computes `{self.makers[value].op}` at {here} and reads it at {there}; "
                "the fusion rule that formed it must leave such a read alone"
            )

    def mark_rows(self, space: RowSpace) -> None:
        """Values of a row's shape that are read only at their own row are rows."""
        for value in self.makers:
            shape = self.body.types[value].shape
            for keepdims in (True, False):
                if value not in space.rows and shape == space.row_shape(keepdims):
                    own = space.row_at(space.full, keepdims)
                    if self.found.get(value, set()) <= {normalize_index(own, shape)}:
                        space.rows[value] = keepdims


def result_reads(body: Tape) -> Mapping[int, set[IndexMap]]:
    """The indices at which values are read for the results of a body, over the coordinates of those."""
    reads = ReadMaps(body)
    for output in body.outputs:
        reads.visit(output, coordinates(body.types[output].rank))
    return reads.found


def check_shapes(body: Tape, shapes: Iterable[tuple[Dim, ...]]) -> None:
    """Raise ValueError unless the results of a body have shapes that its kernel goes over."""
    allowed = list(shapes)
    for output in body.outputs:
        if body.types[output].shape not in allowed:
            names = " or ".join(f"[{', '.join(map(str, shape))}]" for shape in allowed)
            raise ValueError(f"a group over {names} has a result {body.types[output]}; no kernel computes both")


def check_epilogue(body: Tape, facet: type) -> None:
    """Raise ValueError unless all that follows the one op with a facet is computed on its result, index by index."""
    (record,) = [record for record in body.records if isinstance(spec_of(record).lower, facet)]
    reads, result = ReadMaps(body), record.results[0]
    here = coordinates(body.types[result].rank)
    check_shapes(body, [body.types[value].shape for value in record.results])
    for output in body.outputs:
        if output not in record.results:
            reads.visit(output, here)
    reads.check(result, here)
