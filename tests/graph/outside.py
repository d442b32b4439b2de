"""What debug builds do with indices, on any machine: inside nothing changes, outside each is named with its place."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics.codes import PositionError
from tessera.diagnostics.error import Span

X = np.arange(12, dtype=np.float32).reshape(4, 3)
INSIDE = np.array([3, -4, 0, 2, -1])


def check_inside(checked: Any, plain: Any) -> None:
    np.testing.assert_array_equal(np.asarray(checked(X, INSIDE)), np.asarray(plain(X, INSIDE)))


def named_outside(checked: Any) -> list[Span]:
    """The spans of the errors that indices outside of the first axis of `X` are refused with."""
    spans: list[Span] = []
    for wrong in (4, -5, 2**40):
        with pytest.raises(PositionError, match=rf"index {wrong} is outside of an axis of 4 elements") as caught:
            checked(X, np.array([0, 1, wrong, 3]))
        where, stands, rule = caught.value.notes
        assert re.fullmatch(r"kernel `\w+`, program \[[\d, ]+\] of \[[\d, ]+\]", where)
        assert "it stands at [2" in stands
        assert "an index is in -4..3" in rule
        assert "a debug build checks, others" in rule
        assert 'mode="clip"' in str(caught.value.fix)
        assert caught.value.span is not None
        spans.append(caught.value.span)
    return spans
