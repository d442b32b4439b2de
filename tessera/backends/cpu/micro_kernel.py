"""The micro-kernel of matmuls: a block of accumulators kept in registers over a run of k.

For each k it loads `vectors` registers of B, broadcasts one element of A for each of `rows` rows and multiplies them:
`rows * vectors` independent chains of multiply-adds, enough to hide their latency, for `rows + vectors` loads. Three
quarters of the registers accumulate; the others hold B and the element of A. Heights and widths below the whole block
are powers of two, so that any edge is made of a few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from tessera.ir.target.llvm.convert import compute_type
from tessera.ir.target.llvm.instructions import Index, TargetText, Value, is_float, vector
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.ir.target.llvm.vector_ops import add, fma, mul
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


@frozen
class MicroShape:
    """The register block: `rows` of `vectors` registers of `lanes` elements of an accumulator dtype."""

    dtype: DType
    lanes: int
    rows: int
    vectors: int
    unroll: int

    speed: ClassVar[int] = 1
    """Multiply-adds in the time of one of f32 with vectors."""
    packing: ClassVar[int] = 24
    """Packing an element costs about as much as so many multiply-adds."""

    @property
    def element(self) -> str:
        """The LLVM type of one accumulator."""
        return compute_type(self.dtype)

    @property
    def columns(self) -> int:
        """Columns of the block."""
        return self.vectors * self.lanes

    @property
    def heights(self) -> tuple[int, ...]:
        """Row counts there is a kernel for: the whole block, then powers of two that make up any remainder."""
        return (self.rows, *_smaller_sizes(self.rows))

    @property
    def widths(self) -> tuple[int, ...]:
        """Counts of vectors there is a kernel for: all, then powers of two for the last columns of a matrix."""
        return (self.vectors, *_smaller_sizes(self.vectors))

    def heights_of(self, rows: int | None) -> tuple[int, ...]:
        """The heights that cut a known count of rows, strips of which begin at whole blocks; all where not known."""
        if rows is None:
            return self.heights
        remainder = rows % self.rows
        return tuple(h for h in self.heights if (rows >= self.rows if h == self.rows else remainder & h))

    def widths_of(self, columns: int | None) -> tuple[int, ...]:
        """The widths that cut a known count of columns, of which strips begin at whole blocks."""
        if columns is None:
            return self.widths
        remainder = columns % self.columns
        tail = min((w for w in self.widths if w * self.lanes >= remainder), default=0) if remainder else 0
        return tuple(w for w in self.widths if w == tail or (w == self.vectors and columns >= self.columns))

    def ends_with(self, columns: int) -> bool:
        """Whether the last register of so many columns ends where they do, however few of them are computed."""
        remainder = columns % self.columns
        return not remainder or remainder in [width * self.lanes for width in self.widths]

    @staticmethod
    def of(target: TargetText, dtype: DType) -> MicroShape:
        """The block measured to be best on AVX2 and AVX-512: six rows, three quarters of the registers accumulate."""
        element = compute_type(dtype)
        lanes = target.lanes_for(element)
        if element == "i64" and not target.has_wide_multiply:
            return MicroShape(dtype, lanes, 4, 1, 1)  # such a multiplication takes several registers on its own
        vectors = target.registers // 8
        return MicroShape(dtype, lanes, 6, vectors, vectors)


def _smaller_sizes(count: int) -> list[int]:
    return [1 << bit for bit in reversed(range(count.bit_length())) if 1 << bit < count]


def multiply_add(f: FunctionText, a: Value, b: Value, c: Value) -> Value:
    """`a * b + c`: fused for floats, wrapping for integers."""
    return fma(f, a, b, c) if is_float(a.type) else add(f, mul(f, a, b), c)


@frozen
class MicroForm:
    """How a kernel finds its operands: as packed panels, but for what is said here.

    `rhs_rows` are rows any distance apart. Of rows of the result whole registers are touched, or where
    it `is_cut`, as many elements as a call gives.
    """

    rhs_rows: bool = False
    is_cut: bool = False


def outline_micro_kernel(module: ModuleText, shape: MicroShape, height: int, vectors: int, form: MicroForm) -> Value:
    """A pointer to the outlined kernel of `height` rows and `vectors` registers, for `call_micro_kernel`.

    It computes `out[i, :] = (accumulate ? out[i, :] : 0) + sum over k of lhs[i, k] * rhs[k, :]`. A panel of `lhs` has
    `height` elements for each k, one of `rhs` `vectors * lanes`; rows of `out` are any distance apart.
    """
    arguments = [("ptr", "lhs"), ("i64", "across"), ("i64", "along"), ("ptr", "rhs"), ("i64", "k"), ("ptr", "out")]
    arguments += [("i64", "stride"), ("i1", "accumulate")]
    arguments += [("i64", "rhs_stride")] if form.rhs_rows else []
    arguments += [("i64", "end")] if form.is_cut else []
    key, name = ("micro", shape, height, vectors, form), f"micro{height}x{vectors}"
    symbol = module.outline(key, name, arguments, lambda g: _write_micro(g, shape, height, vectors, form), shared=True)
    return Value("ptr", f"@{symbol}")


@frozen
class LhsRows:
    """Rows of A for a register block: where they begin, how far apart they are, and their elements (1 and a row)."""

    base: Value
    across: Index
    along: Index = 1


def call_micro_kernel(
    f: FunctionText,
    kernel: Value,
    lhs: LhsRows,
    rhs: Value,
    k: Index,
    out: Value,
    out_stride: Index,
    accumulate: Value,
    rhs_stride: Index | None = None,
    end: Index | None = None,
) -> None:
    """Call a kernel of `outline_micro_kernel`: `rhs_stride` exactly where B is in rows, `end` for one that is cut.

    Strides count elements, and so does `end`, those from `out` on that a row has.
    """
    left = [lhs.base, f.index(lhs.across), f.index(lhs.along)]
    args = [*left, rhs, f.index(k), out, f.index(out_stride), accumulate]
    f.call_pointer(kernel, [*args, *(f.index(one) for one in (rhs_stride, end) if one is not None)])


@frozen
class FirstRows:
    """The rows of A, up to a register block, that B is multiplied by while it is packed.

    Packing has few instructions beside loads and stores, and a multiplication few of those: together they take little
    longer than the multiplication alone. Rows that a block has beyond `rows` repeat the last, and store what it stores.
    """

    lhs: Value
    across: Index
    out: Value
    stride: Index
    rows: Value
    accumulate: Value

    COUNT: ClassVar[int] = 6
    """How many arguments of an outlined function they are."""

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """What an outlined function takes for them."""
        names = (("ptr", "lhs"), ("i64", "across"), ("ptr", "out"), ("i64", "stride"), ("i64", "left"))
        return [*names, ("i1", "accumulate")]

    def at(self, f: FunctionText, element: str, column: Index, k: Index, accumulate: Value) -> FirstRows:
        """The same from a column of the result and a column of A on."""
        lhs, out = f.gep(self.lhs, k, element), f.gep(self.out, column, element)
        return FirstRows(lhs, self.across, out, self.stride, self.rows, accumulate)

    def values(self, f: FunctionText) -> list[Value]:
        """The arguments of a call."""
        return [self.lhs, f.index(self.across), self.out, f.index(self.stride), self.rows, self.accumulate]

    @staticmethod
    def of(arguments: list[Value]) -> FirstRows:
        """The rows that an outlined function was given."""
        lhs, across, out, stride, rows, accumulate = arguments
        return FirstRows(lhs, across, out, stride, rows, accumulate)


class FirstBlock:
    """The register block of `FirstRows` at one panel: its accumulators over a run of k, from memory and back."""

    def __init__(self, g: FunctionText, shape: MicroShape, vectors: int, first: FirstRows) -> None:
        self.g, self.shape, element = g, shape, shape.element
        last = g.sub(first.rows, 1)
        rows = [g.smin(row, last) for row in range(shape.rows)]
        lines = [g.gep(first.out, g.mul(row, first.stride), element) for row in rows]
        self.addresses = [g.gep(line, v * shape.lanes, element) for line in lines for v in range(vectors)]
        self.lefts = [g.opaque(g.gep(first.lhs, g.mul(row, first.across), element)) for row in rows]
        none: list[Value | None] = [None] * len(self.addresses)
        zeros = [g.const(element, 0, shape.lanes)] * len(self.addresses)
        type_ = vector(element, shape.lanes)
        self.start = g.if_(first.accumulate, lambda: _load_all(g, self.addresses, none, type_), lambda: zeros)

    def step(self, at: Value, values: Sequence[Value], accs: Sequence[Value]) -> list[Value]:
        """The accumulators with row `at` of B added."""
        g, result = self.g, list[Value]()
        for left in self.lefts:
            a = g.splat(g.load(g.gep(left, at, self.shape.element), self.shape.element), self.shape.lanes)
            result += [multiply_add(g, a, value, accs[len(result) + v]) for v, value in enumerate(values)]
        return result

    def store(self, accs: Sequence[Value]) -> None:
        """Write the accumulators back."""
        for acc, address in zip(accs, self.addresses, strict=True):
            self.g.store(acc, address)


def multiply_panel(f: FunctionText, shape: MicroShape, first: FirstRows, panel: Value, width: Index, k: Value) -> None:
    """Multiply a panel of any width, that is packed, by the first rows."""
    arguments = [("ptr", "panel"), ("i64", "k"), *first.arguments]

    def write(g: FunctionText, vectors: int) -> None:
        panel, k, *others = g.arguments
        block = FirstBlock(g, shape, vectors, FirstRows.of(others))

        def step(at: Value, accs: list[Value]) -> list[Value]:
            line = g.gep(panel, g.mul(at, vectors * shape.lanes), shape.element)
            starts = [g.gep(line, v * shape.lanes, shape.element) for v in range(vectors)]
            return block.step(at, [g.load(start, vector(shape.element, shape.lanes)) for start in starts], accs)

        block.store(g.loop(0, k, 1, step, block.start))
        g.ret()

    for vectors in shape.widths:

        def call(vectors: int = vectors) -> None:
            key = ("first rows", shape, vectors)
            name = f.module.outline(key, "first_rows", arguments, lambda g: write(g, vectors), shared=True)
            f.call(name, [panel, k, *first.values(f)])

        f.if_(f.icmp("eq", width, vectors * shape.lanes), call)


def _write_micro(g: FunctionText, shape: MicroShape, height: int, vectors: int, form: MicroForm) -> None:
    lhs, across, along, rhs, k, out, stride, accumulate, *others = g.arguments
    end = others.pop() if form.is_cut else None
    rhs_stride: Index = others[0] if others else vectors * shape.lanes
    element, type_ = shape.element, vector(shape.element, shape.lanes)
    rows = _lines(g, out, stride, height, element)
    addresses = [g.gep(row, v * shape.lanes, element) for row in rows for v in range(vectors)]
    held = _cut_lanes(g, end, shape.lanes, vectors) * height
    zeros = [g.const(element, 0, shape.lanes)] * len(addresses)
    start = g.if_(accumulate, lambda: _load_all(g, addresses, held, type_), lambda: zeros)
    # One index runs along all rows of A: their starts stay in registers, each on its own.
    lefts = [g.opaque(left) for left in _lines(g, lhs, across, height, element)]

    def step(at: Value, rhs: Value, accs: list[Value]) -> list[Value]:
        line = [g.load(g.gep(rhs, v * shape.lanes, element), type_) for v in range(vectors)]
        result: list[Value] = []
        for i in range(height):
            a = g.splat(g.load(g.gep(lefts[i], at, element), element), shape.lanes)
            result += [multiply_add(g, a, line[v], accs[i * vectors + v]) for v in range(vectors)]
        return result

    def steps(count: int, values: list[Value]) -> list[Value]:
        at, right, *accs = values
        for _ in range(count):
            accs = step(at, right, accs)
            at, right = g.add(at, along), g.gep(right, rhs_stride, element)
        return [at, right, *accs]

    def prefetch(line: Value) -> None:
        for v in range(vectors):
            g.prefetch(g.gep(line, v * shape.lanes, element), write=True)

    values = [g.const_i(0), rhs, *start]
    if height == shape.rows and vectors == shape.vectors and shape.unroll > 1:
        values = _unrolled_loop(g, k, shape.unroll, steps, _Below(rows[-1], stride, height, prefetch), values)
    else:
        values = g.loop(0, k, 1, lambda i, values: steps(1, values), values)
    _store_all(g, values[2:], addresses, held)
    g.ret()


def _cut_lanes(g: FunctionText, end: Value | None, lanes: int, vectors: int) -> list[Value | None]:
    """For each register of a row the lanes that belong to it; None where all do."""
    return [None if end is None else g.lane_mask(g.sub(end, v * lanes), lanes) for v in range(vectors)]


def _load_all(g: FunctionText, addresses: list[Value], held: list[Value | None], type_: str) -> list[Value]:
    return [
        g.load(address, type_) if mask is None else g.masked_load(address, type_, mask)
        for address, mask in zip(addresses, held, strict=True)
    ]


def _store_all(g: FunctionText, values: list[Value], addresses: list[Value], held: list[Value | None]) -> None:
    for value, address, mask in zip(values, addresses, held, strict=True):
        if mask is None:
            g.store(value, address)
        else:
            g.masked_store(value, address, mask)


def _lines(g: FunctionText, first: Value, apart: Index, count: int, element: str) -> list[Value]:
    lines = [first]
    for _ in range(count - 1):
        lines.append(g.gep(lines[-1], apart, element))
    return lines


@frozen
class _Below:
    """The rows of the block that comes next: as many, as far apart, after the last row of this one."""

    last: Value
    stride: Index
    count: int
    prefetch: Callable[[Value], None]
    """Prefetches a row."""


def _unrolled_loop(
    g: FunctionText,
    k: Value,
    unroll: int,
    steps: Callable[[int, list[Value]], list[Value]],
    below: _Below,
    values: list[Value],
) -> list[Value]:
    """Several k in an iteration. The first iterations prefetch a row each of the block below, which comes next.

    Its cache lines then arrive by the time it begins; asked for all together they would hold up everything else.
    """
    element = values[-1].element
    first_row = g.gep(below.last, below.stride, element)

    def iteration(i: Value, values: list[Value]) -> list[Value]:
        below.prefetch(values[0])
        return [g.gep(values[0], below.stride, element), *steps(unroll, values[1:])]

    whole = g.round_down(k, unroll)
    first = g.smin(whole, unroll * below.count)
    values = g.loop(0, first, unroll, iteration, [first_row, *values])[1:]
    values = g.loop(first, whole, unroll, lambda i, values: steps(unroll, values), values)
    return g.loop(whole, k, 1, lambda i, values: steps(1, values), values)
