"""Plain values and their text: print then parse is the identity, bit for bit."""

from __future__ import annotations

import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.literal import LiteralError, normalize, parse_value, text_of
from tessera.types import dtype as dtypes
from tessera.types.dim import Dim
from tessera.types.shape import TensorType

names = st.sampled_from(["B", "S", "H", "D_h", "n0"])
dims = st.recursive(
    st.integers(0, 99).map(Dim.of) | names.map(Dim.symbol),
    lambda inner: st.tuples(inner, inner, st.sampled_from("+-*/%")).map(
        lambda t: {"+": t[0] + t[1], "-": t[0] - t[1], "*": t[0] * t[1], "/": t[0] // t[1], "%": t[0] % t[1]}[t[2]]
    ),
    max_leaves=4,
)
tensor_types = st.builds(TensorType, st.lists(dims, max_size=3).map(tuple), st.sampled_from(dtypes.ALL))
floats = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]) | st.floats()
scalars = (
    st.none() | st.booleans() | st.integers() | floats | st.text() | dims | st.sampled_from(dtypes.ALL) | tensor_types
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(min_size=1), inner), max_leaves=6
)


def bits(value: Any) -> Any:
    """The value with floats as their bits, so that -0.0, nan and 1 are told apart."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, tuple):
        return tuple(bits(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return (type(value), value)


@given(values)
def test_print_then_parse_is_the_identity(value: Any) -> None:
    assert bits(parse_value(text_of(value))) == bits(value)


@given(st.lists(dims).map(tuple))
def test_dims_are_written_bare_where_the_kind_is_known(value: tuple[Dim, ...]) -> None:
    assert parse_value(text_of(value, "dims"), "dims") == value
    assert parse_value(text_of((value, value), "maps"), "maps") == (value, value)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int64", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (5, 7)])
def test_arrays_keep_every_bit(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = array.view(dtype).reshape(shape)
    again = parse_value(text_of(array), "array")
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float32])
def test_constants_that_are_not_finite_survive(dtype: Any) -> None:
    array = np.array([1.5, np.inf, -np.inf, np.nan, -0.0]).astype(dtype)
    assert parse_value(text_of(array), "array").tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint64, np.bool_])
def test_integers_of_any_size_come_back(dtype: Any) -> None:
    ends = [0, 1] if dtype is np.bool_ else [np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).max // 3]
    array = np.array(ends, dtype)
    assert parse_value(text_of(array), "array").tobytes() == array.tobytes()


def test_the_text_reads_well() -> None:
    assert text_of((1, 2.0, True, None, "a", dtypes.bf16)) == '[1, 2.0, true, none, "a", bf16]'
    assert text_of((Dim.of("B"), Dim.of("S+1"), Dim.of(4)), "dims") == "[B, S + 1, 4]"
    assert text_of(1e-5) == "1.0e-05"
    assert text_of(np.array([1, 0.5], np.float32)) == "array<f32, [2], [1.0, 0.5]>"
    assert text_of("é") == '"\\C3\\A9"'


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", "any", "expected a value, got `the end`"),
        ("[1, 2", "any", "expected `,`"),
        ("frob", "any", "`frob` is not a value"),
        ("f33", "dtype", "`f33` is not a value"),
        ("1", "dtype", "expected a value of kind `dtype`"),
        ("[B, +]", "dims", "is not a dimension"),
        ("1 2", "any", "expected the end, got `2`"),
        ("{a = 1, a = 2}", "any", "`a` is given twice"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(text: str, kind: str, words: str) -> None:
    with pytest.raises(LiteralError, match=words.replace("+", r"\+")):
        parse_value(text, kind)


def test_normalize_makes_values_what_their_kind_says() -> None:
    assert normalize("float", 1) == 1.0
    assert isinstance(normalize("float", 1), float)
    assert normalize("ints", [1, None]) == (1, None)
    assert normalize("dims", ["B", 2]) == (Dim.of("B"), Dim.of(2))
    assert normalize("dtype", "bf16") is dtypes.bf16
    assert normalize("any", [[1], {"a": [2]}]) == ((1,), {"a": (2,)})
