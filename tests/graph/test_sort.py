"""sort, argsort, topk, scatter: ties, NaN, duplicates and directions have one answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.types.dtype import bf16, bool_, f32, i64
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, run_decomposition, tensor

VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan]), min_size=0, max_size=12)


@given(VALUES, st.booleans())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_order_is_by_value_then_index_with_nan_last(values: list[float], descending: bool) -> None:
    x = np.array(values, np.float32)
    order = run_decomposition("argsort", x, descending=descending)
    keys = [(bool(np.isnan(v)), 0.0 if np.isnan(v) else (-v if descending else v), i) for i, v in enumerate(values)]
    assert order.tolist() == [i for *_, i in sorted(keys)]
    np.testing.assert_array_equal(run_decomposition("sort", x, descending=descending), x[order])


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.bool_])
def test_integers_sort_to_the_ends_of_their_range(dtype: type) -> None:
    ends = [0, 1] if dtype is np.bool_ else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1]
    x = np.array([ends * 3], dtype)
    np.testing.assert_array_equal(reference("sort", x), np.sort(x))
    np.testing.assert_array_equal(reference("sort", x, descending=True), np.sort(x)[:, ::-1])


def test_topk_takes_the_first_of_equals() -> None:
    x = np.array([[1, 3, 3, 2], [5, 5, 5, 5]], np.float32)
    values, indices = run_decomposition("topk", x, k=2)
    np.testing.assert_array_equal(values, [[3, 3], [5, 5]])
    np.testing.assert_array_equal(indices, [[1, 2], [0, 1]])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((4, 7), -1), ((4, 7), 0), ((2, 3, 5), 1), ((5,), 0)])
def test_the_first_k_are_those_of_the_sorted_axis(shape: tuple[int, ...], axis: int, largest: bool) -> None:
    x = np.random.default_rng(3).integers(-3, 3, shape).astype(np.float32)
    for k in range(min(shape[axis], 4) + 1):
        order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(k), axis)
        for run in (reference, run_decomposition):
            values, indices = run("topk", x, k=k, axis=axis, largest=largest)
            np.testing.assert_array_equal(indices, order)
            np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


def test_rows_that_are_kept_are_there() -> None:
    for keep, width in ((-1, 6), (0, 0), (1, 1), (6, 6)):
        assert [str(one) for one in infer("sort_rows", tensor(3, 6, dtype=f32), keep=keep)] == [
            f"[3, {width}] f32",
            f"[3, {width}] i64",
        ]
    for x, keep in ((tensor(3, 6, dtype=f32), 7), (tensor(6, dtype=f32), 1), (tensor(1, 3, 6, dtype=f32), 1)):
        with pytest.raises(RuleError):
            infer("sort_rows", x, keep=keep)
    rules = Rules()
    infer("sort_rows", tensor("B", "V", dtype=f32), keep=3, rules=rules)
    assert len(rules.guards) == 1
    with pytest.raises(RuleError, match="`k` of at least 0"):
        infer("topk", tensor(5, dtype=f32), k=-1)


def test_topk_guards_a_free_axis() -> None:
    rules = Rules()
    values, indices = infer("topk", tensor("B", "V", dtype=bf16), k=8, rules=rules)
    assert (str(values), str(indices)) == ("[B, 8] bf16", "[B, 8] i64")
    assert len(rules.guards) == 1
    with pytest.raises(RuleError, match="`topk` of 8 from an axis of 5"):
        infer("topk", tensor(5, dtype=f32), k=8)


def test_scatter_keeps_the_last_and_scatter_add_adds_in_order() -> None:
    x = np.zeros((3, 2), np.float32)
    indices = np.array([1, -1, 1, 9])
    updates = np.arange(8, dtype=np.float32).reshape(4, 2)
    for op, dropped, clipped in (
        ("scatter", [[0, 0], [4, 5], [2, 3]], [[0, 0], [4, 5], [6, 7]]),
        ("scatter_add", [[0, 0], [4, 6], [2, 3]], [[0, 0], [4, 6], [8, 10]]),
    ):
        for mode, wanted in (("", dropped), ("drop", dropped), ("clip", clipped)):
            np.testing.assert_array_equal(run_decomposition(op, x, indices, updates, mode=mode), wanted)


def test_scatter_add_of_narrow_floats_rounds_once() -> None:
    x = np.array([256.0], np.float32).astype(tensor_bf16())
    updates = np.full((64, 1), 0.5, np.float32).astype(tensor_bf16()).reshape(64)
    out = run_decomposition("scatter_add", x, np.zeros(64, np.int64), updates)
    assert float(out[0]) == 288.0


def tensor_bf16() -> np.dtype[np.generic]:
    from tessera.ir.base.arrays import numpy_dtype

    return numpy_dtype(bf16)


def test_scatter_says_what_is_wrong() -> None:
    x, index = tensor(4, 3, dtype=f32), tensor(5, dtype=i64)
    with pytest.raises(RuleError, match=r"needs updates \[5, 3\], got \[5\]"):
        infer("scatter", x, index, tensor(5, dtype=f32))
    with pytest.raises(RuleError, match="equal sizes"):
        infer("scatter", x, index, tensor(5, 4, dtype=f32))
    with pytest.raises(RuleDTypeError, match="one dtype"):
        infer("scatter_add", x, index, tensor(5, 3, dtype=bf16))
    with pytest.raises(RuleDTypeError, match="adds numbers"):
        infer("scatter_add", tensor(4, dtype=bool_), index, tensor(5, dtype=bool_))


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("descending", [False, True])
def test_any_axis_is_sorted_as_the_last_is(axis: int, descending: bool) -> None:
    x = np.random.default_rng(4).permutation(60).reshape(3, 4, 5).astype(np.float32)
    wanted = np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)
    np.testing.assert_array_equal(run_decomposition("sort", x, axis=axis, descending=descending), wanted)
    order = run_decomposition("argsort", x, axis=axis, descending=descending)
    np.testing.assert_array_equal(np.take_along_axis(x, order, axis), wanted)
