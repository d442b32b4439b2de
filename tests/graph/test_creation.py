"""Values made from positions: blocks against references, meaning against NumPy, rules and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.graph.ops import creation
from tessera.ir.graph.ops.creation import CONSTANT_LIMIT
from tessera.ir.graph.samples import retype
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType, bf16, bool_, f32, i8, i32, i64, u8
from tests.graph.eager import RuleDTypeError, RuleError, infer, reference, registry, tensor
from tests.graph.tiles import run_block


def dims(*sizes: int) -> tuple[Dim, ...]:
    return tuple(Dim.of(size) for size in sizes)


@pytest.mark.parametrize("spec", creation.SPECS, ids=lambda spec: spec.short_name)
def test_blocks_compute_what_references_mean(spec: Any) -> None:
    for sample in spec.samples:
        arrays = list(sample.make(np.random.default_rng(0)))
        expected = reference(spec.short_name, *arrays, **sample.attributes)
        found = run_block(spec, arrays, dict(sample.attributes))
        np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64), err_msg=sample.name)


@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "bool"])
def test_triangles_of_every_dtype(name: str, dtype: str) -> None:
    x = retype(np.random.default_rng(0).standard_normal((2, 4, 5)).astype(np.float32), BY_NAME[dtype])
    for offset in (-2, 0, 3):
        expected = getattr(np, name)(x.astype(np.float32), offset)
        np.testing.assert_array_equal(reference(name, x, offset=offset).astype(np.float32), expected)
        np.testing.assert_array_equal(run_block(registry()[name], [x], {"offset": offset}).astype(np.float32), expected)


def test_against_numpy() -> None:
    np.testing.assert_array_equal(reference("iota", shape=dims(2, 3), axis=1, dtype=i64), [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_array_equal(reference("eye", shape=dims(3, 4), offset=1, dtype=f32), np.eye(3, 4, 1))
    np.testing.assert_array_equal(reference("full", shape=dims(2), value=-3, dtype=i8), np.full(2, -3, np.int8))
    for num, endpoint in ((7, True), (1, True), (5, False), (0, True)):
        found = reference("linspace", start=-1.0, stop=2.0, num=num, endpoint=endpoint, dtype=f32)
        np.testing.assert_array_max_ulp(found, np.linspace(-1, 2, num, endpoint=endpoint).astype(np.float32), 1)
    assert reference("dim_size", dims=dims(3, 5)) == 15
    wrapped = reference("iota", shape=dims(300), axis=0, dtype=u8)
    np.testing.assert_array_equal(wrapped, np.arange(300).astype(np.uint8))


def test_a_constant_keeps_its_elements() -> None:
    value = np.array([[0.1, -0.0, np.inf], [1.0, 2.0, np.nan]], numpy_dtype(bf16))
    found = run_block(registry()["constant"], [], {"value": value})
    np.testing.assert_array_equal(found.astype(np.float32), value.astype(np.float32))
    assert infer("constant", value=value) == [tensor(2, 3, dtype=bf16)]


def test_rules_on_free_sizes() -> None:
    B = Dim.symbol("B")
    assert infer("full", shape=(B, Dim.of(3)), value=0.0, dtype=f32) == [tensor("B", 3, dtype=f32)]
    assert infer("iota", shape=(B,), axis=0, dtype=i32) == [tensor("B", dtype=i32)]
    assert infer("dim_size", dims=(B,)) == [tensor(dtype=i64)]
    assert infer("tril", tensor("B", "S", "S", dtype=bf16)) == [tensor("B", "S", "S", dtype=bf16)]


@pytest.mark.parametrize(
    ("op", "types", "attributes", "message"),
    [
        ("iota", [], {"shape": dims(3), "axis": 1, "dtype": i32}, r"no axis 1 in \[3\]"),
        ("full", [], {"shape": dims(-3), "value": 0.0, "dtype": f32}, "below zero"),
        ("eye", [], {"shape": dims(3), "dtype": f32}, "is a matrix"),
        ("tril", [tensor(3, dtype=f32)], {}, "needs matrices"),
        ("linspace", [], {"start": 0.0, "stop": 1.0, "num": -1, "dtype": f32}, "0 or more"),
        ("constant", [], {"value": np.zeros(CONSTANT_LIMIT + 1)}, "at most"),
    ],
)
def test_shapes_that_are_refused(op: str, types: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        infer(op, *types, **attributes)


@pytest.mark.parametrize(
    ("op", "attributes", "dtype"),
    [
        ("iota", {"shape": dims(3), "axis": 0}, bool_),
        ("linspace", {"start": 0.0, "stop": 1.0, "num": 3}, i32),
        ("full", {"shape": (), "value": 0.5}, i32),
        ("full", {"shape": (), "value": 2.0}, bool_),
    ],
)
def test_dtypes_that_are_refused(op: str, attributes: dict[str, Any], dtype: DType) -> None:
    with pytest.raises(RuleDTypeError):
        infer(op, **attributes, dtype=dtype)
