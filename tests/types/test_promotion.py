"""Promotion: the lattice's laws and its table, weak Python scalars, and what each kind of op does with dtypes."""

from __future__ import annotations

from itertools import permutations, product

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
    reduction_identity,
    rounding_of,
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


def test_holds_agrees_with_the_ends_and_the_spacing_of_the_large_dtypes() -> None:
    for narrow, wide in product(ALL, ALL):
        if narrow.is_bool or wide.is_bool or narrow is wide:
            expected = narrow.is_bool or narrow is wide
        elif narrow.is_float:
            digits = wide.is_float and (wide.mantissa, wide.exponent)
            expected = bool(digits) and digits >= (narrow.mantissa, 0) and digits[1] >= narrow.exponent
        else:
            # Ends, and the odd numbers beside them, which need every bit.
            low, high = integer_range(narrow)
            edges = [value for value in (low, low + 1, high - 1, high) if low <= value <= high]
            if wide.is_float:
                expected = all(float_holds(wide, value) for value in edges)
            else:
                expected = integer_range(wide)[0] <= low and high <= integer_range(wide)[1]
        assert holds(wide, narrow) is expected, f"{wide} holds {narrow}"


def test_a_float_holds_integers_of_one_bit_more_than_its_mantissa() -> None:
    for mantissa in range(2, 20):
        made = DType("made", "float", mantissa + 9, exponent=8, mantissa=mantissa)
        found = {narrow: holds(made, narrow) for narrow in (i4, i8, u8, i16, u16)}
        assert found == {i4: True, i8: mantissa >= 6, u8: mantissa >= 7, i16: mantissa >= 14, u16: mantissa >= 15}


def float_holds(dtype: DType, value: int) -> bool:
    """Whether an integer has no more significant bits than a float keeps."""
    return value == 0 or (abs(value) // (value & -value)).bit_length() <= dtype.mantissa + 1


def test_what_a_conversion_does_to_values_that_the_other_dtype_lacks() -> None:
    for source, target in product(ALL, ALL):
        if target.is_bool or holds(target, source):
            expected = ""
        else:
            expected = "nearest_even" if target.is_float else "toward_zero" if source.is_float else "wrap"
        assert rounding_of(source, target) == expected, f"{source} to {target}"
    table = {
        (f32, bool_): "",
        (i32, bool_): "",
        (f32, i8): "toward_zero",
        (i32, f32): "nearest_even",
        (i32, u32): "wrap",
    }
    assert {pair: rounding_of(*pair) for pair in table} == table


def test_the_ends_of_an_integer_are_scalars_of_it_and_the_next_are_not() -> None:
    for dtype in ALL:
        if dtype.is_float:
            continue
        target = i64 if dtype.is_bool else dtype
        low, high = integer_range(target)
        assert [promote_scalar(dtype, value) for value in (low - 1, low, high, high + 1)] == [
            None,
            target,
            target,
            None,
        ]


def test_identities_change_nothing() -> None:
    for dtype in ALL:
        kinds = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
        values = np.array([0, 1] if dtype.is_bool else [1, 0, 3], numpy_dtype(dtype.compute))
        if dtype.is_float:
            values = np.append(values, np.array([-0.0, -2.0], values.dtype))
        for kind, function in kinds.items():
            identity = np.array(reduction_identity(kind, dtype)).astype(values.dtype)
            assert function(values, identity).tobytes() == values.tobytes(), f"{kind} of {dtype}"
    for kind, expected in (("all", True), ("any", False)):
        assert reduction_identity(kind, bool_) is expected
    assert [type(reduction_identity("prod", dtype)) for dtype in (bool_, i8, f32)] == [bool, int, float]
    assert [type(reduction_identity("sum", dtype)) for dtype in (bool_, i8, f32)] == [bool, int, float]


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
        (bf16, -1, bf16),
        (f32, 1 << 40, f32),
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
