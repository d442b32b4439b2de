"""Operands of contractions that are copied first, since their elements lie across what matrix instructions read.

An instruction may take some dtypes only along K (`MatrixInstruction.along_k`), and none takes an operand whose batch is
its contiguous dim: neighbours in memory then belong to different products. Such an operand is written once with its
dims in another order. A contraction that reads it so is the same one (`Contraction.reorder`), the view that orders dims
is in memory (`Program.memory_operands`), and writing it costs a walk over the operand, where threads that multiply
without the instruction take a hundred times as long.

Which operands are copied never depends on the rows of a product: the instruction decides how floats are summed, and so
over bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.tape import Record, Tape
from tessera.ir.schedule.emit.evaluate import operand_reads, spec_of
from tessera.ir.tile.facets import Contraction, ContractionMaps, Pointwise, Reordered, View
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType, f32
from tessera.types.frozen import frozen
from tessera.types.policy import Policy, tf32
from tessera.types.promotion import holds
from tessera.types.shape import TensorType

_LARGE = 1 << 20
"""Elements of an operand of threads from which on it is copied where its batch is contiguous; fewer are in caches."""
_ALIGNED = 16
"""Bytes that rows begin at multiples of where copies take them as they are."""
_WIDE = 4
"""Bytes of elements that threads multiply, where no mode of a policy gives them to an instruction."""


@frozen
class Orientation:
    """What a machine's best matrix instruction takes along K alone, and the policy of contractions that have none."""

    along_k: frozenset[str]
    policy: Policy

    def is_across(self, tape: Tape, record: Record, number: int, makers: Mapping[int, Record]) -> bool:
        """Whether memory has an operand in an order that products are not read in, behind views if there are any."""
        refused = self._find_refused(tape, record, number)
        maps = _whole_maps(tape, record) if refused else None
        if maps is None:
            return False
        letter = _innermost(tape, makers, record.operands[number], (maps.lhs, maps.rhs)[number])
        return letter != "" and letter in refused

    def is_ready(self, tape: Tape, record: Record, number: int) -> bool:
        """Whether an operand would be in a wanted order, were it in memory as it is seen."""
        maps = _whole_maps(tape, record)
        if maps is None:
            return False
        type = tape.types[record.operands[number]]
        letter = _letter(type.shape, (maps.lhs, maps.rhs)[number])
        return letter != "" and letter not in self._find_refused(tape, record, number)

    def _find_refused(self, tape: Tape, record: Record, number: int) -> str:
        """The letters of coordinates that must not be the contiguous ones of an operand."""
        asked = record.policy or self.policy
        types = [tape.types[operand] for operand in record.operands]
        names = [_name(type.dtype, asked) for type in types]
        is_one = names[0] == names[1] or not any(type.dtype.is_float for type in types)
        if is_one and self.along_k.issuperset(names) and _accumulates_words(tape, record):
            return "bmn"
        size, dtype = types[number].size.value, types[number].dtype
        is_large = dtype.is_float and (dtype.bytes < _WIDE or (size is not None and size >= _LARGE))
        # A batch, and both of what is multiplied.
        return "b" if is_large and types[number].rank > 2 else ""


def _name(dtype: DType, asked: Policy) -> str:
    """What an instruction calls the elements of an operand."""
    return tf32.name if dtype is f32 and asked.compute is tf32 else dtype.name


def _accumulates_words(tape: Tape, record: Record) -> bool:
    """Whether sums have 32 bits, as those of instructions do."""
    asked: DType | None = record.attributes.get("accumulate")
    dtype = asked or tape.types[record.results[0]].dtype
    return dtype.bits <= 32


def _whole_maps(tape: Tape, record: Record) -> ContractionMaps | None:
    """The index maps of a contraction of matrices, with all of K in each; None of vectors, windows and other ops."""
    lower = spec_of(record).lower
    if not isinstance(lower, Contraction) or lower.reorder is None:
        return None
    maps = lower.maps([tape.types[operand] for operand in record.operands], {**record.attributes, "partial": False})
    return maps if maps.m and maps.n and maps.k and not maps.windows else None


