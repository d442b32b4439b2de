"""Bodies as machine code: equal to the interpreter of tiles bit for bit, at ragged, empty and single sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings

from tessera.backends.cpu.passes.lower_kernels import lower_kernel
from tessera.ir.base.tape import Tape
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tests.backends.cpu.bodies import Writer, arrays_of, check, kernel_of
from tests.backends.cpu.native import machines
from tests.backends.cpu.random_bodies import Sample, boxes, contractions, maps, rows

Make = Callable[[Writer], int]
A, B = Dim.symbol("A"), Dim.symbol("B")
PLAIN = [dtype for dtype in dt.ALL if dtype.name != "i4"]
RAGGED: tuple[Mapping[str, int], ...] = tuple(
    {"A": a, "B": b} for a, b in ((3, 37), (1, 1), (5, 64), (70, 3), (0, 5), (4, 0))
)
ANY_ORDER = 1 << 12
"""Sums are taken in the kernel's order, references in NumPy's: they agree up to so many steps."""


@settings(max_examples=15)
@given(maps())
def test_pointwise_bodies(sample: Sample) -> None:
    check(sample.body, sample.sizes)


@settings(max_examples=10)
@given(rows())
def test_reductions(sample: Sample) -> None:
    check(sample.body, sample.sizes, reference_ulps=ANY_ORDER)


@settings(max_examples=12)
@given(contractions())
def test_contractions(sample: Sample) -> None:
    check(sample.body, sample.sizes, reference_ulps=ANY_ORDER)


@settings(max_examples=10)
@given(boxes())
def test_assemblies(sample: Sample) -> None:
    check(sample.body, sample.sizes)


def larger(w: Writer, left: int, right: int) -> int:
    """An op that every dtype has."""
    return w.op("logical_or" if w.tape.types[left].dtype.is_bool else "maximum", left, right)


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_tails_of_every_dtype(dtype: DType) -> None:
    w = Writer()
    body = w.body(larger(w, w.input([A, B], dtype), w.input([B], dtype)))
    for sizes in RAGGED:
        check(body, sizes)


@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_scalars_of_every_dtype(dtype: DType) -> None:
    w = Writer()
    check(w.body(larger(w, w.input([], dtype), w.input([], dtype))), {})


@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.bf16, dt.i8, dt.i64, dt.bool_], ids=str)
def test_lanes_that_run_backwards(dtype: DType) -> None:
    w = Writer()
    x = w.input([A, B], dtype)
    body = w.body(larger(w, w.flip(x, axes=(0, 1)), w.roll(x, shifts=(1, -2), axes=(0, 1))))
    for sizes in RAGGED:
        check(body, sizes)


@pytest.mark.parametrize("dtype", [dt.f32, dt.i8, dt.f64], ids=str)
def test_strides_far_apart(dtype: DType) -> None:
    w = Writer()
    x = w.input([7, 5000], dtype)
    ends = [tuple(map(Dim.constant, pair)) for pair in ((0, 4999), (7, 5000))]
    column = w.slice(x, start=ends[0], stop=ends[1], step=(1, 1))
    check(w.body(larger(w, w.reshape(column, shape=(Dim.constant(7),)), w.input([7], dtype))), {})


AXES = [axes for count in range(1, 5) for axes in itertools.combinations(range(4), count)]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_reductions_over_any_axes(axes: tuple[int, ...]) -> None:
    """Rows, columns, several parallel dims beside columns, reduced axes that are not adjacent."""
    w = Writer()
    x = w.input(["A", "B", "C", "D"])
    top = w.max(x, axes=axes, keepdims=True)
    body = w.body(w.sum(w.sub(x, w.broadcast_to(top, shape=w.tape.types[x].shape)), axes=axes), top)
    for values in ((2, 3, 5, 7), (1, 33, 2, 17), (3, 1, 34, 1)):
        check(body, dict(zip("ABCD", values, strict=True)), reference_ulps=ANY_ORDER)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [dt.f32, dt.i64, dt.bf16], ids=str)
def test_reductions_of_nothing(dtype: DType, axes: tuple[int, ...]) -> None:
    w = Writer()
    body = w.body(w.sum(w.input([A, B], dtype), axes=axes))
    for sizes in RAGGED:
        check(body, sizes, reference_ulps=ANY_ORDER)


def is_gemm(body: Tape) -> bool:
    """Whether a body becomes one packed product."""
    target = lower_kernel(kernel_of(body, machines()[0]), machines()[0])
    return any(op.name == "ttarget.gemm" for op in target.walk())


CONTRACTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], dict[str, tuple[int, ...]]]] = {
    "matrices": (("M", "K"), ("K", "N"), {"lhs_contract": (1,), "rhs_contract": (0,)}),
    "both transposed": (("K", "M"), ("N", "K"), {"lhs_contract": (0,), "rhs_contract": (1,)}),
    "matrix by vector": (("M", "K"), ("K",), {"lhs_contract": (1,), "rhs_contract": (0,)}),
    "vector by matrix": (("K",), ("K", "N"), {"lhs_contract": (0,), "rhs_contract": (0,)}),
    "vectors": (("K",), ("K",), {"lhs_contract": (0,), "rhs_contract": (0,)}),
    "outer": (("M",), ("N",), {}),
    "batch alone": (("M",), ("M",), {"lhs_batch": (0,), "rhs_batch": (0,)}),
    "two depths": (("M", "K", "N"), ("N", "M", "K"), {"lhs_contract": (0, 2), "rhs_contract": (1, 0)}),
    "batched": (("N", "M", "K"), ("K", "M", "N"), {"lhs_batch": (1,), "rhs_batch": (1,), "lhs_contract": (2,),
                                                   "rhs_contract": (0,)}),
}  # fmt: skip
NO_AXES = {f"{side}_{part}": () for side in ("lhs", "rhs") for part in ("batch", "contract")}


FORMS = [
    *((form, dtype) for form in CONTRACTIONS for dtype in (dt.f32, dt.i8)),
    *((form, dtype) for form in ("matrices", "two depths", "batched") for dtype in (dt.f64, dt.bf16, dt.i32)),
]
"""Every form in a float and an integer, and the forms with most to them in other dtypes."""


@pytest.mark.parametrize(("form", "dtype"), FORMS, ids=str)
def test_contractions_of_every_form(form: str, dtype: DType) -> None:
    """Dims of rows, columns and depth may be missing, one, or several, and empty."""
    left, right, axes = CONTRACTIONS[form]
    w = Writer()
    body = w.body(w.dot_general(w.input(left, dtype), w.input(right, dtype), **{**NO_AXES, **axes}))
    assert is_gemm(body)
    for m, n, k in ((3, 37, 5), (1, 1, 1), (17, 33, 65), (0, 4, 3), (3, 0, 3), (5, 6, 0)):
        check(body, {"M": m, "N": n, "K": k}, reference_ulps=ANY_ORDER)


@pytest.mark.parametrize("dtype", [dt.bf16, dt.f16, dt.f32, dt.f64, dt.f8e4m3], ids=str)
def test_epilogues_with_bias_and_two_results(dtype: DType) -> None:
    w = Writer()
    product = w.matmul(w.input(["M", "K"], dtype), w.input(["K", "N"], dtype))
    bent = w.relu(w.add(product, w.input(["N"], dtype)))
    places = w.iota(shape=(Dim.symbol("M"), Dim.symbol("N")), axis=1, dtype=dt.i64)
    chosen = w.where(w.lt(places, w.input(["M", 1], dt.i64)), w.cast(bent, dtype=dt.bf16), w.input(["M", "N"], dt.bf16))
    body = w.body(product, chosen)
    assert is_gemm(body)
    for m, n, k in ((3, 37, 5), (17, 33, 65), (5, 6, 0)):
        check(body, {"M": m, "N": n, "K": k}, reference_ulps=ANY_ORDER)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_share_of_a_task_does_not_change_the_result(threads: int) -> None:
    w = Writer()
    x, y = w.input(["M", "K"]), w.input(["K", "N"])
    check(w.body(w.matmul(x, y)), {"M": 65, "N": 70, "K": 40}, threads=threads, reference_ulps=ANY_ORDER)
    w = Writer()
    check(w.body(w.neg(w.transpose(w.input([A, B]), axes=(1, 0)))), {"A": 190, "B": 180}, threads=threads)


@pytest.mark.parametrize("index", [dt.i64, dt.i32, dt.u8, dt.i8], ids=str)
@pytest.mark.parametrize("dtype", [dt.f32, dt.i8, dt.bf16, dt.bool_], ids=str)
def test_gathers(dtype: DType, index: DType) -> None:
    w = Writer()
    table, places = w.input([A, B], dtype), w.input(["C"], index)
    rows, columns = (
        w.index_legal(table, places, axes=(0,), out_axis=0),
        w.index_legal(table, places, axes=(1,), out_axis=1),
    )
    for output in (rows, columns, w.flip(columns, axes=(1,))):
        for a, b, c in ((3, 37, 5), (9, 9, 33), (1, 1, 1), (4, 4, 0)):
            sizes = {"A": a, "B": b, "C": c}
            inputs = arrays_of(w.body(output), sizes)
            inputs[1] = np.random.default_rng(0).integers(0, min(a, b), c).astype(inputs[1].dtype)
            check(w.body(output), sizes, inputs=inputs)


@pytest.mark.parametrize("dtype", [dt.f32, dt.f64, dt.bf16, dt.i8], ids=str)
@pytest.mark.parametrize(("stride", "dilation", "low", "high"), [(1, 1, 0, 0), (2, 1, 1, 0), (1, 2, 2, 3)])
def test_windows_that_leave_the_image(dtype: DType, stride: int, dilation: int, low: int, high: int) -> None:
    w = Writer()
    kernel, image = w.input(["O", 3, 3, 2], dtype), w.input(["B", 3, "H", "W"], dtype)
    low_pair, high_pair = ((Dim.constant(end),) * 2 for end in (low, high))
    out = w.conv_windows(
        kernel, image, stride=(stride, 1), dilation=(1, dilation), low=low_pair, high=high_pair, grouped=False
    )
    assert is_gemm(w.body(out))
    for o, b, h, width in ((5, 2, 8, 21), (33, 1, 7, 7), (1, 0, 7, 7)):
        check(w.body(out), {"O": o, "B": b, "H": h, "W": width}, reference_ulps=ANY_ORDER)
