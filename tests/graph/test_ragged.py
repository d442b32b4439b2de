"""Grouped contractions: sizes of groups that make no sense, operands of two dtypes, and what policies make of them."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import DTypeError, GuardError, ShapeError
from tessera.ir.graph.ops.ragged import ragged_dot_reference, ragged_outer_reference
from tessera.types import dtype as dt
from tests.graph.eager import reference

SIZES = (3, 0, 130, 5)
ROWS = sum(SIZES) + 4


def draw(dtype: Any = np.float32, rows: int = ROWS, groups: int = len(SIZES)) -> tuple[Any, Any]:
    """Rows of 16 elements, and matrices with 7 columns."""
    rng = np.random.default_rng(5)
    return rng.standard_normal((rows, 16)).astype(dtype), rng.standard_normal((groups, 16, 7)).astype(dtype)


def offsets_of(sizes: Sequence[int]) -> Any:
    return np.cumsum([0, *(max(size, 0) for size in sizes)])


@pytest.mark.parametrize(
    "sizes", [(3, -1, 4, 2), (-9, 0, 0, 1), (0, 0, 0, 0), (1 << 40, 1, 1, 1), (5, 200, -(1 << 62), 9)], ids=str
)
def test_every_row_is_written_whatever_the_sizes_are(sizes: tuple[int, ...]) -> None:
    """A size below 0 is none, and groups end where rows do."""
    x, w = draw()
    wanted = ragged_dot_reference(x, w, offsets_of(sizes)).tobytes()
    for backend in ("cpu", "reference"):
        assert np.asarray(ts.jit(ts.ops.ragged_dot, backend=backend)(x, w, np.array(sizes))).tobytes() == wanted


def test_offsets_that_fall_leave_no_row_out() -> None:
    """Those of an op that no front end has made: groups are one behind the other, as long as offsets say."""
    x, w = draw(rows=12, groups=3)
    offsets = np.array([2, 7, 4, 9])
    wanted = ragged_dot_reference(x, w, np.array([0, 5, 5, 10]))
    assert reference("ragged_dot", x, w, offsets).tobytes() == wanted.tobytes()
    assert not wanted[10:].any()


def _free(x: ts.Tensor["T", "K"], w: ts.Tensor["G", "K", "N"], sizes: ts.Tensor["G", ts.i64]):
    return ts.ops.ragged_dot(x, w, sizes)


def test_no_groups_are_refused() -> None:
    x, w = draw()
    free = ts.jit(_free)
    assert np.asarray(free(x, w, np.array(SIZES))).tobytes() == ragged_dot_reference(x, w, offsets_of(SIZES)).tobytes()
    with pytest.raises(GuardError, match="`G` is 0"):
        free(x, w[:0], np.zeros(0, np.int64))
    with pytest.raises(ShapeError, match="needs a group"):
        ts.jit(ts.ops.ragged_dot)(x, w[:0], np.zeros(0, np.int64))


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (np.array([1.0, 2.0, 3.0, 4.0]), DTypeError, "takes integers as `group_sizes`, got f64"),
        (np.array([True] * 4), DTypeError, "got bool"),
        (np.array([[1, 2, 3, 4]]), ShapeError, r"got \[1, 4\] and \[4, 16, 7\]"),
        (np.array([1, 2, 3]), ShapeError, r"got \[3\] and \[4, 16, 7\]"),
    ],
    ids=["floats", "bools", "a matrix", "too few"],
)
def test_sizes_that_are_none_are_refused(sizes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ts.ops.ragged_dot(*draw(), sizes)


def test_two_dtypes_are_promoted() -> None:
    x, w = draw()
    narrow = x.astype(ml_dtypes.bfloat16)
    found = np.asarray(ts.jit(ts.ops.ragged_dot)(narrow, w, np.array(SIZES)))
    assert found.dtype == np.float32
    assert found.tobytes() == ragged_dot_reference(narrow.astype(np.float32), w, offsets_of(SIZES)).tobytes()


def test_a_policy_stores_both_factors_and_rounds_once() -> None:
    x, w = draw()
    narrow_x, narrow_w = (value.astype(ml_dtypes.bfloat16) for value in (x, w))
    wanted = ragged_dot_reference(narrow_x, narrow_w, offsets_of(SIZES), dtype=dt.f32).astype(ml_dtypes.bfloat16)
    for backend in ("cpu", "reference"):
        step = ts.jit(ts.ops.ragged_dot, policy=ts.Training(), backend=backend)
        assert np.asarray(step(x, w, np.array(SIZES))).tobytes() == wanted.tobytes()


def test_gradients_under_a_policy_multiply_what_is_stored() -> None:
    x, w = draw()
    sizes = np.array(SIZES)
    step = ts.jit(
        ts.grad(lambda x, w: ts.ops.sum(ts.ops.ragged_dot(x, w, sizes)), argnums=(0, 1)), policy=ts.Training()
    )
    by_rows, by_matrices = map(np.asarray, step(x, w))
    narrow_x, narrow_w = (value.astype(ml_dtypes.bfloat16) for value in (x, w))
    ones = np.ones((ROWS, 7), ml_dtypes.bfloat16)
    offsets = offsets_of(SIZES)
    outer = ragged_outer_reference(narrow_x, ones, offsets, dtype=dt.f32)
    back = ragged_dot_reference(ones, np.ascontiguousarray(narrow_w.transpose(0, 2, 1)), offsets, dtype=dt.f32)
    # Cotangents of what is stored have its dtype, as those of a matmul.
    for found, wanted in ((by_matrices, outer), (by_rows, back)):
        assert found.dtype == np.float32
        assert found.tobytes() == wanted.astype(ml_dtypes.bfloat16).astype(np.float32).tobytes()


@pytest.mark.parametrize("total", ["f64", "f16"])
def test_accumulators_are_those_of_the_policy(total: str) -> None:
    x, w = draw()
    offsets, matrices = offsets_of(SIZES), np.repeat(w, SIZES, 0)
    if total == "f64":
        wanted = ragged_dot_reference(x.astype(np.float64), w.astype(np.float64), offsets).astype(np.float32)
    else:
        products = np.zeros((ROWS, 16, 7), np.float32)
        products[: len(matrices)] = x[: len(matrices), :, None] * matrices
        wanted = reference("sum", products, axes=(1,), accumulate=dt.f16)
    for backend in ("cpu", "reference"):
        found = ts.jit(ts.ops.ragged_dot, policy=ts.accum(getattr(ts, total)), backend=backend)
        made = np.asarray(found(x, w, np.array(SIZES)))
        if total == "f64":  # its reference has NumPy's order
            np.testing.assert_allclose(made, wanted, rtol=2**-23)
        else:
            assert made.tobytes() == wanted.astype(np.float32).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["stored by a policy", "stored so"])
def test_16_bit_floats_are_multiplied_by_tensor_cores(dtype: Any) -> None:
    """Also where a policy stores operands so: the result is in f32 before it is rounded, and no operand is."""
    arrays = [np.broadcast_to(np.zeros((), dtype), shape) for shape in ((512, 128), (4, 128, 256))]
    tape = ts.jit(ts.ops.ragged_dot, policy=ts.Training()).trace(*arrays, np.zeros(4, np.int64)).tape
    lowering = lower(tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert sum("wgmma.mma_async" in text for text in map(str, lowering.texts)) == 1
