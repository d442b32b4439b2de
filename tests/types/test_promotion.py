"""Promotion: the lattice's laws and its table, weak Python scalars, and what each kind of op does with dtypes."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tessera.ir.base.arrays import numpy_dtype
from tessera.types import dtype as dt
from tessera.types.dtype import (
    ALL,
    BY_NAME,
    DType,
    bf16,
    bool_,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i4,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tessera.types.promotion import (
    CLASSES,
    float_of,
    holds,
    integer_range,
    promote,
    promote_all,
    promote_scalar,
    sum_of,
)

NAMES = "f64 f32 bf16 f16 i64 i32 i16 i8 i4 u64 u32 u16 u8 bool"
TABLE = """
f64   f64 f64 f64  f64  -   f64 f64  f64  f64  -   f64 f64  f64 f64
f32   f64 f32 f32  f32  -   -   f32  f32  f32  -   -   f32  f32 f32
bf16  f64 f32 bf16 f32  -   -   f32  bf16 bf16 -   -   f32  bf16 bf16
f16   f64 f32 f32  f16  -   -   f32  f16  f16  -   -   f32  f16 f16
i64   -   -   -    -    i64 i64 i64  i64  i64  -   i64 i64  i64 i64
i32   f64 -   -    -    i64 i32 i32  i32  i32  -   i64 i32  i32 i32
i16   f64 f32 f32  f32  i64 i32 i16  i16  i16  -   i64 i32  i16 i16
i8    f64 f32 bf16 f16  i64 i32 i16  i8   i8   -   i64 i32  i16 i8
i4    f64 f32 bf16 f16  i64 i32 i16  i8   i4   -   i64 i32  i16 i4
u64   -   -   -    -    -   -   -    -    -    u64 u64 u64  u64 u64
u32   f64 -   -    -    i64 i64 i64  i64  i64  u64 u32 u32  u32 u32
u16   f64 f32 f32  f32  i64 i32 i32  i32  i32  u64 u32 u16  u16 u16
u8    f64 f32 bf16 f16  i64 i32 i16  i16  i16  u64 u32 u16  u8  u8
bool  f64 f32 bf16 f16  i64 i32 i16  i8   i4   u64 u32 u16  u8  bool
"""


def test_the_whole_table() -> None:
    for line in TABLE.strip().splitlines():
        left, *row = line.split()
        for right, joined in zip(NAMES.split(), row, strict=True):
            found = promote(BY_NAME[left], BY_NAME[right])
            assert found is (None if joined == "-" else BY_NAME[joined]), f"{left} with {right}: {found}, not {joined}"


@pytest.mark.parametrize("float8", [f8e4m3, f8e5m2])
def test_a_float8_is_promoted_with_itself_alone(float8: DType) -> None:
    assert [other for other in ALL if promote(float8, other) is not None] == [float8]


def test_promotion_commutes_and_loses_nothing() -> None:
    for a in ALL:
        for b in ALL:
            joined = promote(a, b)
            assert joined is promote(b, a)
            assert joined is None or (holds(joined, a) and holds(joined, b))


def test_promotion_is_idempotent_and_absorbs() -> None:
    for a in ALL:
        assert promote(a, a) is a
        for b in ALL:
            joined = promote(a, b)
            assert joined is None or (promote(joined, a) is joined and promote(joined, b) is joined)


def test_several_operands_have_one_common_dtype_whatever_their_order() -> None:
    for group in ((u8, i8, i32), (bf16, f16, i16), (bool_, u16, i8), (f64, i32, u32)):
        assert len({promote_all(order) for order in permutations(group)}) == 1
    assert promote_all((u8, i8, i32)) is i32
    assert promote_all((u64, i8)) is None


def test_holds_agrees_with_casting_every_value_of_the_small_dtypes() -> None:
    small = [dtype for dtype in ALL if dtype.bits <= 16 and not dtype.is_bool]
    for narrow in small:
        values = _all_values(narrow)
        for wide in ALL:
            if wide.is_bool:
                continue
            with np.errstate(all="ignore"):
                back = values.astype(numpy_dtype(wide)).astype(np.float64)
            kept = bool(np.all(back == values)) and (wide is not i4 or bool(np.all(np.abs(values + 0.5) < 8)))
            if narrow.is_float and not wide.is_float:
                kept = False
            assert holds(wide, narrow) is kept, f"{wide} holds {narrow}"


def _all_values(dtype: DType) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if dtype is i4:
        return np.arange(-8, 8, dtype=np.float64)
    bits = np.arange(1 << dtype.bits, dtype=np.uint32).astype(np.uint8 if dtype.bits == 8 else np.uint16)
    with np.errstate(invalid="ignore"):
        values = bits.view(numpy_dtype(dtype)).astype(np.float64)
    return values[np.isfinite(values)]


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        (bf16, 2, bf16),
        (bf16, 2.5, bf16),
        (f8e4m3, 0.5, f8e4m3),
        (f64, True, f64),
        (i8, 100, i8),
        (i8, 200, None),
        (u8, -1, None),
        (u64, 2**64 - 1, u64),
        (i8, 0.5, f32),
        (i32, 0.5, f32),
        (i64, 0.5, f64),
        (bool_, 1, i64),
        (bool_, True, bool_),
        (bool_, 0.5, f32),
    ],
)
def test_python_scalars_are_weak(dtype: DType, scalar: float, expected: DType | None) -> None:
    assert promote_scalar(dtype, scalar) is expected


def test_ops_with_float_answers_take_integers_to_f32_and_64_bits_to_f64() -> None:
    expected = {i64: f64, u64: f64}
    for dtype in ALL:
        assert float_of(dtype) is (dtype if dtype.is_float else expected.get(dtype, f32))


def test_integers_are_summed_in_64_bits() -> None:
    assert {dtype.name: sum_of(dtype).name for dtype in (i8, i16, i32, i64, bool_)} == dict.fromkeys(
        ("i8", "i16", "i32", "i64", "bool"), "i64"
    )
    assert {sum_of(dtype) for dtype in (u8, u16, u32, u64)} == {u64}
    assert sum_of(bf16) is bf16


def test_the_classes_of_ops() -> None:
    table = {group.name: (group.operand(i32).name, group.result(group.operand(i32)).name) for group in CLASSES}
    assert table == {
        "arithmetic": ("i32", "i32"),
        "floating": ("f32", "f32"),
        "comparison": ("i32", "bool"),
        "predicate": ("f32", "bool"),
        "logical": ("bool", "bool"),
        "bitwise": ("i32", "i32"),
        "sum": ("i32", "i64"),
        "index": ("i32", "i64"),
    }


def test_integer_ranges() -> None:
    assert integer_range(i4) == (-8, 7)
    assert integer_range(dt.u32) == (0, 2**32 - 1)
    assert integer_range(i64) == (-(2**63), 2**63 - 1)
    assert integer_range(bool_) == (0, 1)