def _innermost(tape: Tape, makers: Mapping[int, Record], value: int, at: IndexMap) -> str:
    """The letter of the coordinate along which an operand is contiguous in memory, behind views; empty for none."""
    while (maker := makers.get(value)) is not None and isinstance(spec_of(maker).lower, View):
        ((value, at),) = operand_reads(tape, maker, value, at)
    return _letter(tape.types[value].shape, at)


def _letter(shape: Sequence[Dim], at: IndexMap) -> str:
    """That of a tensor of a shape, which may end in dims of one element."""
    for dim, index in reversed(list(zip(shape, at, strict=True))):
        if dim.value != 1:
            letters = {name[0] for name in index.symbols if name[0] in "bmnk" and name[1:].isdigit()}
            return letters.pop() if len(letters) == 1 else ""
    return ""


def with_oriented_operands(tape: Tape, orientation: Orientation) -> Tape:
    """The tape with contractions that read operands in an order in which they can be in memory for them."""
    if not any(_is_contraction(record) for record in tape.records):
        return tape
    made = _Orienter(tape, orientation)
    for record in tape.records:
        record = made.narrow(record) if _is_contraction(record) else record
        for number in (0, 1) if _is_contraction(record) else ():
            is_across = orientation.is_across(made.tape, record, number, made.makers)
            if is_across:
                is_ready = orientation.is_ready(made.tape, record, number)
                record = made.see_first(record, number) if is_ready else made.orient(record, number)
        made.add(record)
    return made.tape


def _is_contraction(record: Record) -> bool:
    return isinstance(spec_of(record).lower, Contraction)


class _Orienter:
    """A tape being written again, with operands in another order; each that several contractions read is moved once."""

    def __init__(self, tape: Tape, orientation: Orientation) -> None:
        self.source, self.orientation = tape, orientation
        self.tape = replace(tape, records=[], types=list(tape.types))
        self.makers: dict[int, Record] = {}
        """By each value, the record that makes it."""
        self._moved: dict[tuple[int, tuple[int, ...]], int] = {}
        self._reads = Counter(operand for record in tape.records for operand in record.operands)

    def add(self, record: Record) -> int:
        """Put a record at the end; its first result, if it has any."""
        self.tape.records.append(record)
        self.makers.update(dict.fromkeys(record.results, record))
        return record.results[0] if record.results else -1

    def narrow(self, record: Record) -> Record:
        """A contraction of bytes that are widened to words, of the bytes themselves: sums of their products wrap alike.

        Instructions widen what they multiply, and take operands of bytes from memory alone.
        """
        if self.tape.types[record.results[0]].dtype.is_float or not _accumulates_words(self.tape, record):
            return record
        chains = [self._find_bytes(operand) for operand in record.operands]
        if any(chain is None for chain in chains) or record.attributes.get("partial"):
            return record
        operands = tuple(self._repeat(chain) for chain in chains if chain is not None)
        result = self.tape.types[record.results[0]].dtype
        stated = {"dtype": result, "accumulate": record.attributes.get("accumulate") or result}
        return replace(record, operands=operands, attributes={**record.attributes, **stated})

    def _find_bytes(self, value: int) -> list[int] | None:
        """The values from one of bytes to an operand, which views and one widening are between; None for others."""
        chain = [value]
        while (maker := self.makers.get(value)) is not None:
            lower, types = spec_of(maker).lower, self.tape.types
            is_cast = isinstance(lower, Pointwise) and lower.converts
            is_view = isinstance(lower, View) and lower.moves_elements and len(maker.results) == 1
            if not is_cast and not is_view:
                return None
            value = maker.operands[0]
            chain.append(value)
            if is_cast:
                source, target = types[value].dtype, types[maker.results[0]].dtype
                is_byte = source.name in self.orientation.along_k and not source.is_float
                return chain[::-1] if is_byte and holds(target, source) else None
        return None

    def _repeat(self, chain: Sequence[int]) -> int:
        """The views of a chain on what is before its widening."""
        value = chain[0]
        for seen in chain[2:]:
            maker, type = self.makers[seen], self.tape.types[seen]
            result = self.tape.new_value(TensorType(type.shape, self.tape.types[value].dtype))
            value = self.add(replace(maker, operands=(value,), results=(result,)))
        return value

    def orient(self, record: Record, number: int) -> Record:
        """The contraction with one operand moved; as it is where its op has no such form."""
        maps, lower = _whole_maps(self.tape, record), spec_of(record).lower
        assert maps is not None
        assert lower.reorder is not None
        types = [self.tape.types[operand] for operand in record.operands]
        axes = _order(types[number], maps, number, record, self.orientation)
        found = lower.reorder(types, record.attributes, number, axes) if axes else None
        if found is None:
            return record
        value = self._move(record.operands[number], found, axes, record)
        operands = (value, record.operands[1]) if number == 0 else (record.operands[0], value)
        return replace(record, op=found.op, operands=operands, attributes=found.attributes)

    def see_first(self, record: Record, number: int) -> Record:
        """The contraction of a view of what is computed for it alone, as what is computed of a view.

        A copy of a view is written to memory, and so is what it is of: both are one walk.
        """
        value = record.operands[number]
        view = self.makers[value]
        maker = self.makers.get(view.operands[0])
        if maker is None or len(view.results) != 1 or not self._is_computed_alone(maker, view.operands[0]):
            return record
        types = self.tape.types
        seen = self.tape.new_value(TensorType(types[value].shape, types[maker.operands[0]].dtype))
        made = self.tape.new_value(types[value])
        self.add(replace(view, operands=maker.operands, results=(seen,)))
        self.add(replace(maker, operands=(seen,), results=(made,)))
        operands = (made, record.operands[1]) if number == 0 else (record.operands[0], made)
        return replace(record, operands=operands)

    def _move(self, value: int, found: Reordered, axes: tuple[int, ...], reader: Record) -> int:
        """An operand with its dims in another order.

        What is computed of one tensor for the contraction alone is computed in that order: it is written to memory
        anyway.
        """
        if (value, axes) in self._moved:
            return self._moved[value, axes]
        type, maker = self.tape.types[value], self.makers.get(value)
        shape = type.with_shape(type.shape[axis] for axis in axes)
        result = self.tape.new_value(shape)
        if maker is not None and self._is_computed_alone(maker, value):
            source = self._move(maker.operands[0], found, axes, reader)
            moved = replace(maker, operands=(source,), results=(result,))
        else:
            given = (found.view, (value,), found.view_attributes, (result,), reader.span)
            moved = Record(*given, device=reader.device, region=reader.region)
        self._moved[value, axes] = self.add(moved)
        return result

    def _is_computed_alone(self, maker: Record, value: int) -> bool:
        is_unary = len(maker.operands) == 1 and len(maker.results) == 1 and self._reads[value] == 1
        source = self.tape.types[maker.operands[0]] if is_unary else None
        is_same = source is not None and source.shape == self.tape.types[value].shape
        lower = spec_of(maker).lower
        is_elementwise = isinstance(lower, Pointwise) and not lower.asks_where
        return is_same and value not in self.source.outputs and is_elementwise


