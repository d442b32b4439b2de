"""Loops in strips: what a kernel that may take seconds does between two of them changes no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

OPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda x: x.sum(), lambda x: x.sum(dtype=x.dtype)),
    "max": (lambda x: ts.ops.max(x), np.max),
    "argmax": (lambda x: ts.ops.argmax(x, axis=0), np.argmax),
    "cumsum": (lambda x: ts.ops.cumsum(x, axis=0), lambda x: np.cumsum(x, dtype=x.dtype)),
    "sort": (lambda x: ts.ops.sort(x), np.sort),
}
ASKS = "tessera_is_stopped"


def values(count: int, dtype: type) -> Any:
    """Integers whose sums are exact in every dtype and order, and wrap in none."""
    return np.random.default_rng(count).integers(-3, 4, count).astype(dtype)


@pytest.mark.parametrize("count", [1, 1000, (1 << 18) + 1, 3_000_001])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_results_do_not_depend_on_strips(name: str, dynamic: bool, count: int) -> None:
    function, reference = OPS[name]
    for dtype in (np.float32, np.int32):
        x = values(count, dtype)
        found = ts.jit(function, dynamic=dynamic)(x).numpy()
        assert np.array_equal(found, reference(x)), dtype


def text_of(function: Callable[[Any], Any], *shape: int, dynamic: bool = False) -> str:
    return str(ts.jit(function, dynamic=dynamic).lower(np.zeros(shape, np.float32)).llvm)


def test_long_loops_ask_and_short_ones_do_not() -> None:
    total = OPS["sum"][0]
    assert ASKS not in text_of(total, 1000)
    assert ASKS in text_of(total, 100_000_000)
    assert ASKS in text_of(total, 1000, dynamic=True)
    # Rows: the pool stops between them, and short ones must not pay.
    assert ASKS not in text_of(lambda x: x.sum(axis=1), 100, 1000, dynamic=True)
    assert ASKS not in text_of(lambda x: x + 1.0, 100, 1000, dynamic=True)


def test_matmuls_and_sorts_ask_between_blocks() -> None:
    assert ASKS in text_of(lambda x: x @ x, 64, 64)
    assert ASKS in text_of(OPS["sort"][0], 1000)
