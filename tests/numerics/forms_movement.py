"""Forms of ops that move elements: views, assemblies, creation, reading and writing by index, sorting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.samples import sample_dtype
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.numerics.forms import (
    CUBE,
    FULL,
    LINE,
    MATRIX,
    PAIRS,
    Attributes,
    Form,
    Operand,
    Sizes,
    Values,
    constantly,
    everything,
    named,
    numbers,
)

ZERO, ONE = Dim.constant(0), Dim.constant(1)
X = (Operand(("A", "B")),)
XYZ = (Operand(("A", "B", "C")),)


def _with(**more: int) -> tuple[Sizes, ...]:
    """The twenty-one matrices, with further sizes."""
    return tuple({**sizes, **more} for sizes in MATRIX)


def _shaped(*pick: Callable[[Mapping[str, Dim]], Any]) -> Attributes:
    return lambda dims, dtype: {"shape": tuple(Dim.of(choose(dims)) for choose in pick)}


def reshape(spec: OpSpec, dtype: DType) -> list[Form]:
    """Flattened, cut, turned without moving anything, with dims of 1."""
    forms = [
        Form("flat", X, MATRIX, _shaped(lambda d: d["A"] * d["B"])),
        Form("turned", X, MATRIX[::2], _shaped(lambda d: d["B"], lambda d: d["A"])),
    ]
    if dtype.name == sample_dtype(spec):
        forms += [
            Form("ones", X, MATRIX[::3], _shaped(lambda d: d["A"], lambda d: 1, lambda d: d["B"], lambda d: 1)),
            Form("cut", (Operand(("A", 6)),), LINE, _shaped(lambda d: d["A"], lambda d: 2, lambda d: 3)),
            Form("merged", XYZ, CUBE, _shaped(lambda d: d["A"] * d["B"], lambda d: d["C"])),
        ]
    return forms


def transpose(spec: OpSpec, dtype: DType) -> list[Form]:
    """Turned in every dtype; other orders in one."""
    forms = [Form("turned", X, MATRIX, constantly(axes=(1, 0)))]
    if dtype.name == sample_dtype(spec):
        forms += [Form(f"cube {axes}", XYZ, CUBE, constantly(axes=axes)) for axes in ((2, 0, 1), (0, 2, 1), (1, 0, 2))]
        heads = (Operand(("A", "B", "C", "D")),)
        rows = ((1, 2, 3, 5), (2, 7, 4, 33), (2, 0, 3, 4), (3, 5, 8, 16))
        forms.append(Form("heads", heads, named("ABCD", *rows), constantly(axes=(0, 2, 1, 3))))
    return forms


def prefetch(spec: OpSpec, dtype: DType) -> list[Form]:
    """A matrix as it is."""
    return [Form("near", X, MATRIX), *([Form("cube", XYZ, CUBE)] if dtype.name == sample_dtype(spec) else [])]


def broadcast_to(spec: OpSpec, dtype: DType) -> list[Form]:
    """Repeated along a new axis, along one of 1, and from a scalar."""
    like = Operand(("A", "B"), "bool", passed=False)
    shape = _shaped(lambda d: d["A"], lambda d: d["B"])
    forms = [Form("rows", (Operand(("B",)), like), MATRIX, shape)]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("columns", (Operand(("A", 1)), like), MATRIX[::2], shape))
        forms.append(Form("number", (Operand(()), like), MATRIX[::2], shape))
    return forms


def expand_dims(spec: OpSpec, dtype: DType) -> list[Form]:
    """New dims in front, inside and behind."""
    return [
        Form("front", X, MATRIX, constantly(axes=(0,))),
        Form("inside and behind", X, MATRIX[::5], constantly(axes=(1, 3))),
    ]


def squeeze(spec: OpSpec, dtype: DType) -> list[Form]:
    """Dims of 1 gone from the front, the inside and the end."""
    return [
        Form("front", (Operand((1, "A", "B")),), MATRIX, constantly(axes=(0,))),
        Form("inside and behind", (Operand(("A", 1, "B", 1)),), MATRIX[::5], constantly(axes=(1, 3))),
    ]


def _sliced(
    start: Callable[[Dim, Dim], tuple[Any, Any]], stop: Callable[[Dim, Dim], tuple[Any, Any]], step: tuple[int, int]
) -> Attributes:
    def attributes(dims: Mapping[str, Dim], dtype: DType) -> Mapping[str, Any]:
        a, b = dims["A"], dims["B"]
        return {"start": tuple(map(Dim.of, start(a, b))), "stop": tuple(map(Dim.of, stop(a, b))), "step": step}

    return attributes


def cut(spec: OpSpec, dtype: DType) -> list[Form]:
    """Slices: from inside, by steps, backwards, and of nothing."""
    inside = named("AB", *(pair for pair in PAIRS if pair[0] >= 2 and pair[1] >= 3))
    forms = [
        Form("steps", X, MATRIX, _sliced(lambda a, b: (0, 0), lambda a, b: (a, b), (2, 3))),
        Form("inside", X, inside, _sliced(lambda a, b: (1, 2), lambda a, b: (a, b), (1, 1))),
    ]
    if dtype.name == sample_dtype(spec):
        back = _sliced(lambda a, b: (a - 1, b - 1), lambda a, b: (-1, -1), (-1, -2))
        forms.append(Form("back", X, named("AB", *FULL), back))
        forms.append(Form("nothing", X, inside, _sliced(lambda a, b: (1, 0), lambda a, b: (1, b), (1, 1))))
    return forms


def flip(spec: OpSpec, dtype: DType) -> list[Form]:
    """Either axis and both."""
    return [Form(f"axes {axes}", X, MATRIX if axes == (1,) else MATRIX[::4], constantly(axes=axes))
            for axes in ((1,), (0,), (0, 1))]  # fmt: skip


def roll(spec: OpSpec, dtype: DType) -> list[Form]:
    """Forwards, backwards, and further than the axis is long."""
    return [
        Form("forwards", X, MATRIX, constantly(shifts=(2,), axes=(1,))),
        Form("both", X, MATRIX[::4], constantly(shifts=(-9, 30), axes=(0, 1))),
    ]


def tile(spec: OpSpec, dtype: DType) -> list[Form]:
    """Several times along each axis."""
    return [
        Form("both", X, MATRIX, constantly(reps=(2, 3))),
        Form("none", X, MATRIX[::6], constantly(reps=(0, 1))),
    ]


def repeat(spec: OpSpec, dtype: DType) -> list[Form]:
    """Each element of an axis several times."""
    return [
        Form("columns", X, MATRIX, constantly(repeats=3, axis=1)),
        Form("rows", X, MATRIX[::4], constantly(repeats=2, axis=0)),
    ]


def split(spec: OpSpec, dtype: DType) -> list[Form]:
    """In two and three, one of them empty."""
    wide = named("AB", *((a, b + 2) for a, b in PAIRS))
    return [
        Form("in two", X, wide, lambda dims, dtype: {"sizes": (Dim.of(2), dims["B"] - 2), "axis": 1}),
        Form("in three", (Operand(("A", 5)),), LINE, constantly(sizes=tuple(map(Dim.of, (1, 0, 4))), axis=1)),
    ]


def diagonal(spec: OpSpec, dtype: DType) -> list[Form]:
    """Of squares, also inside others."""
    squares = named("A", *((size,) for size in (1, 0, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 61, 64, 67, 97, 127)))
    wide = named("A", (129,), (257,), (263,))
    return [
        Form("square", (Operand(("A", "A")),), (*squares, *wide)),
        Form("outer", (Operand(("A", "B", "A")),), MATRIX[:8], constantly(axis1=0, axis2=2)),
    ]


def concat(spec: OpSpec, dtype: DType) -> list[Form]:
    """Along rows and columns, of two and of three."""
    rows = (Operand(("A", "B")), Operand(("C", "B")))
    columns = (Operand(("A", "B")), Operand(("A", "C")), Operand(("A", "B")))
    sizes = tuple({**one, "C": number % 5} for number, one in enumerate(MATRIX))
    return [
        Form("rows", rows, sizes, constantly(axis=0)),
        Form("columns", columns, sizes[::3], constantly(axis=1)),
    ]


def stack(spec: OpSpec, dtype: DType) -> list[Form]:
    """In front and behind."""
    return [
        Form("front", X * 2, MATRIX, constantly(axis=0)),
        Form("behind", X * 3, MATRIX[::3], constantly(axis=2)),
    ]


def pad(spec: OpSpec, dtype: DType) -> list[Form]:
    """Uneven borders of zeros and ones."""

    def widths(*sizes: int) -> tuple[Dim, ...]:
        return tuple(map(Dim.of, sizes))

    return [
        Form("uneven", X, MATRIX, constantly(low=widths(1, 0), high=widths(0, 5), value=1.0)),
        Form("all round", X, MATRIX[::4], constantly(low=widths(2, 3), high=widths(1, 32))),
    ]


LIKE = (Operand(("A", "B"), "bool", passed=False),)


def iota(spec: OpSpec, dtype: DType) -> list[Form]:
    """Positions along either axis."""

    def along(axis: int) -> Attributes:
        return lambda dims, dtype: {"shape": (dims["A"], dims["B"]), "axis": axis, "dtype": dtype}

    return [Form("rows", LIKE, MATRIX, along(0)), Form("columns", LIKE, MATRIX[::3], along(1))]


def full(spec: OpSpec, dtype: DType) -> list[Form]:
    """One value everywhere."""
    value = 1.0 if dtype.is_bool else 3.0
    return [Form("of", LIKE, MATRIX, lambda d, dtype: {"shape": (d["A"], d["B"]), "value": value, "dtype": dtype})]


def eye(spec: OpSpec, dtype: DType) -> list[Form]:
    """Diagonals inside and outside."""
    return [
        Form(f"offset {offset}", LIKE, MATRIX if not offset else MATRIX[::4], _eye(offset)) for offset in (0, 2, -3)
    ]


def _eye(offset: int) -> Attributes:
    return lambda dims, dtype: {"shape": (dims["A"], dims["B"]), "dtype": dtype, "offset": offset}


def linspace(spec: OpSpec, dtype: DType) -> list[Form]:
    """Counts are numbers of the program, so each is a program of its own."""
    counts = (0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 67, 97, 127, 257, 1021, 70001)

    def attributes(dims: Mapping[str, Dim], dtype: DType) -> Mapping[str, Any]:
        count = dims["N"].value or 0
        return {"start": -1.0, "stop": 2.0, "num": count, "dtype": dtype, "endpoint": count % 2 == 1}

    return [Form("counts", (), named("N", *((count,) for count in counts)), attributes, is_fixed=True)]


def constant(spec: OpSpec, dtype: DType) -> list[Form]:
    """Small arrays, each a program of its own."""
    rows = [(a, b) for a in (0, 1, 2, 3, 5) for b in (0, 1, 4, 7, 12) if a * b <= 64]

    def attributes(dims: Mapping[str, Dim], dtype: DType) -> Mapping[str, Any]:
        a, b = dims["A"].value or 0, dims["B"].value or 0
        return {"value": numbers(np.random.default_rng(a * 64 + b), (a, b), dtype)}

    return [Form("arrays", (), named("AB", *rows), attributes, is_fixed=True)]


def dim_size(spec: OpSpec, dtype: DType) -> list[Form]:
    """Products of sizes."""
    return [
        Form("two", LIKE, MATRIX, lambda dims, dtype: {"dims": (dims["A"], dims["B"])}),
        Form("none", LIKE, MATRIX[:2], constantly(dims=())),
    ]


def triangle(spec: OpSpec, dtype: DType) -> list[Form]:
    """Squares and others, the diagonal moved."""
    forms = [Form("square", X, MATRIX, constantly(offset=0)), Form("moved", X, MATRIX[::3], constantly(offset=-2))]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("stack", XYZ, CUBE, constantly(offset=1)))
    return forms


def _indices(low: int, high: int) -> Values:
    """Indices, some of them outside most axes."""

    def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
        return rng.integers(low, high, shape).astype(numpy_dtype(dtype))

    return values


OUTSIDE, FIRST = _indices(-9, 70), _indices(0, 1)
COUNTED = tuple(
    {"A": a, "B": b, "N": n} for (a, b), n in zip(FULL, (1, 2, 0, 5, 7, 8, 16, 31, 33, 67) * 2, strict=False)
)
MANY = (*COUNTED, {"A": 1, "B": 0, "N": 3}, {"A": 13, "B": 0, "N": 0}, {"A": 3, "B": 2, "N": 131})
"""Tables with at least one row, empty rows among them, and how many are read."""


def _index(*dims: Any, values: Values = OUTSIDE, dtype: str = "i64") -> Operand:
    return Operand(dims, dtype, values)


def take(spec: OpSpec, dtype: DType) -> list[Form]:
    """Rows and columns, by indices of several ranks and dtypes."""
    columns = tuple(sizes for sizes in MANY if sizes["B"])
    forms = [Form("rows", (*X, _index("N")), MANY)]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("columns", (*X, _index("N", 2, dtype="i32")), columns, constantly(axis=-1)))
        forms.append(Form("one", (*X, _index()), MANY[::4]))
    return forms


def embedding(spec: OpSpec, dtype: DType) -> list[Form]:
    """Tokens in lines and in batches."""
    return [Form("tokens", (*X, _index("N")), MANY), Form("batches", (*X, _index(2, "N", dtype="i32")), MANY[::4])]


def gather(spec: OpSpec, dtype: DType) -> list[Form]:
    """Elements and rows."""
    both = tuple(sizes for sizes in MANY if sizes["B"])
    return [Form("elements", (*X, _index("N", 2)), both), Form("rows", (*X, _index("N", 1)), MANY)]


def index_get(spec: OpSpec, dtype: DType) -> list[Form]:
    """Along one axis, along two together, in the middle."""
    values = OUTSIDE if spec.short_name == "index_get" else FIRST
    both = tuple(sizes for sizes in MANY if sizes["B"])
    forms = [Form("rows", (*X, _index("N", values=values)), MANY, constantly(axes=(0,), out_axis=0))]
    if dtype.name == sample_dtype(spec):
        pair = (*X, _index("N", 1, values=values), _index(3, values=values))
        forms.append(Form("both", pair, both, constantly(axes=(0, 1), out_axis=0)))
        middle = (Operand((2, "A", "B")), _index("N", values=values))
        forms.append(Form("middle", middle, MANY, constantly(axes=(1,), out_axis=1)))
    return forms


def slice_legal(spec: OpSpec, dtype: DType) -> list[Form]:
    """Half of the columns, all rows, and one of both."""

    def half(dims: Mapping[str, Dim], dtype: DType) -> dict[str, Any]:
        return {"axes": (1,), "lengths": (dims["B"] // 2,)}

    forms = [Form("half", (*X, _index(values=FIRST)), MATRIX, half)]
    if dtype.name == sample_dtype(spec):
        inside = named("AB", *(pair for pair in PAIRS if pair[0] >= 2 and pair[1] >= 2))
        pair = (*X, _index(values=_indices(0, 2)), _index(values=_indices(0, 2)))
        forms.append(Form("one of both", pair, inside, constantly(axes=(0, 1), lengths=(ONE, ONE))))
    return forms


def slice_write(spec: OpSpec, dtype: DType) -> list[Form]:
    """As many columns as there are, and one element."""
    forms = [Form("whole", (*X, *X, _index(values=FIRST)), MATRIX, constantly(axes=(1,)))]
    if dtype.name == sample_dtype(spec):
        inside = named("AB", *(pair for pair in PAIRS if pair[0] >= 2 and pair[1] >= 2))
        starts = (_index(values=_indices(0, 2)), _index(values=_indices(0, 2)))
        forms.append(Form("one", (*X, Operand((1, 1)), *starts), inside, constantly(axes=(0, 1))))
    return forms


def take_along(spec: OpSpec, dtype: DType) -> list[Form]:
    """One element for each index, along either axis."""
    values = OUTSIDE if spec.short_name == "take_along_axis" else FIRST
    rows = tuple(sizes for sizes in MANY if sizes["B"])
    return [
        Form("rows", (*X, _index("A", "N", values=values)), rows, constantly(axis=1)),
        Form("columns", (*X, _index("N", "B", values=values)), MANY, constantly(axis=0)),
    ]


def one_hot(spec: OpSpec, dtype: DType) -> list[Form]:
    """Classes inside and outside, as numbers and bools, with a depth that is free."""
    index = Operand(("A", "B"), values=_indices(0, 9) if dtype.kind == "uint" else _indices(-2, 9))
    free = (index, Operand(("C",), "bool", passed=False))
    return [
        Form("floats", (index,), MATRIX, constantly(depth=(Dim.of(7),))),
        Form("bools", (index,), MATRIX[::5], constantly(depth=(Dim.of(3),), dtype=dt.bool_)),
        Form("free", free, _with(C=5)[::3], lambda dims, dtype: {"depth": (dims["C"],), "dtype": dt.i32}),
    ]


def scatter(spec: OpSpec, dtype: DType) -> list[Form]:
    """Into rows and columns, several times at one place."""
    columns = tuple(sizes for sizes in MANY if sizes["B"])
    forms = [Form("rows", (*X, _index("N"), Operand(("N", "B"))), MANY)]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("columns", (*X, _index("N"), Operand(("A", "N"))), columns, constantly(axis=-1)))
        forms.append(Form("one", (*X, _index(), Operand(("B",))), MANY[::4]))
    return forms


def scatter_rows(spec: OpSpec, dtype: DType) -> list[Form]:
    """Every mode."""
    operands = (Operand((2, "A", "B")), Operand((2, "N", "B")), _index("N", values=FIRST))
    modes = ("set", "add", "mul", "max", "min")
    return [
        Form(mode, operands, MANY[:: 1 + 2 * (mode not in ("set", "add"))], constantly(mode=mode)) for mode in modes
    ]


def index_put(spec: OpSpec, dtype: DType) -> list[Form]:
    """Rows, columns whose dims move, and single elements; each way to combine, each mode."""
    rows, columns = (*X, Operand(("N", "B")), _index("N")), (*X, Operand(("N", "A")), _index("N"))
    forms = [Form("rows", rows, MANY, constantly(axes=(0,)))]
    if dtype.name == sample_dtype(spec):
        points = (*X, Operand(("N",)), _index("N"), _index("N"))
        forms += [
            Form("columns", columns, MANY[::2], constantly(axes=(1,), reduce="max", mode="clip")),
            Form("points", points, MANY[::2], constantly(axes=(0, 1), reduce="add")),
            Form("points, clipped", points, MANY[::2], constantly(axes=(0, 1), reduce="mul", mode="clip")),
        ]
    return forms


def sort(spec: OpSpec, dtype: DType) -> list[Form]:
    """Rows up, columns down; ties, infinities and NaN everywhere."""
    x = (Operand(("A", "B"), values=everything),)
    return [
        Form("rows", x, MATRIX, constantly(axis=1)),
        Form("columns, down", x, MATRIX[::3], constantly(axis=0, descending=True)),
    ]


def sort_rows(spec: OpSpec, dtype: DType) -> list[Form]:
    """Rows up and down."""
    x = (Operand(("A", "B"), values=everything),)
    return [Form("up", x, MATRIX), Form("down", x, MATRIX[::3], constantly(descending=True))]


def topk(spec: OpSpec, dtype: DType) -> list[Form]:
    """The largest of rows and the smallest of columns."""
    x = (Operand(("A", "B"), values=everything),)
    rows = named("AB", *((a, b + 3) for a, b in PAIRS))
    return [
        Form("rows", x, rows, constantly(axis=1, k=3)),
        Form("columns", x, named("AB", *((a + 2, b) for a, b in PAIRS[::3])), constantly(axis=0, k=2, largest=False)),
    ]


def collective(spec: OpSpec, dtype: DType) -> list[Form]:
    """Among one: what several processes would do is told by the shape rules alone."""
    return [Form("alone", X, MATRIX, constantly(axis="dp", size=(ONE,)))]
