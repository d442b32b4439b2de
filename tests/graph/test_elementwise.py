"""Elementwise ops: dtype and shape rules, meaning against independent NumPy, blocks against references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.graph.ops import elementwise
from tessera.ir.graph.samples import retype, sample_dtype
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, bf16, bool_, f8e4m3, f16, f32, f64, i4, i8, i32, i64, u8, u32
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, tensor
from tests.graph.tiles import run_block

SPECS = [spec for spec in elementwise.SPECS if spec.lower is not None]


def arrays_of(spec: Any, sample: Any, dtype: str) -> list[Array]:
    made = sample.make(np.random.default_rng(0))
    varied = numpy_dtype(BY_NAME[sample_dtype(spec)])
    return [retype(array, BY_NAME[dtype]) if array.dtype == varied else array for array in made]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_blocks_compute_what_references_mean(spec: Any) -> None:
    for dtype in spec.dtypes:
        for sample in spec.samples:
            arrays = arrays_of(spec, sample, dtype)
            expected = reference(spec.short_name, *arrays, **sample.attributes)
            found = run_block(spec, arrays, dict(sample.attributes))
            assert found.dtype == expected.dtype
            if expected.dtype.kind in "biu":
                np.testing.assert_array_equal(found, expected, err_msg=f"{sample.name} {dtype}")
            else:
                # one unit in the last place where two formulas of one function round apart
                np.testing.assert_allclose(
                    found.astype(np.float64),
                    expected.astype(np.float64),
                    rtol=2 * float(np.finfo(np.float32).eps) if dtype == "f32" else BY_NAME[dtype].epsilon * 4,
                    atol=1e-6,
                    err_msg=f"{sample.name} {dtype}",
                )


@pytest.mark.parametrize("dtype", [f32, bf16, f16, f8e4m3, f64], ids=str)
def test_arithmetic_rounds_once_to_the_result(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(200).astype(np.float32).astype(numpy_dtype(dtype)) for _ in range(2))
    for name, function in (("add", np.add), ("mul", np.multiply), ("div", np.divide)):
        wide = np.float64 if dtype is f64 else np.float32
        with np.errstate(all="ignore"):
            expected = function(x.astype(wide), y.astype(wide)).astype(x.dtype)
        np.testing.assert_array_equal(reference(name, x, y).astype(wide), expected.astype(wide))


def test_functions_against_python_floats() -> None:
    x = np.array([-9.0, -3.5, -1.0, -0.25, 0.0, 0.3, 2.0, 8.0], np.float32)
    points = [float(v) for v in x]
    cases: dict[str, list[float]] = {
        "erf": [math.erf(v) for v in points],
        "sigmoid": [1 / (1 + math.exp(-v)) for v in points],
        "softplus": [math.log1p(math.exp(v)) for v in points],
        "silu": [v / (1 + math.exp(-v)) for v in points],
        "gelu": [v * math.erfc(-v / math.sqrt(2)) / 2 for v in points],
        "expm1": [math.expm1(v) for v in points],
        "relu": [max(v, 0.0) for v in points],
        "round": [round(v) for v in points],
        "trunc": [math.trunc(v) for v in points],
    }
    for name, values in cases.items():
        expected = np.array(values).astype(np.float32)
        np.testing.assert_array_max_ulp(reference(name, x), expected, 1)
    tanh = reference("gelu", x, approximate="tanh")
    np.testing.assert_allclose(tanh, reference("gelu", x), atol=1e-3)


def test_integer_edge_cases_are_the_table() -> None:
    low = np.int32(-(2**31))
    x = np.array([7, -7, 7, -7, 7, 0, low, low], np.int32)
    y = np.array([2, 2, -2, -2, 0, 0, -1, 1], np.int32)
    np.testing.assert_array_equal(reference("floordiv", x, y), [3, -4, -4, 3, 0, 0, low, low])
    np.testing.assert_array_equal(reference("mod", x, y), [1, 1, -1, -1, 0, 0, 0, 0])
    np.testing.assert_array_equal(reference("abs", np.array([low, -1], np.int32)), [low, 1])
    np.testing.assert_array_equal(reference("neg", np.array([1, 0], np.uint8)), [255, 0])
    np.testing.assert_array_equal(reference("mul", np.array([100], np.int8), np.array([3], np.int8)), [44])
    ones, counts = np.full(5, -5, np.int32), np.array([0, 1, 31, 32, -1], np.int32)
    np.testing.assert_array_equal(reference("shift_right", ones, counts), [-5, -3, -1, -1, -1])
    np.testing.assert_array_equal(reference("shift_left", ones, counts), [-5, -10, low, 0, 0])
    base, exponent = np.array([2, -3, 7, 2, 1, -1, 0, 0], np.int8), np.array([7, 5, 9, -1, -3, -3, -2, 0], np.int8)
    np.testing.assert_array_equal(reference("pow", base, exponent), [-128, 13, 71, 0, 1, -1, 0, 1])
    large = np.full(3, 200, np.uint8)
    np.testing.assert_array_equal(reference("shift_right", large, np.array([3, 8, 200], np.uint8)), [25, 0, 0])


def test_float_quotients_round_down_exactly() -> None:
    x = np.array([1.0, 5.5, -5.5, 5.5, -1.0, 1.0, 0.6], np.float32)
    y = np.array([0.1, 2.0, 2.0, -2.0, np.inf, np.inf, 0.2], np.float32)
    np.testing.assert_array_equal(reference("floordiv", x, y), [9, 2, -3, -3, -1, 0, 3])
    np.testing.assert_allclose(reference("mod", x, y)[1:6], [1.5, 0.5, -0.5, np.inf, 1.0])


def test_nan_wins_in_maximum_and_minimum() -> None:
    x, y = np.array([np.nan, 1.0], np.float32), np.array([1.0, np.nan], np.float32)
    assert np.isnan(reference("maximum", x, y)).all()
    assert np.isnan(reference("minimum", x, y)).all()


def test_casts_follow_the_table() -> None:
    x = np.array([1.9, -1.9, 300.0, -300.0, np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(reference("cast", x, dtype=i8), [1, -1, 127, -128, 0, 127, -128])
    np.testing.assert_array_equal(reference("cast", x, dtype=u8), [1, 0, 255, 0, 0, 255, 0])
    np.testing.assert_array_equal(reference("cast", x, dtype=i4), [1, -1, 7, -8, 0, 7, -8])
    np.testing.assert_array_equal(reference("cast", x, dtype=bool_), [True] * 7)
    ends = reference("cast", np.array([1e30, -1e30]), dtype=i64)
    np.testing.assert_array_equal(ends, [2**63 - 1, -(2**63)])
    np.testing.assert_array_equal(reference("cast", np.array([300, -1], np.int32), dtype=u8), [44, 255])
    np.testing.assert_array_equal(reference("cast", np.array([9, -9], np.int32), dtype=i4), [-7, 7])
    # Rounded once: f32 would make a tie of it, which falls the other way.
    above = np.array([2**24 + 2**16 + 1], np.int64)
    np.testing.assert_array_equal(reference("cast", above, dtype=bf16).astype(np.int64), [2**24 + 2**17])


B, S = Dim.symbol("B"), Dim.symbol("S")


def test_shape_rules() -> None:
    assert infer("add", tensor("B", 1, dtype=f32), tensor("S", dtype=f32)) == [tensor("B", "S", dtype=f32)]
    assert infer("lt", tensor("B", dtype=i32), tensor("B", dtype=i32)) == [tensor("B", dtype=bool_)]
    assert infer("isnan", tensor("B", dtype=bf16)) == [tensor("B", dtype=bool_)]
    assert infer("where", tensor("B", 1, dtype=bool_), tensor(3, dtype=f16), tensor(dtype=f16)) == [
        tensor("B", 3, dtype=f16)
    ]
    assert infer("clamp", tensor("B", dtype=f32), tensor(dtype=f32), tensor(dtype=f32)) == [tensor("B", dtype=f32)]
    assert infer("cast", tensor("B", dtype=f32), dtype=i4) == [tensor("B", dtype=i4)]
    assert infer("bitcast", tensor("B", dtype=f32), dtype=u32, source=f32) == [tensor("B", dtype=u32)]
    rules = Rules()
    infer("add", tensor("B", dtype=f32), tensor("S", dtype=f32), rules=rules)
    assert rules.guards == [(B, S)]


@pytest.mark.parametrize(
    ("op", "types", "attributes", "message"),
    [
        ("add", [tensor(3, dtype=f32), tensor(3, dtype=bf16)], {}, "one dtype, got `x` of f32 and `y` of bf16"),
        ("exp", [tensor(3, dtype=i32)], {}, "`exp` takes f32 f64 .*, got `x` of i32"),
        ("add", [tensor(3, dtype=i4), tensor(3, dtype=i4)], {}, "got `x` of i4"),
        ("add", [tensor(3, dtype=bool_), tensor(3, dtype=bool_)], {}, "got `x` of bool"),
        ("logical_and", [tensor(3, dtype=i32), tensor(3, dtype=i32)], {}, "takes bool, got `x` of i32"),
        ("shift_left", [tensor(3, dtype=f32), tensor(3, dtype=f32)], {}, "got `x` of f32"),
        ("where", [tensor(3, dtype=f32), tensor(3, dtype=f32), tensor(3, dtype=f32)], {}, "got `condition` of f32"),
        ("where", [tensor(3, dtype=bool_), tensor(3, dtype=f32), tensor(3, dtype=f64)], {}, "one dtype"),
        ("bitcast", [tensor(3, dtype=f32)], {"dtype": f64, "source": f32}, "one width: f32 has 32 bits, f64 has 64"),
        ("bitcast", [tensor(3, dtype=bool_)], {"dtype": u8, "source": bool_}, "no bits of bool"),
        ("bitcast", [tensor(3, dtype=f32)], {"dtype": u32, "source": i32}, "it is f32"),
    ],
)
def test_dtypes_that_are_refused(op: str, types: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleDTypeError, match=message):
        infer(op, *types, **attributes)


@pytest.mark.parametrize(
    ("op", "types", "attributes", "message"),
    [
        ("add", [tensor(3, dtype=f32), tensor(4, dtype=f32)], {}, "cannot broadcast"),
        ("gelu", [tensor(3, dtype=f32)], {"approximate": "fast"}, "no approximation `fast`"),
        ("clamp", [tensor(3, dtype=f32), tensor(2, dtype=f32), tensor(dtype=f32)], {}, "x.shape.* and `low.shape"),
    ],
)
def test_shapes_that_are_refused(op: str, types: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        infer(op, *types, **attributes)
