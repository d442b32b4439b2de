"""Forms of ops on one element at a time, of reductions, and of running folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.samples import SPECIAL_VALUES, retype, sample_dtype
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range
from tests.numerics.forms import (
    CUBE,
    LINE,
    MATRIX,
    SCALAR,
    Form,
    Operand,
    Values,
    constantly,
    everything,
    named,
    numbers,
    positive,
    turn_of,
)
from tests.scalar_table import FUNCTION_OF_OP

Forms: TypeAlias = "Callable[[OpSpec, DType], list[Form]]"

BROADCAST = frozenset({"add", "bitwise_and"})
"""Ops that try every way to broadcast in each of their dtypes; the others in one."""


def _values_of(spec: OpSpec, dtype: DType) -> Values:
    function = FUNCTION_OF_OP.get(spec.short_name)
    samples = "tame" if spec.short_name == "gelu" else "everything" if function is None else function.samples
    if samples == "positive":
        return positive
    return numbers if samples == "tame" and dtype.is_float else everything


def unary(spec: OpSpec, dtype: DType) -> list[Form]:
    """Matrices in every dtype; other ranks in one."""
    values = _values_of(spec, dtype)
    forms = [Form("matrix", (Operand(("A", "B"), values=values),), MATRIX)]
    if dtype.name == sample_dtype(spec):
        for name, letters, sizes in (("scalar", "", SCALAR), ("line", "A", LINE), ("cube", "ABC", CUBE)):
            forms.append(Form(name, (Operand(tuple(letters), values=values),), sizes))
    return forms


def gelu(spec: OpSpec, dtype: DType) -> list[Form]:
    """Both ways to compute it."""
    tanh = Form("tanh", (Operand(("A", "B")),), MATRIX[::3], constantly(approximate="tanh"))
    return [*unary(spec, dtype), tanh]


_STRETCHED: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("row", ("A", "B"), ("B",)),
    ("outer", ("A", 1), (1, "B")),
    ("number", ("A", "B"), ()),
    ("column", ("A", "B"), ("A", 1)),
)


def _exponents(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Whole and half numbers, some negative."""
    if dtype.is_float:
        return (rng.integers(-6, 7, shape) / 2).astype(numpy_dtype(dtype))
    low, high = integer_range(dtype)
    return rng.integers(max(low, -3), min(high, 70), shape).astype(numpy_dtype(dtype))


