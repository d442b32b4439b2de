"""Slices at computed starts: read and written in one piece, differentiated, batched, and written in place by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DTypeError, ShapeError

RNG = np.random.default_rng(7)
Y = RNG.integers(-9, 9, (2, 4, 3, 5)).astype(np.float32)
STARTS = np.array([0, 2, 1])


def read(x: Any, i: Any, j: Any) -> Any:
    return ops.dynamic_slice(x, (0, i, 0, j), (1, 2, 3, 2))


def write(x: Any, u: Any, i: Any, j: Any) -> Any:
    return ops.dynamic_update_slice(x, u, (1, i, 0, j))


def written(x: np.ndarray[Any, Any], u: np.ndarray[Any, Any], i: int, j: int) -> np.ndarray[Any, Any]:
    out = x.copy()
    out[1:2, i : i + 2, :, j : j + 2] = u
    return out


@pytest.mark.parametrize("batched", [(0, 0, None), (None, 0, 0), (0, None, None), (0, 0, 0), (None, None, 0)])
def test_batches_read_their_own(batched: tuple[int | None, ...]) -> None:
    given = [
        np.stack([Y, Y + 1, Y + 2]) if batched[0] == 0 else Y,
        *(STARTS if one == 0 else np.array(1) for one in batched[1:]),
    ]
    found = np.asarray(ts.vmap(read, in_axes=batched)(*given))
    for at in range(3):
        x, i, j = (one if axis is None else one[at] for one, axis in zip(given, batched, strict=True))
        np.testing.assert_array_equal(found[at], x[:1, int(i) : int(i) + 2, :, int(j) : int(j) + 2])


@pytest.mark.parametrize("batched", [(0, 0, 0, None), (None, 0, 0, 0), (0, None, None, None), (None, None, 0, 0)])
def test_batches_write_their_own(batched: tuple[int | None, ...]) -> None:
    u = RNG.integers(-9, 9, (3, 1, 2, 3, 2)).astype(np.float32)
    given = [np.stack([Y, Y + 1, Y + 2]) if batched[0] == 0 else Y, u if batched[1] == 0 else u[0]]
    given += [STARTS if one == 0 else np.array(1) for one in batched[2:]]
    found = np.asarray(ts.vmap(write, in_axes=batched)(*given))
    for at in range(3):
        x, new, i, j = (one if axis is None else one[at] for one, axis in zip(given, batched, strict=True))
        np.testing.assert_array_equal(found[at], written(x, new, int(i), int(j)))


def test_gradients_are_where_elements_went() -> None:
    i, j, u = np.array(2), np.array(1), np.ones((1, 2, 3, 2), np.float32)

    def loss(x: Any, u: Any) -> Any:
        return (write(x, u, i, j) ** 2).sum() + (read(x, i, j) ** 3).sum()

    of_x, of_u = (np.asarray(one) for one in ts.grad(loss, argnums=(0, 1))(Y, u))
    wanted = written(2 * Y, np.zeros_like(u), 2, 1)
    wanted[:1, 2:4, :, 1:3] += 3 * Y[:1, 2:4, :, 1:3] ** 2
    np.testing.assert_allclose(of_x, wanted, rtol=1e-6)
    np.testing.assert_array_equal(of_u, 2 * u)

    def write_here(x: Any) -> Any:
        return write(x, u, i, j)

    tangent = np.asarray(ts.jvp(write_here, (Y,), (Y,))[1])
    np.testing.assert_array_equal(tangent, written(Y, np.zeros_like(u), 2, 1))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "bool", "f64"])
def test_what_is_written_is_read_again(dtype: str) -> None:
    x, u = (ts.array(RNG.integers(0, 2, shape)).cast(dtype) for shape in ((7, 2, 40), (3, 2, 33)))

    def both(x: Any, u: Any, i: Any, j: Any) -> Any:
        made = ops.dynamic_update_slice(x, u, (i, 0, j))
        return made, ops.dynamic_slice(made, (i, 0, j), (3, 2, 33))

    for i, j in ((0, 0), (4, 7), (-1, 3), (2, 99)):
        made, again = ts.jit(both)(x, u, np.array(i), np.array(j))
        first, second = min(i % 7 if i < 0 else i, 4), min(j, 7)
        wanted = np.asarray(x).copy()
        wanted[first : first + 3, :, second : second + 33] = np.asarray(u)
        np.testing.assert_array_equal(np.asarray(made), wanted)
        np.testing.assert_array_equal(np.asarray(again), np.asarray(u))


def test_a_loop_writes_the_slice_alone() -> None:
    def fill(x: Any, u: Any) -> Any:
        return ts.fori_loop(0, 5, lambda i, s: ops.dynamic_update_slice(s, u + s[i, 0], (i, 2 * i)), x)

    x, u = RNG.integers(-9, 9, (8, 20)).astype(np.float32), RNG.integers(-9, 9, (2, 9)).astype(np.float32)
    wanted = x.copy()
    for i in range(5):
        wanted[i : i + 2, 2 * i : 2 * i + 9] = u + wanted[i, 0]
    np.testing.assert_array_equal(np.asarray(ts.jit(fill)(x, u)), wanted)
    text = str(ts.jit(fill).lower(x, u).schedule)
    body = text[text.index("tsched.for") : text.index("tsched.yield")]
    assert "slice_write" in body
    assert "_copy" not in body


def test_a_gradient_is_written_in_one_piece() -> None:
    def loss(x: Any, i: Any) -> Any:
        return (ops.dynamic_slice(x, (i, 0, i, 1), (1, 3, 2, 4)) ** 2).sum()

    gradient = ts.jit(ts.grad(loss))
    for i in (0, 1):
        wanted = np.zeros_like(Y)
        part = (slice(i, i + 1), slice(0, 3), slice(i, i + 2), slice(1, 5))
        wanted[part] = 2 * Y[part]
        np.testing.assert_array_equal(np.asarray(gradient(Y, np.array(i))), wanted)
    text = str(gradient.lower(Y, np.array(0)).schedule)
    assert "tsched.fuse @slice_write" in text
    assert "scatter" not in text


def test_errors_name_the_function_that_was_called() -> None:
    with pytest.raises(ShapeError, match="`dynamic_slice` got a size below zero: -1 for axis 2"):
        ops.dynamic_slice(Y, (0, 0, 0, 0), (2, 4, -1, 5))
    with pytest.raises(DTypeError, match="`dynamic_update_slice` cannot mix f32 and i32"):
        ops.dynamic_update_slice(Y, np.ones((1, 1, 1, 1), np.int32), (0, 0, 0, 0))
    with pytest.raises(DTypeError, match="`dynamic_update_slice` keeps the dtype of `x`, bf16"):
        ops.dynamic_update_slice(ts.array(Y).cast("bf16"), Y, (0, 0, 0, 0))
