"""Which blocks of scores a mask hides altogether: interval analysis of its program, carried out by graph ops.

Scores are cut into blocks of `BLOCK` queries by `BLOCK` keys. For each block the program is evaluated on intervals: an
integer is between two bounds there, and a bool may hold, must hold, or both. Where the result may not hold, no query of
the block sees a key of it. What depends on queries alone, or on keys alone, and reads captured tensors is computed
exactly, element by element, and reduced to the bounds of each block; what depends on both is interval arithmetic in
i64, in which whatever could wrap around may be anything. So the analysis never hides what a query sees, and what it
gives kernels are the first and the last key of each block of queries: programs begin and end their loops there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.spec import Builder
from tessera.ir.graph.building import cast, constant, size_value
from tessera.ir.graph.score_forms import GraphArithmetic
from tessera.ir.graph.score_programs import BATCH, FIRST, HEAD, KEY, QUERY, SCORE, Lines, dependences, value_dtypes
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import integer_range
from tessera.types.shape import ONE, Shape

BLOCK = 32
"""Queries and keys of a block: what divides the blocks of every kernel."""
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_SMALL = 1 << 31
"""Sums and products of two numbers up to this are exact in i64."""


@frozen
class Bounds:
    """Bounds of a value in each block, [batch, heads, blocks of queries, blocks of keys]; bools: must hold, may hold.

    `limit` is what no magnitude is beyond, as far as is known here; `number` the value of a constant.
    """

    low: Any
    high: Any
    limit: int = 1 << 63
    number: int | None = None


class BlockAnalysis:
    """Bounds of the values of a mask's program; None for one of which nothing is known."""

    def __init__(self, b: Builder, lines: Lines, captures: Sequence[Any], shape: Shape) -> None:
        self.b, self.lines, self.shape = b, lines, shape
        self.arithmetic = GraphArithmetic(b, captures)
        self.depends = dependences(lines)
        types = [b.type_of(capture) for capture in captures]
        self.dtypes = value_dtypes(lines, dt.f32, types, TypeError)
        self.counts = (*shape[:2], *(dim.ceildiv(BLOCK) for dim in shape[2:]))
        self._elements: dict[tuple[int, int], Any] = {}
        self._found: dict[int, Bounds | None] = {}

    def bounds(self, number: int) -> Bounds | None:
        """The bounds of a value."""
        if number not in self._found:
            self._found[number] = self._make_bounds(number)
        return self._found[number]

    def _make_bounds(self, number: int) -> Bounds | None:
        if number < FIRST:
            return None if number == SCORE else self._input(number)
        function, operands, detail = self.lines[number - FIRST]
        dtype = self.dtypes[number]
        is_plain = dtype.is_bool or (dtype.is_integer and dtype is not dt.u64)
        if not is_plain or SCORE in self.depends[number]:
            return None
        if function == "constant":
            made = self._wide(self.arithmetic.constant(detail[0], dtype))
            return Bounds(made, made, abs(int(detail[0])), int(detail[0]))
        if self._reads(number):
            return self._exact(number)
        given = [self.bounds(operand) for operand in operands]
        if dtype.is_bool:
            return self._decide(function, operands, given)
        known = [one for one in given if one is not None]
        are_integers = len(known) == len(given) and all(self.dtypes[operand].is_integer for operand in operands)
        return self._compute(function, known, dtype) if are_integers else None

    def _reads(self, number: int) -> bool:
        """Whether a value is read from tensors, by queries alone, by keys alone, or by neither."""
        if {QUERY, KEY} <= self.depends[number] or number < FIRST:
            return False
        function, operands, _ = self.lines[number - FIRST]
        return function == "load" or any(self._reads(operand) for operand in operands)

    def _wide(self, value: Any) -> Any:
        return value if self.b.type_of(value).dtype.is_bool else cast(self.b, value, dt.i64)

    # Values by element, and their bounds.

    def _input(self, number: int) -> Bounds:
        b, axis = self.b, number - BATCH
        sizes = tuple(count if at == axis else ONE for at, count in enumerate(self.counts))
        own = b.emit("iota", shape=sizes, axis=axis, dtype=dt.i64)
        size = self.shape[axis]
        limit = max(size.value - 1, 0) if size.value is not None else _SMALL
        if number in (BATCH, HEAD):
            return Bounds(own, own, limit)
        low = b.emit("mul", own, constant(b, BLOCK, dt.i64))
        high = b.emit("add", low, constant(b, BLOCK - 1, dt.i64))
        return Bounds(low, b.emit("minimum", high, size_value(b, size - 1)), limit)

    def _exact(self, number: int) -> Bounds:
        """Bounds of a value that does not depend on both: of all elements of a block, computed one by one."""
        b, depends = self.b, self.depends[number]
        along = KEY if KEY in depends else QUERY
        values = self._wide(self._element(number, along))
        shape = b.type_of(values).shape
        limit = integer_range(self.dtypes[number])[1] + 1 if self.dtypes[number].is_integer else 1
        if not {QUERY, KEY} & depends:
            return Bounds(values, values, limit)
        names = ("all", "any") if self.dtypes[number].is_bool else ("min", "max")
        ends = [b.emit(name, values, axes=(3,), keepdims=True) for name in names]
        if along == KEY:
            ends = [b.emit("reshape", end, shape=(*shape[:2], ONE, shape[2])) for end in ends]
        return Bounds(ends[0], ends[1], limit)

    def _element(self, number: int, along: int) -> Any:
        """A value at each element: [batch, heads, blocks, elements of a block], of queries or of keys."""
        key = (number, along)
        if key not in self._elements:
            self._elements[key] = self._make_element(number, along)
        return self._elements[key]

    def _make_element(self, number: int, along: int) -> Any:
        b = self.b
        if number in (BATCH, HEAD):
            sizes = tuple(self.shape[at] if at == number - BATCH else ONE for at in range(4))
            return b.emit("iota", shape=sizes, axis=number - BATCH, dtype=dt.i32)
        if number < FIRST:
            count, size = self.counts[number - BATCH], self.shape[number - BATCH]
            flat = b.emit("iota", shape=(count * BLOCK,), axis=0, dtype=dt.i32)
            flat = b.emit("minimum", flat, size_value(b, size - 1, dt.i32))
            return b.emit("reshape", flat, shape=(ONE, ONE, count, Dim.constant(BLOCK)))
        function, operands, detail = self.lines[number - FIRST]
        given = [self._element(operand, along) for operand in operands]
        if function == "constant":
            return self.arithmetic.constant(*detail)
        if function == "load":
            return self.arithmetic.load(int(detail), list(zip(operands, given, strict=True)))
        if function == "cast":
            return self.arithmetic.cast(given[0], detail)
        return self.arithmetic.select(*given) if function == "select" else self.arithmetic.elementwise(function, *given)

    # Interval arithmetic of integers.

    def _compute(self, function: str, given: Sequence[Bounds], dtype: DType) -> Bounds | None:
        b = self.b

        def emit(name: str, left: Any, right: Any) -> Any:
            return b.emit(name, left, right)

        if function == "cast":
            return self._within((), given[0].low, given[0].high, given[0].limit, dtype)
        if function in ("floordiv", "mod"):
            return self._divide(function, given[0], given[1])
        limits = [one.limit for one in given]
        if function == "add":
            low, high = (emit("add", *ends) for ends in zip(*((one.low, one.high) for one in given), strict=True))
            return self._within(given, low, high, sum(limits), dtype)
        if function == "sub":
            x, y = given
            return self._within(given, emit("sub", x.low, y.high), emit("sub", x.high, y.low), sum(limits), dtype)
        if function == "mul":
            corners = [emit("mul", x, y) for x in (given[0].low, given[0].high) for y in (given[1].low, given[1].high)]
            low, high = (self._join(name, corners) for name in ("minimum", "maximum"))
            return self._within(given, low, high, limits[0] * limits[1], dtype)
        if function in ("neg", "abs"):
            (x,) = given
            zero = constant(b, 0, dt.i64)
            low, high = emit("sub", zero, x.high), emit("sub", zero, x.low)
            if function == "abs":
                low, high = emit("maximum", emit("maximum", x.low, low), zero), emit("maximum", high, x.high)
            return self._within(given, low, high, x.limit, dtype)
        if function in ("min", "max"):
            x, y = given
            name = f"{function}imum"
            return Bounds(emit(name, x.low, y.low), emit(name, x.high, y.high), max(limits))
        return None

    def _join(self, name: str, values: Sequence[Any]) -> Any:
        made = values[0]
        for value in values[1:]:
            made = self.b.emit(name, made, value)
        return made

    def _within(self, given: Sequence[Bounds], low: Any, high: Any, limit: int, dtype: DType) -> Bounds:
        """Bounds that were computed in i64; anything of the dtype where that, or the program itself, may wrap."""
        b, least, most = self.b, *integer_range(dtype)
        checks: list[Any] = []
        for one in given:
            if one.limit > _SMALL:
                checks.append(b.emit("ge", one.low, constant(b, -_SMALL, dt.i64)))
                checks.append(b.emit("le", one.high, constant(b, _SMALL, dt.i64)))
        if limit > most or least == 0:
            checks += [
                b.emit("ge", low, constant(b, least, dt.i64)),
                b.emit("le", high, constant(b, most, dt.i64)),
            ]
        if not checks:
            return Bounds(low, high, limit)
        is_exact = self._join("logical_and", checks)
        low = b.emit("where", is_exact, low, constant(b, least, dt.i64))
        return Bounds(low, b.emit("where", is_exact, high, constant(b, most, dt.i64)), most + 1)

    def _divide(self, function: str, x: Bounds, y: Bounds) -> Bounds | None:
        """By a constant above 0; a remainder goes from one to the other where all have one quotient."""
        if y.number is None or y.number <= 0:
            return None
        b, by = self.b, constant(self.b, y.number, dt.i64)
        quotients = [b.emit("floordiv", end, by) for end in (x.low, x.high)]
        if function == "floordiv":
            return Bounds(quotients[0], quotients[1], x.limit)
        low, high = (
            b.emit("sub", end, b.emit("mul", own, by)) for end, own in zip((x.low, x.high), quotients, strict=True)
        )
        is_one = b.emit("eq", *quotients)
        low = b.emit("where", is_one, low, constant(b, 0, dt.i64))
        return Bounds(low, b.emit("where", is_one, high, constant(b, y.number - 1, dt.i64)), y.number - 1)

    # Bools.

    def _decide(self, function: str, operands: Sequence[int], given: Sequence[Bounds | None]) -> Bounds | None:
        """What a comparison, or a choice between bools, must be and may be; None where it may be both."""
        if not self.dtypes[operands[0]].is_bool:
            known = [one for one in given if one is not None]
            is_known = function in _COMPARISONS and len(known) == 2
            return self._compare(function, known[0], known[1]) if is_known else None
        if function == "not":
            (x,) = given
            return None if x is None else Bounds(self._negate(x.high), self._negate(x.low), 1)
        if function in ("and", "or"):
            return self._combine(function, given[0], given[1])
        return None

    def _negate(self, value: Any) -> Any:
        return self.b.emit("logical_not", value)

    def _compare(self, function: str, x: Bounds, y: Bounds) -> Bounds:
        b = self.b
        if function in ("lt", "le"):
            return Bounds(b.emit(function, x.high, y.low), b.emit(function, x.low, y.high), 1)
        if function in ("gt", "ge"):
            return Bounds(b.emit(function, x.low, y.high), b.emit(function, x.high, y.low), 1)
        meets = b.emit("logical_and", b.emit("le", x.low, y.high), b.emit("le", y.low, x.high))
        is_same = b.emit("logical_and", b.emit("eq", x.low, y.high), b.emit("eq", x.high, y.low))
        if function == "eq":
            return Bounds(is_same, meets, 1)
        return Bounds(self._negate(meets), self._negate(is_same), 1)

    def _combine(self, function: str, x: Bounds | None, y: Bounds | None) -> Bounds | None:
        """Both, or one of them; of what is not known one end is."""
        if x is not None and y is not None:
            name = f"logical_{function}"
            return Bounds(self.b.emit(name, x.low, y.low), self.b.emit(name, x.high, y.high), 1)
        known = x if y is None else y
        if known is None:
            return None
        unknown = self.arithmetic.constant(function == "or", dt.bool_)
        return Bounds(unknown, known.high, 1) if function == "and" else Bounds(known.low, unknown, 1)


