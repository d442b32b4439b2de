"""The host program: sizes beyond 64 bits are refused with their bytes, wherever they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import GuardError, OutOfMemoryError

N = 1 << 32


def empty(*shape: int) -> np.ndarray[Any, Any]:
    """An array that takes no memory, whatever its other sizes."""
    return np.zeros((0, *shape), np.float32)


@ts.jit(dynamic=True)
def flat_table(x: Any) -> Any:
    row = ops.sum(x, axis=0)
    return ops.reshape(row[:, None] * row[None, :], (-1,))


@ts.jit(dynamic=True)
def through_a_table(x: Any) -> Any:
    table = x.T @ x
    return ops.sum(table @ table)


@ts.jit(dynamic=True)
def join(x: Any, y: Any) -> Any:
    row = ops.sum(x, axis=0)
    return ops.reshape(row[:, None] * row[None, :], (y.shape[0],)) + y


def test_a_dim_of_an_output_that_wraps_to_nothing_is_refused() -> None:
    assert flat_table(empty(3)).shape == (9,)
    with pytest.raises(OutOfMemoryError, match=f"no memory for {4 * N * N} bytes of output") as caught:
        flat_table(empty(N))
    assert any(str(N) in note for note in caught.value.notes)


def test_a_workspace_that_wraps_is_refused() -> None:
    assert through_a_table(empty(3)).item() == 0
    with pytest.raises(OutOfMemoryError, match="bytes of temporaries"):
        through_a_table(empty(N))


def test_a_guard_does_not_hold_by_wrapping() -> None:
    assert join(empty(3), np.ones(9, np.float32)).tolist() == [1.0] * 9
    with pytest.raises(GuardError):
        join(empty(N), np.zeros(0, np.float32))
