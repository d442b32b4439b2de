"""What every op refuses and costs: axes that are not there, keys that are none, and operations that are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.ir.base.interval import INF, Interval, IntervalQuery
from tessera.ir.base.spec import FLOATS, OpSpec
from tessera.ir.graph.ops import REGISTRY, interval_of, policy_of
from tessera.ir.graph.policy_casts import default_accumulator
from tessera.types.dim import Dim
from tessera.types.dtype import DType, bf16, f16, f32, f64, i8, i16, i32, i64, u8, u32, u64
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, registry, tensor, type_of

AXES = [
    (spec, attribute)
    for spec in registry()
    for attribute in spec.attributes
    if attribute.name.startswith("ax") and attribute.kind in ("int", "ints") and spec.samples
]


def sample_of(spec: OpSpec) -> tuple[list[TensorType], dict[str, Any]]:
    """The types and attributes of an op's first example."""
    sample = spec.samples[0]
    types = [type_of(np.asarray(array)) for array in sample.make(np.random.default_rng(0))]
    return types, dict(spec.with_defaults(sample.attributes))


@pytest.mark.parametrize(("spec", "attribute"), AXES, ids=lambda one: getattr(one, "short_name", "") or one.name)
def test_axes_that_are_not_there_are_refused(spec: OpSpec, attribute: Any) -> None:
    types, attributes = sample_of(spec)
    rank = max((one.rank for one in types), default=0)
    for axis in (rank + 1, -rank - 2):
        wrong = {**attributes, attribute.name: axis if attribute.kind == "int" else (axis,)}
        with pytest.raises(RuleError):
            spec.infer(Rules(), types, wrong)
    if attribute.kind == "ints":
        with pytest.raises(RuleError):
            spec.infer(Rules(), types, {**attributes, attribute.name: (0, 0)})


OF_FLOATS = [
    spec
    for spec in registry()
    if spec.dtypes == FLOATS and spec.operands and spec.samples and policy_of(spec).is_arithmetic
]


@pytest.mark.parametrize("spec", OF_FLOATS, ids=lambda spec: spec.short_name)
def test_ops_of_floats_alone_say_so(spec: OpSpec) -> None:
    types, attributes = sample_of(spec)
    for wrong in (i32, u32):
        with pytest.raises(RuleDTypeError, match=f"`{spec.short_name.removesuffix('_with_lse')}` .*{wrong}"):
            spec.infer(Rules(), [TensorType(types[0].shape, wrong), *types[1:]], attributes)


KEYED = [spec for spec in registry() if "key" in spec.operands and spec.samples and spec.short_name != "philox"]


@pytest.mark.parametrize("spec", KEYED, ids=lambda spec: spec.short_name)
def test_a_key_is_two_words(spec: OpSpec) -> None:
    types, attributes = sample_of(spec)
    at = spec.operands.index("key")
    assert spec.infer(Rules(), types, attributes)
    for shape, dtype in (((2,), f32), ((2,), i64), ((3,), u64), ((), u64), ((1, 2), u64)):
        wrong = tensor(*shape, dtype=dtype)
        with pytest.raises((RuleError, RuleDTypeError)):
            spec.infer(Rules(), [*types[:at], wrong, *types[at + 1 :]], attributes)


COSTS = {
    "sum prod max min any all argmax argmin mean cumulative cumsum cumprod cummax residual": 1,
    "norm": 2,
    "var std logsumexp_safe": 4,
    "softmax softmax_safe log_softmax": 5,
    "cross_entropy": 6,
    "rmsnorm_safe": 7,
    "layernorm_safe": 9,
    "sort argsort topk sort_rows": 12,
    "logsumexp": 14,
    "dropout": 62,
    "philox": 90,
    "fold_key": 180,
}
"""Operations for each element of the first operand, of ops that visit it."""


@pytest.mark.parametrize(("names", "times"), COSTS.items())
def test_operations_are_counted_by_element(names: str, times: int) -> None:
    for name in names.split():
        spec = registry()[name]
        assert spec.cost is not None
        types, attributes = sample_of(spec)
        results = spec.infer(Rules(), types, attributes)
        found = spec.cost(types, results, attributes)
        assert found.flops == types[0].size * times, name
        assert found.bytes == sum((one.bytes for one in results), types[0].bytes * 0) + sum(
            (one.bytes for one in types), types[0].bytes * 0
        ), name


def test_numbers_at_random_cost_by_how_many_there_are() -> None:
    for name in ("random_bits", "uniform", "normal", "bernoulli"):
        spec = registry()[name]
        assert spec.cost is not None
        _, attributes = sample_of(spec)
        for shape in ((7,), (7, 13)):
            given: dict[str, Any] = {**attributes, "shape": shape}
            results = infer(name, tensor(2, dtype=u64), **given)
            assert spec.cost([tensor(2, dtype=u64)], results, given).flops == results[0].size * 60, name


