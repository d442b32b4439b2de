"""Indices out of bounds: each op that reads or writes by index, in each mode, on each backend, against NumPy."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, PositionError

compiled = cache(ts.jit)
"""`jit`, which compiles a function that is called several times once."""

RUNS: dict[str, Callable[..., Any]] = {
    "eager": lambda function, *args: function(*map(ts.array, args)),
    "jit": lambda function, *args: compiled(function)(*args),
    "dynamic": lambda function, *args: compiled(function, dynamic=True)(*args),
    "reference": lambda function, *args: compiled(function, backend="reference")(*args),
    "debug": lambda function, *args: compiled(function, debug=True)(*args),
}
X = np.arange(1, 21, dtype=np.float32).reshape(5, 4)
NEW = -np.arange(1, 1 + 9 * 4, dtype=np.float32).reshape(9, 4)
INDICES = np.array([0, 4, 5, -1, -5, -6, 100, 2, 0])
KINDS = ["int64", "int32", "int8", "uint8", "uint64"]

READS: dict[str, Callable[..., Any]] = {
    "take": lambda x, i, m: ops.take(x, i, mode=m),
    "embedding": lambda x, i, m: ops.embedding(x, i, mode=m),
    "gather": lambda x, i, m: ops.gather(x, i[:, None], mode=m),
    "take_along_axis": lambda x, i, m: ops.take_along_axis(x, ops.broadcast_to(i[:, None], (9, 4)), 0, mode=m),
    "at": lambda x, i, m: x.at[i].get(mode=m),
    "at columns": lambda x, i, m: x.T.at[:, i].get(mode=m).T,
}
WRITES: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, i, u, m: ops.scatter(x, i, u, mode=m),
    "scatter columns": lambda x, i, u, m: ops.scatter(x.T, i, u.T, axis=1, mode=m).T,
    "scatter_add": lambda x, i, u, m: ops.scatter_add(x, i, u, mode=m),
    "set": lambda x, i, u, m: x.at[i].set(u, mode=m),
    "add": lambda x, i, u, m: x.at[i].add(u, mode=m),
    "mul": lambda x, i, u, m: x.at[i].mul(u, mode=m),
    "max": lambda x, i, u, m: x.at[i].max(u, mode=m),
    "min": lambda x, i, u, m: x.at[i].min(u, mode=m),
    "two": lambda x, i, u, m: x.at[i, i * 0 + 1].set(u[:, 1], mode=m),
}
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "scatter_add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return RUNS[request.param]


def place(index: Any, size: int, mode: str) -> int | None:
    """Where an index leads, as NumPy counts; None for nowhere."""
    at = int(index) + size if index < 0 else int(index)
    if 0 <= at < size:
        return at
    assert mode != "error"
    return None if mode == "drop" else min(max(at, 0), size - 1)


@pytest.mark.parametrize("mode", ["clip", "drop", None])
@pytest.mark.parametrize("name", READS)
def test_reads(run: Callable[..., Any], name: str, mode: str | None) -> None:
    if mode is None and run is RUNS["debug"]:
        with pytest.raises(PositionError, match="outside of an axis of 5"):
            run(lambda x, i: READS[name](x, i, mode), X, INDICES)
        return

    def read(x: Any, i: Any) -> Any:
        return READS[name](x, i, mode)

    for kind in KINDS if name == "take" else KINDS[:1]:
        indices = INDICES.astype(kind)  # below 0, they are far beyond the end of an unsigned one
        places = [place(index, 5, mode or "clip") for index in indices]
        wanted = np.array([np.zeros(4, np.float32) if at is None else X[at] for at in places])
        found = run(read, X, indices)
        np.testing.assert_array_equal(np.asarray(found), wanted, err_msg=kind)


@pytest.mark.parametrize("mode", ["clip", "drop", None])
@pytest.mark.parametrize("name", WRITES)
def test_writes(run: Callable[..., Any], name: str, mode: str | None) -> None:
    if mode is None and run is RUNS["debug"]:
        with pytest.raises(PositionError, match="outside of an axis of 5"):
            run(lambda x, i, u: WRITES[name](x, i, u, mode), X, INDICES, NEW)
        return
    for kind in KINDS if name == "scatter" else KINDS[:1]:
        indices = INDICES.astype(kind)  # below 0, they are far beyond the end of an unsigned one
        wanted = X.copy()
        for index, update in zip(indices, NEW, strict=True):
            at = place(index, 5, mode or "drop")
            if at is None:
                continue
            if name == "two":
                wanted[at, 1] = update[1]
            else:
                wanted[at] = COMBINE[name](wanted[at], update) if name in COMBINE else update
        found = run(lambda x, i, u: WRITES[name](x, i, u, mode), X, indices, NEW)
        np.testing.assert_array_equal(np.asarray(found), wanted, err_msg=kind)


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_errors_name_the_op_the_index_and_the_size(run: Callable[..., Any], name: str) -> None:
    function = READS.get(name) or WRITES[name]
    more = (NEW,) if name in WRITES else ()

    def call(x: Any, i: Any, *u: Any) -> Any:
        return function(x, i, *u, "error")

    inside = np.array([0, 4, -1, -5, 2, 1, 0, 3, 3])
    clipped = run(lambda x, i, *u: function(x, i, *u, "clip"), X, inside, *more)
    np.testing.assert_array_equal(np.asarray(run(call, X, inside, *more)), np.asarray(clipped))
    for wrong in (5, -6, 2**40):
        indices = inside.copy()
        indices[3] = wrong
        with pytest.raises(PositionError, match=f"index {wrong} is outside of an axis of 5 elements") as caught:
            run(call, X, indices, *more)
        said = "at" if name in ("set", "add", "mul", "max", "min", "two") else name.split()[0]
        assert f"`{'x[...]' if name.startswith('at') else said}`" in str(caught.value)
        assert caught.value.span is not None
        assert caught.value.span.file == __file__


def test_an_eager_error_shows_the_line_of_its_own_call() -> None:
    x, lines = ts.array(X), list[int]()
    for call in (lambda: ops.take(x, ts.array([9]), mode="error"), lambda: ops.take(x, ts.array([9]), mode="error")):
        with pytest.raises(PositionError) as caught:
            call()
        assert caught.value.span is not None
        lines.append(caught.value.span.column)
    assert lines[0] != lines[1]


def test_a_mode_that_there_is_not() -> None:
    for call in (lambda: ops.take(X, INDICES, mode="wrap"), lambda: ts.array(X).at[0].set(1.0, mode="fill")):
        with pytest.raises(ArgumentError, match='takes `mode` as "clip", "drop" or "error"'):
            call()


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_axes_of_no_elements(rows: int, is_dynamic: bool) -> None:
    x, i = X[:rows], np.array([0, -1, 7])
    dropped = ts.jit(lambda x, i: ops.take(x, i, mode="drop"), dynamic=is_dynamic)(x, i)
    wanted = np.zeros((3, 4), np.float32) if not rows else np.array([X[0], X[2], X[0] * 0])
    np.testing.assert_array_equal(np.asarray(dropped), wanted)
    for mode in ("drop", "clip"):
        made = ts.jit(lambda x, i, m=mode: x.at[i].set(1.0, mode=m), dynamic=is_dynamic)(x, i)
        assert made.shape == x.shape
    with pytest.raises(PositionError, match=f"outside of an axis of {rows} elements"):
        ts.jit(lambda x, i: ops.scatter(x, i, ts.ones((3, 4)), mode="error"), dynamic=is_dynamic)(x, i)


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_loops_over_no_rows(backend: str, is_dynamic: bool) -> None:
    def total(x: Any, i: Any) -> Any:
        start = ts.zeros((x.shape[1],))
        rows = ts.fori_loop(0, x.shape[0], lambda n, a: a + x[n] + ops.take(x, n, 0), start)
        along = ts.fori_loop(0, x.shape[0], lambda n, a: a + x[i, n % 4].sum() + ops.gather(x, i[:, None]).sum(), 0.0)
        put = ts.fori_loop(0, x.shape[0], lambda n, a: a.at[n].add(1.0), x)
        return rows, along, put

    run = ts.jit(total, dynamic=is_dynamic, backend=backend)
    for rows in (0, 3, 5):
        x, i = X[:rows], np.array([0, 7, -1])
        found = run(x, i)
        np.testing.assert_array_equal(np.asarray(found[0]), 2 * x.sum(0))
        np.testing.assert_array_equal(np.asarray(found[2]), x + 1)


def test_equal_indices_are_updated_in_their_order() -> None:
    """Float sums in order: 1e8 + 1 - 1e8 is not 1 + 1e8 - 1e8."""
    x, i = np.zeros((2, 40), np.float32), np.zeros(3, np.int64)
    updates = np.array([1e8, 1.0, -1e8], np.float32)[:, None] * np.ones((3, 40), np.float32)
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2]):
        wanted = np.float32(0)
        for at in order:
            wanted = np.float32(wanted + updates[at, 0])
        found = ts.jit(lambda x, i, u: x.at[i].add(u))(x, i, updates[order])
        np.testing.assert_array_equal(np.asarray(found)[0], np.full(40, wanted))