def _order(
    type: TensorType, maps: ContractionMaps, number: int, record: Record, orientation: Orientation
) -> tuple[int, ...]:
    """The order of an operand's dims: its batch, then M or N, then K; none where a dim has several coordinates.

    Floats of two bytes are also taken with K first, which pays where rows of K would have to be copied once more to
    begin at multiples of some bytes.
    """
    letters: list[str] = []
    for index in (maps.lhs, maps.rhs)[number]:
        names = {name[0] for name in index.symbols}
        if len(names) > 1:
            return ()
        letters.append(names.pop() if names else "b")
    groups: dict[str, list[int]] = {letter: [] for letter in "bmnk"}
    for axis, letter in enumerate(letters):
        groups[letter].append(axis)
    free = groups["m"] + groups["n"]
    rows = {key: _row_bytes(type, axes) for key, axes in (("k", groups["k"]), ("f", free))}
    asked = record.policy or orientation.policy
    is_along_k = _name(type.dtype, asked) in orientation.along_k
    is_k_first = not is_along_k and rows["k"] % _ALIGNED != 0 and rows["f"] % _ALIGNED == 0
    return tuple([*groups["b"], *groups["k"], *free] if is_k_first else [*groups["b"], *free, *groups["k"]])


def _row_bytes(type: TensorType, axes: Sequence[int]) -> int:
    """Bytes of some dims together; 1 where they are not known, which is a multiple of nothing."""
    elements: Any = product(type.shape[axis] for axis in axes).value
    return 1 if elements is None else elements * type.dtype.bytes
