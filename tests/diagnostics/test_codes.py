"""Error classes: who catches what Python raises for the same mistake catches ours, as the guide's table says."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import all_codes
from tessera.diagnostics.error import TesseraError

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "first-day.md"
X = np.zeros((2, 3), np.float32)


def same(x: Any) -> Any:
    return x


def as_float(x: Any) -> float:
    return float(x.sum())


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else -x


MISTAKES: list[tuple[type[Exception], Callable[[], Any]]] = [
    (IndexError, lambda: ts.ones((2, 3))[5]),
    (IndexError, lambda: ts.ones((2, 3))[0, 0, 0]),
    (IndexError, lambda: ts.ones((2, 3))[1.5]),
    (IndexError, lambda: ts.ops.softmax(X, axis=9)),
    (ValueError, lambda: ts.ops.softmax(X, axis=9)),
    (ValueError, lambda: ts.ones((2, 3)) + ts.ones((4,))),
    (ValueError, lambda: ts.ones((2, 3)) @ ts.ones((4,))),
    (ValueError, lambda: ts.ops.reshape(X, (4, 4))),
    (TypeError, lambda: ts.ops.softmax()),  # pyright: ignore[reportCallIssue, reportUnknownLambdaType]
    (TypeError, lambda: ts.ops.softmax(X, dim=1)),  # pyright: ignore[reportCallIssue, reportUnknownLambdaType]
    (TypeError, lambda: ts.ops.add(X, "one")),
    (TypeError, lambda: ts.jit(as_float)(X)),
    (TypeError, lambda: ts.jit(branch)(X)),
    (TypeError, lambda: ts.jit(branch)()),
    (TypeError, lambda: len(ts.ones(()))),
    (ValueError, lambda: ts.ops.einsum("ij,jk", X, X)),
    (ValueError, lambda: float(ts.ones((2,)))),
    (KeyError, lambda: ts.jit(same, overrides={"no.such": 1})(X)),
    (TypeError, lambda: ts.jit(same, no_such=1)),
    (TypeError, lambda: ts.ones((2,)).__setitem__(0, 1.0)),  # pyright: ignore[reportAttributeAccessIssue]
]


@pytest.mark.parametrize("at", range(len(MISTAKES)))
def test_what_python_raises_for_a_mistake_catches_ours(at: int) -> None:
    kind, call = MISTAKES[at]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, TesseraError)
    assert str(caught.value).startswith("error[T"), "not the text of the other base"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_table_of_the_guide_is_true_and_whole() -> None:
    told: dict[str, set[str]] = {}
    for codes, kinds in re.findall(r"^\| .*\((T\d.*)\) \| (.*) \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE):
        told |= {code: set(re.findall(r"`(\w+)`", kinds)) for code in codes.split(", ")}
    own = {code: {base.__name__ for base in cls.__mro__ if base in PYTHON} for code, cls in all_codes().items()}
    assert told == {code: kinds for code, kinds in own.items() if kinds and code not in UNLISTED}


PYTHON = (ValueError, TypeError, IndexError, KeyError, MemoryError, FloatingPointError, RuntimeError)
UNLISTED = {"T0303", "T0304", "T0705", "T0801", "T0802", "T0803", "T0810"}
"""Those of IR texts, of the environment and of tuning, which no first day meets."""
