"""Reductions over nothing: the identity where there is one, an error where there is none, known or free."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import GuardError, ShapeError

EMPTY = np.zeros((3, 0), np.float32)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_no_identity_is_an_error_where_known_and_a_guard_where_free(name: str, backend: str) -> None:
    def over_rows(x: Any) -> Any:
        return getattr(ops, name)(x, axis=1)

    with pytest.raises(ShapeError, match=rf"`{name}` of no elements has no value: `x.shape\[1\] = 0`"):
        ts.jit(over_rows, backend=backend)(EMPTY)
    free = ts.jit(over_rows, backend=backend, dynamic=True)
    assert free(np.ones((3, 2), np.float32)).shape == (3,)
    with pytest.raises(GuardError, match=f"`{name}` of no elements has no value"):
        free(EMPTY)
    # no rows at all is another matter: there is nothing to answer
    assert free(np.zeros((0, 2), np.float32)).shape == (0,)


@pytest.mark.parametrize("dynamic", [True, False], ids=["free", "known"])
def test_softmax_and_logsumexp_have_an_answer(dynamic: bool) -> None:
    def both(x: Any) -> Any:
        return ops.softmax(x, axis=1), ops.logsumexp(x, axis=1)

    shares, total = ts.jit(both, dynamic=dynamic)(EMPTY)
    assert shares.shape == (3, 0)
    assert total.tolist() == [-np.inf] * 3
