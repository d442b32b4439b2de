"""Forms of the ops that narrow: each format and way to round, scales for channels and for tiles, blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array
from tessera.ir.base.spec import OpSpec
from tessera.types import dtype as dt
from tessera.types.dtype import BY_NAME, DType
from tests.numerics.forms import MATRIX, Form, Operand, constantly, everything, named, numbers

FORMATS = ("bf16", "f16", "f8e4m3", "f8e5m2", "tf32", "f4e2m1", "i8", "i4", "u8")
WAYS: tuple[dict[str, str], ...] = ({}, {"rounding": "toward_zero"}, {"saturation": "saturate"})


def _few(dtype: DType) -> tuple[str, ...]:
    """All formats from f32; from what is narrower the one that is narrower still."""
    return FORMATS if dtype is dt.f32 else ("f8e4m3", "i8")


def round_to(spec: OpSpec, dtype: DType) -> list[Form]:
    """Every format, each in one of the ways and on all sizes in one."""
    forms: list[Form] = []
    for number, format in enumerate(_few(dtype)):
        way: dict[str, Any] = {"format": format, **WAYS[number % 3]}
        sizes = MATRIX if number == 0 else MATRIX[number % 3 :: 3]
        name = " ".join(way.values())
        forms.append(Form(name, (Operand(("A", "B"), values=everything),), sizes, constantly(**way)))
    return forms


def _bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(0, 1 << 32, shape, dtype=np.uint32)


def round_stochastic(spec: OpSpec, dtype: DType) -> list[Form]:
    """Bits for each element."""
    operands = (Operand(("A", "B"), values=everything), Operand(("A", "B"), "u32", _bits))
    return [
        Form(name, operands, MATRIX if number == 0 else MATRIX[::4], constantly(format=name))
        for number, name in enumerate(_few(dtype)[:5])
    ]


def _scales(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.uniform(0.01, 0.5, shape).astype(np.float32)


def quantize(spec: OpSpec, dtype: DType) -> list[Form]:
    """A scale for each column, for each row, and for all; to integers and to floats."""
    x = Operand(("A", "B"), values=numbers)
    forms: list[Form] = []
    for number, (name, dims) in enumerate((("columns", (1, "B")), ("rows", ("A", 1)), ("one", ()))):
        target = BY_NAME[("i8", "f8e4m3", "i4")[number]]
        sizes = MATRIX if number == 0 else MATRIX[::4]
        operands = (x, Operand(dims, "f32", _scales))
        forms.append(Form(name, operands, sizes, constantly(dtype=target, saturation="saturate")))
    return forms


def dequantize(spec: OpSpec, dtype: DType) -> list[Form]:
    """Columns and rows, to two dtypes."""
    x = Operand(("A", "B"), values=everything)
    columns, rows = Operand((1, "B"), "f32", _scales), Operand(("A", 1), "f32", _scales)
    return [
        Form("columns", (x, columns), MATRIX, constantly(dtype=dt.f32)),
        Form("rows", (x, rows), MATRIX[::4], constantly(dtype=dt.bf16)),
    ]


def round_blocks(spec: OpSpec, dtype: DType) -> list[Form]:
    """Blocks along the last axis and along the first."""
    rows = [(0, 16), (1, 16), (2, 32), (3, 48), (7, 16), (13, 64), (31, 32), (701, 96), (5, 160), (64, 16)]
    last = (Operand(("A", "B"), values=numbers),)
    first = (Operand(("B", "A"), values=numbers),)
    return [
        Form("last", last, named("AB", *rows), constantly(axis=1)),
        Form("first", first, named("AB", *rows), constantly(axis=0)),
    ]
