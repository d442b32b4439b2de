"""The first few of rows: what is taken and in which order, where keys end, and when a sort is cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.interpret import bind_dims
from tessera.ir.tile.interpret import run_kernel
from tessera.stdlib.kernels import sort
from tessera.stdlib.kernels.call import LibraryKernel, first
from tessera.stdlib.kernels.sort import SORT
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import TensorType
from tests.graph.eager import RuleError, Rules, infer, reference, tensor
from tests.stdlib.running import assert_sound, kernels_of, run_library, typed

DTYPES = (dt.f32, dt.bf16, dt.f8e5m2, dt.f64, dt.i8, dt.i32, dt.i64, dt.u8, dt.u32, dt.u64, dt.bool_)
SELECTION = LibraryKernel("select", "Selection, whatever the model says.", lambda call: [sort.Selection(call).write()])


def selected(x: Array, keep: int, *, descending: bool, stretches: int = 2) -> list[Array]:
    """Values and indices by the kernel that selects, with rows of dynamic length."""
    (kept,) = {type.shape for type in infer("sort_rows", tensor("R", "N", dtype=dt.f32), keep=keep)}
    given = TensorType.of(["R", "N"], dtype_of(x))
    results = [given.with_shape(kept), TensorType(kept, dt.i64)]

    def choose(knob: str, candidates: Sequence[Any]) -> Any:
        return stretches if knob == "select.stretches" else first(knob, candidates)

    kernels = SELECTION.build("f", [given], results, {"keep": keep, "descending": descending}, choose=choose)
    outputs = [np.full((x.shape[0], keep), 99, numpy_dtype(type.dtype)) for type in results]
    for kernel in kernels:
        run_kernel(kernel, [x, *outputs], bind_dims([given], [x]))
    return outputs


def assert_selected(x: Array, keep: int, *, descending: bool, stretches: int = 2) -> None:
    found = selected(x, keep, descending=descending, stretches=stretches)
    wanted = reference("topk", x, k=keep, largest=descending)
    np.testing.assert_array_equal(found[1], wanted[1])
    assert found[0].tobytes() == wanted[0].tobytes()


@pytest.mark.parametrize("dtype", [dt.f32, dt.bf16, dt.f64, dt.i32, dt.u64, dt.bool_], ids=str)
def test_a_threshold_finds_the_first_few(dtype: dt.DType) -> None:
    """On a GPU: ties at the threshold and none, fewer elements beyond it than are kept and more, both directions."""
    rng = np.random.default_rng(6)
    sorted_, spread = np.arange(4100)[None, :], rng.standard_normal((1, 4100)) * 100
    for x in (_ends(dtype, (2, 2100)), sorted_.astype(numpy_dtype(dtype)), spread.astype(numpy_dtype(dtype))):
        for descending in (False, True):
            form = {"keep": 9, "descending": descending}
            for shapes in (None, [["R", "N"]]):
                assert has_threshold(x, shapes, form)
                found = run_library("sort_rows", [x], form, shapes, dtype, GPUS["sm_90a"])
                for own, wanted in zip(found, reference("sort_rows", x, **form), strict=True):
                    assert own.tobytes() == wanted.tobytes()


def has_threshold(x: Array, shapes: Any, form: dict[str, Any]) -> bool:
    (kernel,) = kernels_of("sort_rows", typed([x], shapes), form, GPUS["sm_90a"])
    return "ttile.shuffle" in str(kernel)


def _ends(dtype: dt.DType, shape: tuple[int, int]) -> Array:
    """Few values, many times each: both ends of the range, zeros of both signs, infinities and NaN."""
    rng = np.random.default_rng(4)
    array = numpy_dtype(dtype)
    if dtype.is_float:
        return rng.choice(np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0, -1.0], np.float32), shape).astype(array)
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(array)
    ends = np.iinfo(array)
    return rng.choice(np.array([ends.min, ends.min + 1, ends.max], array), shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_ends_of_the_range_are_taken_in_order(dtype: dt.DType, descending: bool) -> None:
    """The lowest key also stands for what is used up: the second block is asked when the first has nothing left."""
    assert_selected(_ends(dtype, (1, 28)), 28, descending=descending)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_row_is_selected_as_it_is_sorted(data: st.DataObject) -> None:
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e-45, np.inf, -np.inf, np.nan])
    row = data.draw(st.lists(values, min_size=1, max_size=40))
    keep = data.draw(st.integers(0, min(len(row), 5)))
    x = np.array([row], np.float32)
    assert_selected(x, keep, descending=data.draw(st.booleans()), stretches=data.draw(st.sampled_from([1, 2, 4])))


def test_a_block_that_is_used_up_is_passed_by() -> None:
    x = np.zeros((1, 64), np.int32)
    x[0, :16] = 5
    assert_selected(x, 20, descending=True)
    x[:] = np.iinfo(np.int32).min
    x[0, :17] = 5
    assert_selected(x, 20, descending=True)


def test_an_empty_row_gives_nothing() -> None:
    for count in (0, 5):
        found = selected(np.zeros((3, count), np.float32), 0, descending=True)
        assert [part.shape for part in found] == [(3, 0), (3, 0)]


def _way(count: int | str, keep: int) -> str:
    asked: list[str] = []

    def choose(knob: str, candidates: Sequence[Any]) -> Any:
        if knob == "topk.algorithm":
            asked.append(candidates[0])
        return candidates[0]

    x = TensorType.of([4, count], dt.f32)
    results = infer("sort_rows", x, keep=keep)
    SORT.build("f", [x], results, {"keep": keep, "descending": True}, choose=choose)
    return asked[0]


def test_the_model_selects_few_and_sorts_for_many() -> None:
    assert [_way(count, 10) for count in (16, 100, 1000, 50000, "N")] == ["sort", *["select"] * 4]
    assert [_way(count, keep) for count, keep in ((1000, 900), (50000, 40000), ("N", 65))] == ["sort"] * 3
    widths = [sort.stretches_per_block(Dim.constant(count), 16) for count in (10, 1000, 50000, 10**7)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2] <= 64


def test_both_kernels_have_one_answer() -> None:
    x = _ends(dt.f32, (3, 90))
    few, many = (run_library("sort_rows", [x], {"keep": keep, "descending": True}, [["R", "N"]]) for keep in (9, 80))
    for left, right in zip(few, many, strict=True):
        assert left.tobytes() == np.ascontiguousarray(right[:, :9]).tobytes()


@pytest.mark.parametrize(("keep", "unknown"), [(5, 8), (80, 0)], ids=["select", "sort"])
def test_nothing_is_out_of_bounds_and_no_two_programs_overlap(keep: int, unknown: int) -> None:
    assert_sound(kernels_of("sort_rows", [tensor("R", "N", dtype=dt.i32)], {"keep": keep}), unknown)


def test_no_more_is_kept_than_there_is() -> None:
    rules = Rules()
    values, places = infer("sort_rows", tensor("R", "N", dtype=dt.bf16), keep=4, rules=rules)
    assert (str(values), str(places)) == ("[R, 4] bf16", "[R, 4] i64")
    assert len(rules.guards) == 1
    with pytest.raises(RuleError, match="keeps 8 of rows of 5 elements"):
        infer("sort_rows", tensor(2, 5, dtype=dt.f32), keep=8)