def _counts(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Shift counts inside the width, and outside on both ends."""
    low, _ = integer_range(dtype)
    return rng.integers(max(low, -3), dtype.bits + 3, shape).astype(numpy_dtype(dtype))


def _bases(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return positive(rng, shape, dtype) if dtype.is_float else numbers(rng, shape, dtype)


def binary(spec: OpSpec, dtype: DType) -> list[Form]:
    """Equal shapes in every dtype; other ranks and broadcasting in one, or in all where it is cheap to."""
    left = right = _values_of(spec, dtype)
    if spec.short_name in FUNCTION_OF_OP and FUNCTION_OF_OP[spec.short_name].samples == "powers":
        left, right = _bases, _exponents
    if spec.short_name in ("shift_left", "shift_right"):
        right = _counts

    def form(name: str, x: tuple[Any, ...], y: tuple[Any, ...], sizes: Any) -> Form:
        return Form(name, (Operand(x, values=left), Operand(y, values=right)), sizes)

    forms = [form("matrix", ("A", "B"), ("A", "B"), MATRIX)]
    is_sample = dtype.name == sample_dtype(spec)
    if is_sample:
        forms.append(form("scalar", (), (), SCALAR))
        forms.append(form("line", ("A",), ("A",), LINE))
        forms.append(form("cube", ("A", "B", "C"), ("B", 1), CUBE))
    if is_sample or spec.short_name in BROADCAST:
        forms += [form(name, x, y, MATRIX[::4]) for name, x, y in _STRETCHED]
    return forms


def _ternary(first: str) -> Forms:
    def forms(spec: OpSpec, dtype: DType) -> list[Form]:
        def form(name: str, *dims: tuple[Any, ...], sizes: Any = MATRIX) -> Form:
            a, b, c = dims
            return Form(name, (Operand(a, first), Operand(b), Operand(c)), sizes)

        found = [form("matrix", ("A", "B"), ("A", "B"), ("A", "B"))]
        if dtype.name == sample_dtype(spec):
            found.append(form("scalar", (), (), (), sizes=SCALAR))
            found.append(form("line", ("A",), ("A",), (), sizes=LINE))
            found.append(form("outer", ("A", 1), (1, "B"), ("A", "B"), sizes=MATRIX[::4]))
            found.append(form("rows", ("B",), ("A", "B"), ("A", 1), sizes=MATRIX[::4]))
        return found

    return forms


where = _ternary("bool")
clamp = _ternary("T")


def _edges(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Numbers near the ends of every integer dtype among ordinary ones."""
    made = everything(rng, shape, dtype)
    if not dtype.is_float:
        return made
    powers = [2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
    ends = [*SPECIAL_VALUES, *powers, *(-power for power in powers), 7.5, -8.6, 127.5, -128.9, 255.9, -0.9]
    flat = made.reshape(-1)
    at = rng.permutation(flat.size)[: flat.size // 3]
    flat[at] = retype(rng.choice(np.array(ends, np.float32), at.size), dtype)
    return flat.reshape(shape)


def cast(spec: OpSpec, dtype: DType) -> list[Form]:
    """To every dtype: all sizes to one, some to the others."""
    forms: list[Form] = []
    for number, target in enumerate(dt.ALL):
        sizes = MATRIX if number == 0 else MATRIX[number % 3 :: 3]
        forms.append(Form(f"to {target}", (Operand(("A", "B"), values=_edges),), sizes, constantly(dtype=target)))
    return forms


def bitcast(spec: OpSpec, dtype: DType) -> list[Form]:
    """From each dtype to each other of its width."""
    able = [own for own in dt.ALL if not own.is_bool and own is not dt.i4]
    forms: list[Form] = []
    for source in able:
        for target in able:
            if source.bits == target.bits:
                sizes = MATRIX if source is dt.f32 else MATRIX[::5]
                attributes = constantly(dtype=target, source=source)
                forms.append(Form(f"{source} as {target}", (Operand(("A", "B"), source.name),), sizes, attributes))
    return forms


def cast_like(spec: OpSpec, dtype: DType) -> list[Form]:
    """To the dtype of another operand."""
    forms: list[Form] = []
    for target in (dt.f32, dt.bf16, dt.i32, dt.u8):
        operands = (Operand(("A", "B"), values=_edges), Operand(("C",), target.name))
        rows = [(*pair.values(), 3) for pair in MATRIX]
        forms.append(Form(f"to {target}", operands, named("ABC", *rows)))
    return forms


def _axes(*axes: int, keepdims: bool = False, **more: Any) -> Any:
    return constantly(axes=axes, keepdims=keepdims, **more)


def reduction(spec: OpSpec, dtype: DType) -> list[Form]:
    """Over rows in every dtype, over columns in every other one, over several axes and other ranks in one."""
    is_extreme = spec.short_name in ("max", "min", "argmax", "argmin")
    values = everything if is_extreme else numbers
    matrix = (Operand(("A", "B"), values=values),)
    is_first = dtype.name == sample_dtype(spec)
    forms = [Form("rows", matrix, MATRIX, _axes(1))]
    if is_first or turn_of(spec, dtype) % 2:
        forms.append(Form("columns", matrix, MATRIX[::2], _axes(0, keepdims=True)))
    if is_first:
        cube = (Operand(("A", "B", "C"), values=values),)
        forms += [
            Form("all", matrix, MATRIX, _axes(0, 1)),
            Form("line", (Operand(("A",), values=values),), LINE, _axes(0)),
            Form("scalar", (Operand((), values=values),), SCALAR, _axes()),
            Form("middle", cube, CUBE, _axes(1)),
            Form("outer", cube, CUBE, _axes(0, 2)),
            Form("kept", cube, CUBE, _axes(1, 2, keepdims=True)),
        ]
    return [_with_elements(form) for form in forms] if is_extreme else forms


def _with_elements(form: Form) -> Form:
    """The form without sizes that reduce nothing, which extremes have no answer for."""
    axes: tuple[int, ...] = form.attributes({}, dt.f32)["axes"]
    return replace(form, sizes=tuple(one for one in form.sizes if all(form.shapes(one)[0][axis] for axis in axes)))


def spread(spec: OpSpec, dtype: DType) -> list[Form]:
    """Variances: also with a correction."""
    matrix = (Operand(("A", "B")),)
    return [*reduction(spec, dtype), Form("unbiased", matrix, MATRIX[::3], _axes(1, correction=1))]


def norm(spec: OpSpec, dtype: DType) -> list[Form]:
    """Norms of every order."""
    matrix = (Operand(("A", "B")),)
    orders = (("sums", 1.0), ("largest", float("inf")), ("count", 0.0), ("cubes", 3.0), ("inverse", -1.5))
    return [
        *reduction(spec, dtype),
        *(Form(name, matrix, MATRIX[::3], _axes(1, order=order)) for name, order in orders),
    ]


def cumulative(spec: OpSpec, dtype: DType) -> list[Form]:
    """Along either axis, from either end."""
    kinds: tuple[dict[str, str], ...] = ({},)
    if spec.short_name == "cumulative":
        kinds = tuple({"kind": kind} for kind in ("sum", "prod", "max", "min"))
    forms: list[Form] = []
    for kind in kinds:
        label, matrix = kind.get("kind", ""), (Operand(("A", "B")),)
        forms.append(Form(f"{label} rows", matrix, MATRIX, constantly(axis=1, **kind)))
        forms.append(Form(f"{label} columns, back", matrix, MATRIX[::3], constantly(axis=0, reverse=True, **kind)))
    if dtype.name == sample_dtype(spec):
        cube = (Operand(("A", "B", "C")),)
        forms.append(Form("middle", cube, CUBE, constantly(axis=1, **kinds[0])))
        forms.append(Form("line", (Operand(("A",)),), LINE, constantly(axis=0, **kinds[0])))
    return forms
