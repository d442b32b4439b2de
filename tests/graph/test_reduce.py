"""Reductions: the canonical recipe element by element, rules, decompositions against references, scans."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.arrays import Array, numpy_dtype, round_as
from tessera.ir.graph.ops import cumulative, reduce
from tessera.ir.graph.ops.reduce import reduce_lanes, scan_reference
from tessera.ir.graph.samples import retype
from tessera.ir.tile.facets import Reduction
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, bf16, bool_, f16, f32, f64, i4, i8, i32, i64, u8, u64
from tessera.types.numerics import LANES, LEAF
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, run_decomposition, tensor, type_of


def recipe_leaf(elements: list[np.float32]) -> np.float32:
    """A leaf as it is written: lanes in order, then halves."""
    lanes = [np.float32(0)] * LANES
    for at, element in enumerate(elements):
        lanes[at % LANES] = np.float32(lanes[at % LANES] + element)
    width = LANES // 2
    while width:
        lanes = [np.float32(lanes[lane] + lanes[lane + width]) for lane in range(width)]
        width //= 2
    return lanes[0]


def recipe_sum(elements: list[np.float32]) -> np.float32:
    """Leaves, joined in pairs of neighbours until one is left."""
    sums = [recipe_leaf(elements[at : at + LEAF]) for at in range(0, max(len(elements), 1), LEAF)]
    while len(sums) > 1:
        pairs = [np.float32(a + b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = [*pairs, *sums[2 * len(pairs) :]]
    return sums[0]


@given(st.one_of(st.integers(0, 300), st.integers(1000, 7300)), st.integers(0, 2**31))
def test_reductions_follow_the_recipe_bit_for_bit(size: int, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(size) * 1e3).astype(np.float32)
    assert reduce_lanes("sum", x, (0,)).tobytes() == np.asarray(recipe_sum(list(x))).tobytes()


def test_a_sum_over_several_axes_takes_them_in_row_major_order() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 550)).astype(np.float32)
    for axes, row in (((0, 2), x[:, 1, :]), ((1, 2), x[1]), ((0, 1), x[:, :, 1])):
        found = reference("sum", x, axes=axes)
        assert found[1] == recipe_sum(list(row.reshape(-1)))


def test_a_row_alone_has_the_bits_it_has_in_a_batch() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3333)).astype(np.float32)
    batch = reference("sum", x, axes=(1,))
    for row in range(5):
        assert reference("sum", x[row : row + 1], axes=(1,))[0] == batch[row]


@pytest.mark.parametrize("spec", [*reduce.REDUCTIONS, *reduce.STATISTICS], ids=lambda spec: spec.short_name)
def test_references_against_numpy(spec: Any) -> None:
    numpy_name: str = "" if spec.short_name in ("logsumexp", "norm") else spec.short_name
    for sample in spec.samples:
        (x,) = sample.make(np.random.default_rng(0))
        attributes = spec.with_defaults(sample.attributes)
        found = reference(spec.short_name, x, **attributes)
        axes, keepdims = attributes["axes"], attributes["keepdims"]
        with np.errstate(all="ignore"):
            if spec.short_name.startswith("arg"):
                expected = _arg(numpy_name, x, axes, keepdims)
            elif numpy_name:
                more = {"ddof": attributes["correction"]} if "correction" in attributes else {}
                expected = _numpy(numpy_name, x, axes, keepdims, more)
            elif spec.short_name == "logsumexp":
                expected = np.asarray(np.logaddexp.reduce(x.astype(np.float64), axis=None if not axes else axes[0]))
                if len(axes) != 1:
                    continue
                expected = np.expand_dims(expected, axes) if keepdims else expected
            else:
                expected = _norm(x, axes, keepdims, attributes["order"])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=sample.name)


def _numpy(name: str, x: Array, axes: tuple[int, ...], keepdims: bool, more: dict[str, Any]) -> Array:
    if name in ("mean", "var", "std") and x.size == 0 and any(x.shape[axis] == 0 for axis in axes):
        return np.full([x.shape[axis] for axis in range(x.ndim) if axis not in axes], np.nan)
    return getattr(np, name)(x, axis=axes, keepdims=keepdims, **more)


def _arg(name: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.transpose((*kept, *axes)).reshape(*(x.shape[axis] for axis in kept), -1) if x.size else x
    found = np.asarray(getattr(np, name)(rows, axis=-1) if x.ndim else 0)
    return np.expand_dims(found, axes) if keepdims else found


def _norm(x: Array, axes: tuple[int, ...], keepdims: bool, order: float) -> Array:
    wide = np.abs(x.astype(np.float64))
    if math.isinf(order):
        return (wide.max if order > 0 else wide.min)(axis=axes, keepdims=keepdims)
    if order == 0:
        return (wide != 0).sum(axis=axes, keepdims=keepdims).astype(np.float64)
    return (wide**order).sum(axis=axes, keepdims=keepdims) ** (1 / order)


@pytest.mark.parametrize("order", [3.0, 0.5, 1.0, 2.0, 0.0, -1.0, -3.0, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_norms_of_rows_without_a_scale(dtype: str, order: float) -> None:
    """Zeros, infinities, NaN and the ends of the dtype, each with others and alone."""
    inf, largest = math.inf, float(np.finfo(numpy_dtype(BY_NAME[dtype])).max)
    rows = [[0, 0], [0, 2], [inf, 2], [-inf, 0], [inf, -inf], [math.nan, 1], [math.nan, 0], [3, 4], [1, 1]]
    x = np.array([*rows, [-largest / 4, 0]]).astype(numpy_dtype(BY_NAME[dtype]))
    with np.errstate(all="ignore"):
        expected = np.linalg.norm(x.astype(np.longdouble), order, axis=1).astype(np.float64)
        found = reference("norm", x, axes=(1,), order=order)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=16 * BY_NAME[dtype].epsilon)
    made = run_decomposition("norm", x, axes=(1,), order=order)
    np.testing.assert_array_equal(made, found)


@pytest.mark.parametrize("spec", reduce.STATISTICS, ids=lambda spec: spec.short_name)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_decompositions_compute_what_references_mean(spec: Any, dtype: str) -> None:
    for sample in spec.samples:
        x = retype(sample.make(np.random.default_rng(0))[0], BY_NAME[dtype])
        found = run_decomposition(spec.short_name, x, **sample.attributes)
        expected = reference(spec.short_name, x, **sample.attributes)
        # logarithms and exponentials of the two differ in the last place; everything else is the same operations
        tolerance = 4 * BY_NAME[dtype].epsilon if spec.short_name == "logsumexp" else 0.0
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=sample.name
        )


def test_a_free_count_is_asked_for_at_run_time() -> None:
    class Names:
        """A builder that only knows types and writes down what is made."""

        def __init__(self) -> None:
            self.made: list[str] = []

        def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
            self.made.append(name)
            return infer(name, *operands, **attributes)[0]

        def type_of(self, value: Any) -> Any:
            return value

    for shape, source in ((("B", 7), "full"), (("B", "S"), "dim_size")):
        builder = Names()
        spec = next(spec for spec in reduce.STATISTICS if spec.short_name == "mean")
        assert spec.decompose is not None
        result = spec.decompose(builder, [tensor(*shape, dtype=bf16)], {"axes": (1,), "keepdims": False})
        assert result == tensor("B", dtype=bf16)
        assert source in builder.made


def test_ties_go_to_the_first_and_nan_wins() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, np.nan, np.nan], [-1.0, -1.0, 5.0]], np.float32)
    np.testing.assert_array_equal(reference("argmax", x, axes=(1,)), [1, 1, 2])
    np.testing.assert_array_equal(reference("argmin", x, axes=(1,)), [0, 1, 0])
    assert reference("argmax", np.zeros((3, 4), np.float32), axes=(0, 1)) == 0
    assert np.isnan(reference("max", x, axes=(0, 1)))
    assert reference("argmax", x.astype(numpy_dtype(bf16)), axes=(0,)).dtype == np.int64


def test_no_elements() -> None:
    empty = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(reference("sum", empty, axes=(1,)), [0, 0])
    np.testing.assert_array_equal(reference("prod", empty, axes=(1,)), [1, 1])
    assert not reference("any", empty != 0, axes=(0, 1))
    assert reference("all", empty != 0, axes=(0, 1))
    np.testing.assert_array_equal(reference("logsumexp", empty, axes=(1,)), [-np.inf, -np.inf])
    np.testing.assert_array_equal(reference("max", empty, axes=(1,), identity=True), [-np.inf, -np.inf])
    np.testing.assert_array_equal(reference("min", empty.astype(np.int8), axes=(1,), identity=True), [127, 127])


@pytest.mark.parametrize("op", ["max", "min", "argmax", "argmin", "norm"])
def test_an_axis_that_may_be_empty_is_guarded_where_there_is_no_answer(op: str) -> None:
    more = {"order": math.inf} if op == "norm" else {}
    rules = Rules()
    infer(op, tensor("B", "S", 4, dtype=f32), axes=(1, 2), rules=rules, **more)
    assert rules.guards == [(Dim.of("min(S, 1)"), Dim.constant(1))]
    rules = Rules()
    infer(op, tensor("B", Dim.of("S + 1"), dtype=f32), axes=(1,), rules=rules, **more)
    assert rules.guards == []


@pytest.mark.parametrize("op", ["sum", "prod", "logsumexp", "mean"])
def test_no_guard_where_there_is_an_answer(op: str) -> None:
    rules = Rules()
    infer(op, tensor("B", "S", dtype=f32), axes=(1,), rules=rules)
    assert rules.guards == []


def test_integers_accumulate_in_64_bits_and_narrow_floats_in_f32() -> None:
    assert reference("sum", np.full(300, 127, np.int8), axes=(0,)) == 300 * 127
    assert reference("sum", np.full(300, 255, np.uint8), axes=(0,)).dtype == np.uint64
    assert reference("sum", np.array([True, True, False]), axes=(0,)) == 2
    ones = np.ones(1000, numpy_dtype(bf16))
    assert float(reference("sum", ones, axes=(0,))) == 1000.0


def test_rules() -> None:
    x = tensor("B", 3, "S", dtype=bf16)
    assert infer("sum", x, axes=(0, 2)) == [tensor(3, dtype=bf16)]
    assert infer("max", x, axes=(1,), keepdims=True) == [tensor("B", 1, "S", dtype=bf16)]
    assert infer("argmax", x, axes=(2,)) == [tensor("B", 3, dtype=i64)]
    assert infer("sum", tensor("B", dtype=i8), axes=(0,)) == [tensor(dtype=i64)]
    assert infer("prod", tensor("B", dtype=u8), axes=(0,)) == [tensor(dtype=u64)]
    assert infer("mean", x, axes=(0, 1, 2)) == [tensor(dtype=bf16)]
    assert infer("cumsum", tensor("B", dtype=i32), axis=0) == [tensor("B", dtype=i64)]
    assert infer("cummax", tensor("B", dtype=i32), axis=0) == [tensor("B", dtype=i32)]
    spec = reduce.SPECS[0]
    assert isinstance(spec.lower, Reduction)
    assert (spec.lower.kind, spec.lower.axes(x, {"axes": (0, 2)})) == ("sum", (0, 2))
    assert spec.cost is not None
    assert spec.cost([x], [tensor(3, dtype=bf16)], {}).flops == Dim.of("3*B*S")


@pytest.mark.parametrize(
    ("op", "type", "attributes", "message"),
    [
        ("sum", tensor(3, dtype=f32), {"axes": (1,)}, "no axis 1 on a value of rank 1"),
        ("sum", tensor(3, dtype=f32), {"axes": (-1,)}, "no axis -1"),
        ("sum", tensor(3, 4, dtype=f32), {"axes": (1, 0)}, "sorted and none twice"),
        ("sum", tensor(3, 4, dtype=f32), {"axes": (1, 1)}, "sorted and none twice"),
        ("max", tensor("B", 0, dtype=f32), {"axes": (1,)}, r"no elements has no value: `x.shape\[1\] = 0`"),
        ("argmin", tensor(0, dtype=f32), {"axes": (0,)}, "no elements"),
        ("norm", tensor(0, dtype=f32), {"axes": (0,), "order": math.inf}, "no elements"),
        ("norm", tensor(3, dtype=f32), {"axes": (0,), "order": math.nan}, "no order nan"),
        ("cumsum", tensor(3, dtype=f32), {"axis": 1}, "no axis 1"),
        ("cumulative", tensor(3, dtype=f32), {"axis": 0, "kind": "mean"}, "no kind `mean`"),
    ],
)
def test_shapes_that_are_refused(op: str, type: Any, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        infer(op, type, **attributes)


@pytest.mark.parametrize(
    ("op", "dtype"), [("mean", i32), ("any", f32), ("sum", i4), ("max", bool_), ("argmax", bool_), ("var", i64)]
)
def test_dtypes_that_are_refused(op: str, dtype: Any) -> None:
    with pytest.raises(RuleDTypeError, match=f"got `x` of {dtype}"):
        infer(op, tensor(3, dtype=dtype), axes=(0,))


@pytest.mark.parametrize("spec", cumulative.SPECS, ids=lambda spec: spec.short_name)
def test_scans_go_by_chunks_of_16(spec: Any) -> None:
    for sample in spec.samples:
        for dtype in (f32, f16, i8):
            x = retype(sample.make(np.random.default_rng(0))[0], dtype)
            found = reference(spec.short_name, x, **sample.attributes)
            expected = _running(spec.short_name, x, dict(sample.attributes))
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64), err_msg=sample.name)
            if spec.decompose is not None:
                np.testing.assert_array_equal(run_decomposition(spec.short_name, x, **sample.attributes), found)


def _running(name: str, x: Array, attributes: dict[str, Any]) -> Array:
    kind = attributes.get("kind", name.removeprefix("cum"))
    out = np.zeros(x.shape, reference(name, x, **attributes).dtype)
    wide = np.dtype(np.float32) if out.dtype.kind == "f" else out.dtype
    steps: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    lines = np.moveaxis(x, attributes["axis"], -1)
    results = np.moveaxis(out, attributes["axis"], -1)
    for place in np.ndindex(*lines.shape[:-1]):
        line = lines[place][::-1] if attributes["reverse"] else lines[place]
        with np.errstate(all="ignore"):
            found = _scan_line(steps[kind], list(line.astype(wide)))
        results[place] = found[::-1] if attributes["reverse"] else found
    return out


def _scan_line(step: Any, line: list[Any]) -> list[Any]:
    """Chains of 16, of their totals, of those of theirs; then each element joined with what comes before its chunk."""
    levels = [[list(accumulate(line[at : at + 16], step)) for at in range(0, len(line), 16)]]
    while len(levels[-1]) > 1:
        totals = [chunk[-1] for chunk in levels[-1]]
        levels.append([list(accumulate(totals[at : at + 16], step)) for at in range(0, len(totals), 16)])

    def prefix(level: int, chunk: int) -> Any:
        if level == len(levels) or chunk == 0:
            return None
        above, own = prefix(level + 1, chunk // 16), levels[level][chunk // 16][chunk % 16 - 1] if chunk % 16 else None
        return own if above is None else above if own is None else step(above, own)

    found: list[Any] = []
    for number, chunk in enumerate(levels[0]):
        before = prefix(1, number)
        found += [one if before is None else step(before, one) for one in chunk]
    return found


@pytest.mark.parametrize("total", [bf16, f16, f32, f64], ids=str)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_a_scan_rounds_to_its_accumulator_at_each_step(kind: str, total: Any) -> None:
    x = np.random.default_rng(3).standard_normal((3, 5, 2)) * 3
    step: Any = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
    for axis in range(3):
        found = np.moveaxis(scan_reference(kind, x, axis, total), axis, 0)
        wide = np.float64 if total is f64 else np.float32
        state = None
        for element, own in zip(np.moveaxis(x.astype(wide), axis, 0), found, strict=True):
            state = round_as(element if state is None else step(state, element), total).astype(wide)
            np.testing.assert_array_equal(own, state)


def test_references_keep_the_promised_types() -> None:
    x = np.ones((2, 3))
    assert type_of(reference("var", x, axes=(1,), correction=1)) == tensor(2, dtype=f64)