def may_skip(b: Builder, lines: Lines, captures: Sequence[Any], shape: Shape) -> Any:
    """Whether a block may be seen: bools [batch, heads, blocks of queries, blocks of keys]; None where all may."""
    if not lines:
        return None
    found = BlockAnalysis(b, lines, captures, shape).bounds(FIRST + len(lines) - 1)
    return None if found is None else found.high


def key_ranges(b: Builder, lines: Lines, captures: Sequence[Any], shape: Shape) -> tuple[Any, Any] | None:
    """For each block of queries where the keys that one of them may see begin, and where they end.

    Both are i64 [batch, heads, blocks], with 1 for a batch or heads that the mask does not ask for. None where the
    analysis hides nothing.
    """
    return _ranges(b, may_skip(b, lines, captures, shape), shape, by_keys=False)


def query_ranges(b: Builder, lines: Lines, captures: Sequence[Any], shape: Shape) -> tuple[Any, Any] | None:
    """The same for each block of keys, of the queries that may see one of them."""
    return _ranges(b, may_skip(b, lines, captures, shape), shape, by_keys=True)


def _ranges(b: Builder, seen: Any, shape: Shape, *, by_keys: bool) -> tuple[Any, Any] | None:
    if seen is None:
        return None
    own, other = (3, 2) if by_keys else (2, 3)
    counts = [dim.ceildiv(BLOCK) for dim in shape[2:]]
    batch, heads = b.type_of(seen).shape[:2]
    wide: Shape = (batch, heads, counts[0], counts[1])
    seen = b.emit("broadcast_to", seen, shape=wide)
    at = b.emit("iota", shape=wide, axis=other, dtype=dt.i64)
    at = b.emit("mul", at, constant(b, BLOCK, dt.i64))
    size, how = shape[other], {"axes": (other,), "keepdims": False, "identity": True}
    first = b.emit("min", b.emit("where", seen, at, size_value(b, size)), **how)
    end = b.emit("add", at, constant(b, BLOCK, dt.i64))
    end = b.emit("max", b.emit("where", seen, end, constant(b, 0, dt.i64)), **how)
    rows: Shape = (batch, heads, counts[own - 2])
    # Of no keys at all both are the identities of their reductions.
    first = b.emit("minimum", b.emit("reshape", first, shape=rows), size_value(b, size))
    end = b.emit("clamp", b.emit("reshape", end, shape=rows), constant(b, 0, dt.i64), size_value(b, size))
    return first, end
