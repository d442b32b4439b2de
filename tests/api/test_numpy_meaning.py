"""Corners in which an op means what NumPy means by it: axes, orders, masks, truth of numbers, infinities, methods."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DTypeError, GuardError, ShapeError
from tessera.frontend.methods import TensorMethods
from tessera.runtime.operators import METHODS
from tessera.runtime.tensor import Tensor

RUNS: dict[str, Callable[..., Any]] = {
    "eager": lambda function, *args: function(*map(ts.array, args)),
    "jit": lambda function, *args: ts.jit(function)(*args),
    "dynamic": lambda function, *args: ts.jit(function, dynamic=True)(*args),
    "reference": lambda function, *args: ts.jit(function, backend="reference")(*args),
}
CUBE = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
BOX = np.arange(60, dtype=np.float32).reshape(3, 4, 5) - 7


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return RUNS[request.param]


def check(found: Any, expected: Any) -> None:
    assert found.shape == np.shape(expected)
    expected = np.asarray(expected)
    assert str(found.dtype) == ("i4" if expected.dtype == ml_dtypes.int4 else str(ts.array(expected).dtype))
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_a_number_as_window_pools_all_spatial_axes(run: Callable[..., Any]) -> None:
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    parts = x.reshape(2, 3, 2, 2, 3, 2)
    check(run(lambda x: ops.max_pool(x, 2), x), parts.max((3, 5)))
    check(run(lambda x: ops.avg_pool(x, 2), x), parts.mean((3, 5)))
    line, solid = x.reshape(2, 3, 24), x.reshape(1, 2, 3, 4, 6)
    check(run(lambda x: ops.max_pool(x, 3), line), line.reshape(2, 3, 8, 3).max(3))
    check(
        run(lambda x: ops.max_pool(x, 2, stride=1, padding=1), solid[..., :2, :2, :2])[0, 0, 1, 1, 1],
        solid[0, 0, 1, 1, 1],
    )
    check(run(lambda x: ops.max_pool(x, (2,)), x), x.reshape(2, 3, 4, 3, 2).max(4))


def test_a_number_as_window_needs_spatial_axes() -> None:
    with pytest.raises(ShapeError, match="after batch and channels: \\[3, 4\\] has none"):
        ops.max_pool(ts.ones((3, 4)), 2)


@pytest.mark.parametrize("x", [CUBE, BOX, BOX[0], BOX[:, 0], BOX[:0]], ids=lambda x: str(x.shape))
@pytest.mark.parametrize("offset", [0, 1, -2, 7])
def test_diagonals(run: Callable[..., Any], x: Any, offset: int) -> None:
    pairs = [(0, 1), (1, 0), (-1, 0), (-2, -1)]
    *found, trace = run(
        lambda x: (*(ops.diagonal(x, *axes, offset=offset) for axes in pairs), ops.trace(x, offset=offset)), x
    )
    for one, axes in zip(found, pairs, strict=True):
        check(one, np.diagonal(x, offset, *axes))
    check(trace, np.trace(x, offset))


def test_einsum_keeps_its_diagonals(run: Callable[..., Any]) -> None:
    check(run(lambda x: ops.einsum("aba->ab", x), CUBE), np.einsum("aba->ab", CUBE))


NUMBERS = [math.inf, -math.inf, 1, -1, 0.0, -0.0, 5, math.nan, -3.5, 1e30, 1e-30, 7, -7]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_division_at_the_ends(run: Callable[..., Any], dtype: str) -> None:
    with np.errstate(all="ignore"):
        x, y = (grid.astype(dtype) for grid in np.meshgrid(np.array(NUMBERS), np.array(NUMBERS)))
        quotient, left = x.astype("f8") // y.astype("f8"), x.astype("f8") % y.astype("f8")
    found = run(lambda x, y: (x // y, x % y), x, y)
    for one, other in zip(found, (quotient, left), strict=True):
        with np.errstate(all="ignore"):
            expected = other.astype(dtype)
        np.testing.assert_array_equal(np.asarray(one), expected)
        np.testing.assert_array_equal(np.signbit(np.asarray(one))[expected == 0], np.signbit(expected)[expected == 0])


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integers_by_zero_give_zero(run: Callable[..., Any], dtype: str) -> None:
    x, zero = np.array([5, 0, 7], dtype), np.zeros(3, dtype)
    for found in run(lambda x, y: (x // y, x % y), x, zero):
        check(found, zero)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, -2.5, 20, math.inf, -math.inf])
def test_norms_of_any_order(run: Callable[..., Any], order: float) -> None:
    x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32) * np.float32(1e15)
    x[1, 3] = 0
    found = run(lambda x: ops.norm(x, 1, order=order), x)
    with np.errstate(all="ignore"):
        expected = np.linalg.norm(x.astype(np.float64), order, 1)
    # pow of each side to 2 ulp, of a sum of 40 to 6, which a power of 1/order multiplies
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2.0**-23 * 12 / min(1, abs(order) or 1))


def test_norms_at_the_ends(run: Callable[..., Any]) -> None:
    x = np.array([[1e-40, 2e-40, 0], [1e30, -1e35, 3], [np.inf, 1, 2], [np.nan, 1, 0], [0, 0, 0]], np.float32)
    for order in (3, 0.5, -1, -math.inf, 0):
        with np.errstate(all="ignore"):
            expected = np.linalg.norm(x.astype(np.float64), order, 1).astype(np.float32)
        np.testing.assert_allclose(np.asarray(run(lambda x, o=order: ops.norm(x, 1, order=o), x)), expected, rtol=2e-6)
    empty = run(lambda x: (ops.norm(x, 1, order=3), ops.norm(x, 1, order=-1)), x[:, :0])
    check(empty[0], np.zeros(5, np.float32))
    check(empty[1], np.full(5, np.inf, np.float32))


def test_a_norm_of_no_order() -> None:
    with pytest.raises(ShapeError, match="no order nan"):
        ops.norm(ts.ones(3), order=math.nan)


REDUCTIONS = ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var", "std", "logsumexp", "norm"]
ALONG = ["cumsum", "cumprod", "cummax", "sort", "softmax", "log_softmax"]


@pytest.mark.parametrize("axis", [0, -1, (0,), None])
def test_reductions_of_a_scalar(run: Callable[..., Any], axis: Any) -> None:
    x = np.array(3.0, np.float32)
    for name in REDUCTIONS:
        function = getattr(ops, name)
        whole = function(x, axis=None) if name != "logsumexp" else function(x[None], axis=0)
        check(run(lambda x, f=function: f(x, axis=axis), x), np.asarray(whole))
        check(run(lambda x, f=function: f(x, axis=axis, keepdims=True), x), np.asarray(whole))


@pytest.mark.parametrize("axis", [0, -1])
def test_what_runs_along_an_axis_of_a_scalar(run: Callable[..., Any], axis: int) -> None:
    x = np.array(3.0, np.float32)
    for name in ALONG:
        check(run(lambda x, n=name: getattr(ops, n)(x, axis=axis), x), np.asarray(getattr(ops, name)(x[None]))[0])
    check(run(lambda x: ops.argsort(x, axis), x), np.array(0))
    for found, expected in zip(run(lambda x: ops.topk(x, 1, axis), x), (x, np.array(0)), strict=True):
        check(found, expected)
    for wrong in (1, -2, (0, 0)):
        with pytest.raises(ts.TesseraError):
            ops.sum(x, axis=wrong)


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "uint64", "float16"])
def test_numbers_are_true_where_they_are_not_zero(run: Callable[..., Any], dtype: str) -> None:
    x = np.array([[0, 1, 2], [0, 0, 0], [3, 0, 1]]).astype(dtype)
    y = x.T.copy()
    check(run(ops.logical_and, x, y), np.logical_and(x, y))
    check(run(ops.logical_or, x, y), np.logical_or(x, y))
    check(run(ops.logical_xor, x, y), np.logical_xor(x, y))
    check(run(ops.logical_not, x), np.logical_not(x))
    for axis in (None, 0, -1):
        check(run(lambda x, a=axis: ops.any(x, a), x), np.any(x, axis))
        check(run(lambda x, a=axis: ops.all(x, a), x), np.all(x, axis))
    check(run(lambda x, y: ops.where(x, y, True), x, y), np.where(x, y, np.ones_like(y)))
    check(run(lambda x: ops.where(x, 1.0, 2.0), x), np.where(x, np.float32(1), np.float32(2)))


def test_not_a_number_and_minus_zero_as_conditions(run: Callable[..., Any]) -> None:
    x = np.array([np.nan, -0.0, 0.0, np.inf], np.float32)
    check(run(ops.logical_not, x), np.logical_not(x))


@pytest.mark.parametrize("relation", ["<", "<=", ">", ">=", "==", "!="])
def test_conditions_of_sizes_choose(relation: str) -> None:
    chosen = ts.jit(lambda x: ops.where(eval(f"x.shape[0] {relation} 3"), x, -x), dynamic=True)
    for rows in (2, 3, 4):
        x = np.ones((rows, 2), np.float32)
        check(chosen(x), x if eval(f"{rows} {relation} 3") else -x)
    assert chosen.cache_info().misses == 1


def test_minus_one_keeps_a_dim(run: Callable[..., Any]) -> None:
    x = BOX[:, :1]
    check(run(lambda x: x.expand(2, -1, -1, -1), x), np.broadcast_to(x, (2, 3, 1, 5)))
    if run is not RUNS["dynamic"]:  # where a dim is taken for any size, it does not stretch
        check(run(lambda x: ops.broadcast_to(x, (-1, 2, -1)), x), np.broadcast_to(x, (3, 2, 5)))
    with pytest.raises(ShapeError, match="dim 0 of 4"):
        ops.broadcast_to(x, (-1, 3, 1, 5))


MASKS: dict[str, Any] = {
    "first": np.array([True, False, True]),
    "none": np.zeros(3, bool),
    "two": np.arange(12).reshape(3, 4) % 5 == 0,
    "all three": np.arange(60).reshape(3, 4, 5) % 7 == 1,
    "middle": (slice(None), np.array([False, True, True, False])),
    "last": (..., np.array([True, False, True, False, True])),
    "beside ints": (np.array([True, False, True]), 2),
    "beside a slice": (np.array([True, False, True]), slice(None, None, 2)),
    "beside indices": (np.array([True, False, True]), np.array([3, 0])),
    "list": [True, False, True],
    "new axis": (None, np.array([True, True, False])),
}


@pytest.mark.parametrize("name", MASKS)
def test_constant_masks(run: Callable[..., Any], name: str) -> None:
    check(run(lambda x: x[MASKS[name]], BOX), BOX[MASKS[name]])


def test_masks_of_tensors_and_of_wrong_sizes() -> None:
    x = ts.array(BOX)
    check(x[x > 10], BOX[BOX > 10])
    with pytest.raises(ShapeError, match=r"mask of shape \[4\] does not fit: `x.shape\[0\] = 3`"):
        x[np.ones(4, bool)]
    with pytest.raises(GuardError):
        ts.jit(lambda x: x[np.ones(4, bool)], dynamic=True)(BOX)
    with pytest.raises(ShapeError, match="not known while compiling"):
        ts.jit(lambda x: x[x[:, 0, 0] > 0])(BOX)


def test_i4_computes_and_wraps(run: Callable[..., Any]) -> None:
    x = np.array([-8, -1, 0, 3, 7]).astype(ml_dtypes.int4)
    y = np.array([7, -1, 5, -3, 7]).astype(ml_dtypes.int4)
    wide, other = x.astype(np.int8), y.astype(np.int8)
    made = {"add": wide + other, "mul": wide * other, "sub": wide - other, "maximum": np.maximum(wide, other)}
    made |= {"floordiv": wide // np.where(other, other, 1), "bitwise_and": wide & other}
    for name, result in made.items():
        found = run(getattr(ops, name), x, y)
        check(found, result.astype(ml_dtypes.int4))
    check(run(lambda x, y: x < y, x, y), wide < other)
    check(run(lambda x: x.sum(), x), np.int64(1))
    check(run(lambda x: x.max(), x), np.array(7).astype(ml_dtypes.int4))
    check(run(lambda x: x.argmin(), x), np.int64(0))
    check(run(lambda x: -x, x), (-wide).astype(ml_dtypes.int4))
    check(run(lambda x: x.clip(-2, 2), x), wide.clip(-2, 2).astype(ml_dtypes.int4))


def test_contractions_of_bools(run: Callable[..., Any]) -> None:
    x = np.random.default_rng(3).random((5, 300)) > 0.98
    check(run(lambda x: x @ x.T, x), x @ x.T)
    check(run(lambda x: ops.einsum("ij,kj->ik", x, x), x), x @ x.T)
    numbers = np.arange(300, dtype=np.float32)
    check(run(lambda x, y: x @ y, x, numbers), x.astype(np.float32) @ numbers)


def test_bools_add_and_choose(run: Callable[..., Any]) -> None:
    x, y = np.array([True, False, True, False]), np.array([True, True, False, False])
    check(run(lambda x, y: x + y, x, y), x + y)
    check(run(lambda x, y: x * y, x, y), x * y)
    check(run(lambda x: x.max(), x), x.max())
    check(run(lambda x: x.argmax(), y), y.argmax())
    check(run(lambda x: x.cumsum(), x), x.cumsum())
    with pytest.raises(DTypeError):
        ops.sub(x, y)


@pytest.mark.parametrize("correction", [0, 1, 2])
def test_corrections(run: Callable[..., Any], correction: int) -> None:
    for name in ("var", "std"):
        found = run(lambda x, n=name: getattr(x, n)(-1, correction=correction), BOX)
        np.testing.assert_allclose(np.asarray(found), getattr(BOX, name)(-1, ddof=correction), rtol=1e-6)


def test_tensors_and_tracers_have_the_same_methods() -> None:
    traced = {name for name in vars(TensorMethods) if not name.startswith("_")}
    assert traced == set(METHODS) | {"T", "mT", "at", "to_device"}
    operators = {name for name in vars(TensorMethods) if name.startswith("__")}
    assert operators - {"__slots__", "__doc__", "__module__"} <= set(dir(Tensor))


CHANGING = {"fill", "itemset", "partition", "put", "resize", "setfield", "setflags", "byteswap", "newbyteorder"}
"""Methods of NumPy that change the array."""
OF_MEMORY = {
    "base",
    "ctypes",
    "data",
    "dump",
    "dumps",
    "flags",
    "flat",
    "getfield",
    "itemsize",
    "nbytes",
    "strides",
    "tobytes",
    "tofile",
    "tostring",
    "view",
    "copy",
    "device",
    "to_device",
    "item",
    "tolist",
}
"""What NumPy says of memory, and values, which a tracer does not have."""
OTHERS = {
    "argpartition": "argsort",
    "choose": "where",
    "compress": "x[mask]",
    "conj": "no complex numbers",

    "imag": "the same",    "conjugate": "the same",
    "real": "the same",
    "nonzero": "ops.nonzero",
    "ptp": "ops.ptp",
    "searchsorted": "ops.searchsorted", "trace": "ops.trace",
    "dtype": "an attribute",
    "ndim": "the same",
    "shape": "the same",
    "size": "the same",
}  # fmt: skip


def test_what_numpy_has_and_tensors_have_not() -> None:
    numpy = {name for name in dir(np.ndarray) if not name.startswith("_")}
    assert numpy - set(METHODS) - {"T", "mT"} - CHANGING - OF_MEMORY - set(OTHERS) == set()


METHOD_CALLS: dict[str, Callable[[Any], Any]] = {
    "clip": lambda x: x.clip(0, 1), "clip one": lambda x: x.clip(max=3), "round": lambda x: x.round(),
    "round decimals": lambda x: (x / 8).round(1), "round tens": lambda x: x.round(-1), "builtin": lambda x: round(x),
    "ravel": lambda x: x.ravel(), "repeat": lambda x: x.repeat(2, 1), "take": lambda x: x.take(np.array([3, 50])),
    "take axis": lambda x: x.take(np.array([1, 0]), 1), "divmod": lambda x: divmod(x, 4)[1],
    "diagonal": lambda x: x.diagonal(1), "abs": lambda x: abs(x),
}  # fmt: skip


@pytest.mark.parametrize("name", METHOD_CALLS)
def test_methods_mean_what_numpy_means(run: Callable[..., Any], name: str) -> None:
    found = run(METHOD_CALLS[name], BOX)
    expected = np.round(BOX) if name == "builtin" else METHOD_CALLS[name](BOX)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-7)
    assert found.shape == expected.shape


def test_a_correction_is_an_int() -> None:
    with pytest.raises(ArgumentError, match="correction"):
        ops.std(BOX, correction=1.5)  # pyright: ignore[reportArgumentType]
