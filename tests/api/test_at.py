"""`x.at[...]` against NumPy's assignment for every form of index, and slices that begin where a tensor says."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DTypeError, GuardError, IndexRangeError, ShapeError

RUNS: dict[str, Callable[..., Any]] = {
    "eager": lambda function, *args: function(*map(ts.array, args)),
    "jit": lambda function, *args: ts.jit(function)(*args),
    "dynamic": lambda function, *args: ts.jit(function, dynamic=True)(*args),
    "reference": lambda function, *args: ts.jit(function, backend="reference")(*args),
}
X = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
METHODS: dict[str, Any] = {"set": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}

INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -2,
    "ints": (1, -1, 2),
    "slice": slice(1, 3),
    "steps": (slice(None, None, 2), slice(1, None, 3)),
    "backwards": (slice(None, None, -1), slice(4, 0, -2)),
    "empty slice": slice(3, 1),
    "ellipsis": (..., 2),
    "new axes": (None, slice(1, None), None, 2),
    "all": (),
    "indices": np.array([2, 0, 2, 2]),
    "list": [3, 3, 0],
    "matrix": (slice(None), np.array([[0, 4], [4, -1]])),
    "two": (np.array([0, 0, 3]), np.array([1, 1, 2])),
    "apart": (np.array([0, 1, 0]), slice(None), np.array([5, 5, 5])),
    "broadcast": (np.array([[0], [2]]), np.array([1, 1, 3])),
    "beside a slice": (slice(1, 4), np.array([0, 0, 2]), slice(None, None, -2)),
    "beside an int": (2, np.array([0, 0, 4])),
    "last": (..., np.array([0, 5, 0])),
    "scalar": np.array(3),
    "mask": np.array([True, False, True, True]),
    "deep mask": X[:, :, 0] > 0,
    "mask and slice": (slice(1, 3), np.array([True, False, True, True, False])),
    "no indices": np.zeros(0, np.int64),
}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return RUNS[request.param]


def expected(x: Any, index: Any, values: Any, name: str) -> Any:
    out = x.copy()
    if METHODS[name] is None:
        out[index] = values
    else:
        METHODS[name].at(out, index, values)
    return out


@pytest.mark.parametrize("form", INDICES)
def test_every_form_of_index(run: Callable[..., Any], form: str) -> None:
    index = INDICES[form]
    shape = X[index].shape
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    names = tuple(METHODS) if form in ("two", "beside a slice", "steps") else ("set", "add")
    found = run(lambda x, v: [x.at[index].get(), *(getattr(x.at[index], name)(v) for name in names)], X, values)
    np.testing.assert_array_equal(np.asarray(found[0]), X[index])
    for name, made in zip(names, found[1:], strict=True):
        np.testing.assert_array_equal(np.asarray(made), expected(X, index, values, name), err_msg=name)


def _masked(name: str, x: Any, row: Any, mask: Any) -> list[Any]:
    """Updates by masks that the program computes, or gets."""
    return [
        getattr(x.at[x > 0], name)(2.0),
        getattr(x.at[mask], name)(row),
        getattr(x.at[mask, 1], name)(x.sum()),
        getattr(x.at[1:3, x[0, :, 0] > 0, ::2], name)(row[::2]),
        getattr(x.at[..., row > 0], name)(3.0),
        getattr(x.at[-1, mask[1]], name)(row),
    ]


@pytest.mark.parametrize("name", METHODS)
def test_masks_with_values_that_are_not_known(run: Callable[..., Any], name: str) -> None:
    def wanted(index: Any, values: Any) -> Any:
        return expected(X, index, values, name)

    row, mask = X[1, 2], X[:, :, 3] > 0
    found = run(partial(_masked, name), X, row, mask)
    indices = (
        X > 0,
        mask,
        (mask, 1),
        (slice(1, 3), X[0, :, 0] > 0, slice(None, None, 2)),
        (..., row > 0),
        (-1, mask[1]),
    )
    for made, index, values in zip(found, indices, (2.0, row, X.sum(), row[::2], 3.0, row), strict=True):
        np.testing.assert_allclose(np.asarray(made), wanted(index, values), rtol=1e-6)


def test_masks_that_are_not_known_must_fit_and_take_values_for_all() -> None:
    def fill(x: Any, mask: Any) -> Any:
        return x.at[mask].set(0.0)

    for shape, axis, sizes in (((4, 1), 1, "5` and its size there is 1"), ((3, 5), 0, "4` and its size there is 3")):
        with pytest.raises(IndexRangeError, match=rf"does not fit: `x.shape\[{axis}\] = {sizes}"):
            ts.jit(fill)(X, np.ones(shape, np.bool_))
    for size in (1, 3):  # 1 is not broadcast
        with pytest.raises(GuardError, match=f"is {size} and .* is 4, but they must be equal"):
            ts.jit(fill, dynamic=True)(X, np.ones(size, np.bool_))
    with pytest.raises(ShapeError, match=r"the values, \[6\], have an axis for what a mask picks") as caught:
        ts.jit(lambda x, v: x.at[x > 0].set(v))(X, X[0, 0])
    assert any("with 0 axes at most" in note for note in caught.value.notes)
    with pytest.raises(IndexRangeError, match="a mask cannot be an index"):
        ts.jit(lambda x, at: x.at[x[:, 0, 0] > 0, at].set(0.0))(X, np.array([0, 1, 2, 3]))


def _add(index: Any, values: Any, x: Any) -> Any:
    return x.at[index].add(values)


def test_values_broadcast_and_are_numbers(run: Callable[..., Any]) -> None:
    for index, values in ((slice(1, 3), 2.5), ((0, slice(None, None, 2)), 1), (np.array([0, 0]), X[0, 0])):
        found = run(partial(_add, index, values), X)
        np.testing.assert_array_equal(np.asarray(found), expected(X, index, values, "add"))
    with pytest.raises(ShapeError):
        ts.array(X).at[0].set(np.ones(7, np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64", "bool", "bfloat16", "int4"])
def test_dtypes(run: Callable[..., Any], dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    rng = np.random.default_rng(2)
    wide: Any = (
        np.int32
        if dtype == "int4"
        else np.float64
        if kind.itemsize < 4 and dtype[-2:] in ("16",) and "i" not in dtype
        else kind
    )
    x, values = (rng.integers(0, 2 if dtype == "bool" else 5, (6, 3)).astype(kind) for _ in range(2))
    index = np.array([1, 5, 1, 0, 1, 2])
    every = run(lambda x, v: [getattr(x.at[index], name)(v) for name in METHODS], x, values)
    for (name, combine), found in zip(METHODS.items(), every, strict=True):
        wanted = x.astype(wide)
        if combine is None:
            wanted[index] = values.astype(wide)
        elif dtype == "bool":
            {"add": np.logical_or, "mul": np.logical_and, "max": np.logical_or, "min": np.logical_and}[name].at(
                wanted, index, values
            )
        else:
            combine.at(wanted, index, values.astype(wide))
        assert found.dtype == ts.array(x).dtype
        np.testing.assert_array_equal(np.asarray(found).astype(wide), wanted.astype(kind).astype(wide), err_msg=name)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize(
    ("index", "shape", "selected"),
    [
        (slice(0, 2), (5,), r"\[2\]"),
        ([0, 1], (5,), r"\[2\]"),
        (slice(0, 2), (1, 2), r"\[2\]"),
        (0, (5,), r"\[\]"),
    ],
)
def test_values_that_do_not_fit_are_told_with_both_shapes(
    method: str, index: Any, shape: tuple[int, ...], selected: str
) -> None:
    given = ", ".join(map(str, shape))
    with pytest.raises(ShapeError, match=rf"the values, \[{given}\], do not fit what `at\[...\]` selects, {selected}"):
        getattr(ts.zeros((4,)).at[index], method)(ts.zeros(shape))


def test_values_of_traced_sizes_that_never_fit_are_refused() -> None:
    def wrong(x: ts.Tensor["N", ts.f32]) -> Any:
        return x.at[:].set(ops.concat([x, ts.zeros((1,))]))

    with pytest.raises(ShapeError, match=r"the values, \[N \+ 1\], do not fit what `at\[...\]` selects, \[N\]"):
        ts.jit(wrong)(ts.zeros((4,)))


def test_values_that_the_dtype_does_not_hold_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"keeps the dtype of `x`, i64, which does not hold 0\.5"):
        ts.arange(3).at[0].set(0.5)
    with pytest.raises(DTypeError, match="which does not hold f32"):
        ts.ones((3,), ts.bf16).at[0].add(ts.ones(()))
    with pytest.raises(IndexRangeError):
        ts.arange(3).at[3].set(0)
    with pytest.raises(ArgumentError):
        ts.arange(3).at[0].set(0, 1)  # pyright: ignore[reportCallIssue]


def test_traced_indices_and_loops(run: Callable[..., Any]) -> None:
    def fill(x: Any, i: Any) -> Any:
        once = x.at[i].set(0.0).at[1, i].add(5.0).at[..., i - 1].mul(2.0)
        return ts.fori_loop(0, 4, lambda n, a: a.at[n, n].set(9.0), once)

    wanted = X.copy()
    wanted[2], wanted[..., 1] = 0, wanted[..., 1]
    wanted[1, 2] += 5
    wanted[2] = 0
    wanted[..., 1] *= 2
    for n in range(4):
        wanted[n, n] = 9
    if run is RUNS["eager"]:
        return
    np.testing.assert_array_equal(np.asarray(run(fill, X, np.array(2))), wanted)


SLICES = [
    ((0, 0, 0), (4, 5, 6)),
    ((1, 0, 2), (2, 5, 3)),
    ((-1, 2, 0), (2, 2, 6)),
    ((9, -9, 3), (1, 3, 2)),
    ((2, 0, 0), (0, 5, 6)),
]


@pytest.mark.parametrize(("starts", "sizes"), SLICES)
def test_slices_that_begin_where_tensors_say(run: Callable[..., Any], starts: Any, sizes: Any) -> None:
    begins = [min(max(s + n if s < 0 else s, 0), n - size) for s, n, size in zip(starts, X.shape, sizes, strict=True)]
    where = tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
    arrays = [np.array(start, np.int32) for start in starts]
    update = np.full(sizes, 7, np.float32)

    def every(x: Any, u: Any, together: Any, *apart: Any) -> Any:
        cut = [ops.dynamic_slice(x, begin, sizes) for begin in (apart, together)]
        return *cut, ops.dynamic_update_slice(x, u, apart), ops.dynamic_update_slice(x, u, starts)

    found = run(every, X, update, np.array(starts), *arrays)
    wanted = X.copy()
    wanted[where] = update
    for made, right in zip(found, (X[where], X[where], wanted, wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(made), right)


def test_many_rows_are_replaced_at_once() -> None:
    x, update = np.zeros((100, 3), np.float32), np.arange(120, dtype=np.float32).reshape(40, 3)
    wanted = x.copy()
    wanted[25:65] = update
    found = ts.jit(lambda x, u, i: ops.dynamic_update_slice(x, u, (i, 0)))(x, update, np.array(25))
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_slices_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match=r"cannot cut 7 elements from `x.shape\[2\] = 6`"):
        ops.dynamic_slice(X, (0, 0, 0), (1, 1, 7))
    with pytest.raises(ShapeError, match="a start and a size for each of 3 axes"):
        ops.dynamic_slice(X, (0, 0), (1, 1))
    with pytest.raises(GuardError):
        ts.jit(lambda x: ops.dynamic_slice(x, (0, 0, 0), (1, 1, 7)), dynamic=True)(X)
    with pytest.raises(ShapeError, match="an update of as many"):
        ops.dynamic_update_slice(X, X[0], (0, 0, 0))
    with pytest.raises(ShapeError, match="starts as integers"):
        ops.dynamic_slice(X, (0, 0, ts.ones(())), (1, 1, 1))


def test_sizes_may_be_dynamic() -> None:
    half = ts.jit(lambda x, i: ops.dynamic_slice(x, (i, 0), (x.shape[0] // 2, x.shape[1])), dynamic=True)
    for rows in (4, 7, 10):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(np.asarray(half(x, np.array(1))), x[1 : 1 + rows // 2])
    assert half.cache_info().misses == 1