def test_rows_of_which_few_are_kept_cost_less() -> None:
    spec, x = registry()["sort_rows"], tensor("B", 100, dtype=f32)
    assert spec.cost is not None
    for keep, operations in ((-1, "1200*B"), (0, "200*B"), (1, "264*B"), (5, "520*B")):
        given = spec.with_defaults({"keep": keep})
        assert spec.cost([x], spec.infer(Rules(), [x], given), given).flops == Dim.of(operations), keep


def test_sorted_values_are_elements_and_positions_are_not() -> None:
    for name, (low, high) in {"sort": (-2.0, 3.0), "argsort": (-(2.0**63), 2.0**63)}.items():
        facet, (types, attributes) = interval_of(REGISTRY[name]), sample_of(registry()[name])
        assert facet is not None
        (result,) = registry()[name].infer(Rules(), types, attributes)
        found = facet.result(IntervalQuery((Interval(-2.0, 3.0),), tuple(types), attributes, result))
        assert (found.low, found.high) == (low, high)


def test_a_mean_lies_in_the_range_of_its_elements_and_a_rounding_for_each() -> None:
    facet = interval_of(REGISTRY["mean"])
    assert facet is not None
    for shape, axes, count in (((4, 8), (1,), 8), ((4, 8), (0, 1), 32), ((4, 8), (), 1)):
        for low, high in ((-2.0, 3.0), (1.0, 2.0), (-2.0, -1.0), (0.0, 0.0)):
            x, result = tensor(*shape, dtype=f32), tensor(4, dtype=f32)
            found = facet.result(IntervalQuery((Interval(low, high),), (x,), {"axes": axes}, result))
            assert not found.may_be_nan
            for end, own in ((low, found.low), (high, found.high)):
                assert abs(own - end) <= abs(end) * (count + 6) * f32.epsilon + 1e-40
            assert found.low <= low <= high <= found.high
    for own, axes, shape in (
        (Interval(0.0, 1.0, may_be_nan=True), (0,), (4,)),
        (Interval(0.0, INF), (0,), (4,)),
        (Interval(0.0, 1.0), (0,), (0,)),
    ):
        query = IntervalQuery((own,), (tensor(*shape, dtype=f32),), {"axes": axes}, tensor(dtype=f32))
        assert facet.result(query).may_be_nan
    unknown = IntervalQuery((Interval(1.0, 2.0),), (tensor("N", dtype=f32),), {"axes": (0,)}, tensor(dtype=f32))
    assert facet.result(unknown).low == pytest.approx(1 - 2.0**-6, rel=1e-6)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize(("first", "second"), [(0, 16), (16, 0), (0, 1), (0, 32), (32, 0), (17, 1)])
def test_of_zeros_of_both_signs_the_one_that_code_takes_is_taken(kind: str, first: int, second: int) -> None:
    x = np.full((1, 40), -1.0 if kind == "max" else 1.0, np.float32)
    x[0, first], x[0, second] = -0.0, 0.0
    function = {"max": ops.max, "min": ops.min}[kind]

    def reduce(x: ts.Tensor["M", "N", f32]) -> Any:
        return function(x, axis=1)

    found = np.asarray(ts.jit(reduce)(x))
    assert np.signbit(found).tolist() == np.signbit(reference(kind, x, axes=(1,))).tolist()


def test_what_sums_are_kept_in_where_nobody_says() -> None:
    def total(name: str, *dtypes: DType) -> DType:
        *operands, result = (tensor(4, 4, dtype=dtype) for dtype in dtypes)
        return default_accumulator(name, operands, result)

    for dtypes, expected in (
        ((bf16, bf16, bf16), f32),
        ((f16, f32, f32), f32),
        ((f64, f64, f64), f64),
        ((f32, f32, f64), f64),
        ((i8, i8, i8), i32),
        ((u8, u8, u8), i32),
        ((i16, i16, i16), i32),
        ((i8, i8, i32), i32),
        ((i8, i8, f32), i32),
        ((u32, u32, f64), u32),
        ((i64, i8, bf16), i64),
        ((u32, u32, u32), u32),
        ((i64, i64, i64), i64),
        ((u64, u64, u64), u64),
    ):
        assert total("matmul", *dtypes) is expected, dtypes
    assert total("scatter_add", bf16, i64, bf16, bf16) is f32
    assert total("scatter_add", i8, i64, i8, i8) is i8
    assert [total("sum", dtype, dtype) for dtype in (bf16, f32, f64)] == [f32, f32, f64]
