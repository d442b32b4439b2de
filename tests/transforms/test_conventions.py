"""What derivatives are where there are none: each row of the guide's table, in both modes."""

# Rows are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DifferentiationError

GUIDE = Path(__file__).parents[2] / "docs/guide/derivatives.md"
ROWS = [
    tuple(cell.strip(" `") for cell in line.strip("|").split(" | "))
    for line in GUIDE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `") and line.count(" | `[") == 2
]
NAMES = {"ops": ops, "ts": ts, "inf": np.inf, "nan": np.nan}


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 30


def array(text: str) -> Any:
    return np.array(eval(text, dict(NAMES)), np.float32)


def value_of(expression: str) -> Any:
    return lambda x: ops.sum(eval(expression, {**NAMES, "x": x}))


def test_each_gradient_is_the_one_of_its_row() -> None:
    """In one program: the rows as parts of a tree."""
    points = {expression: array(at) for expression, at, _ in ROWS}

    def total(given: dict[str, Any]) -> Any:
        return sum(value_of(expression)(given[expression]) for expression in points)

    found = ts.grad(total)(points)
    for expression, _, gradient in ROWS:
        np.testing.assert_array_equal(np.asarray(found[expression]), array(gradient), expression)


@pytest.mark.parametrize("row", ROWS[::5], ids=lambda row: row[0])
def test_forward_mode_agrees(row: tuple[str, str, str]) -> None:
    expression, at, gradient = row
    x, wanted = array(at), array(gradient)
    unit = np.zeros_like(x)
    unit[0] = 1.0
    _, tangent = ts.jvp(value_of(expression), (x,), (unit,))
    np.testing.assert_array_equal(np.asarray(tangent), wanted[0])


def test_a_gradient_by_integers_is_refused() -> None:
    for given in (np.arange(3), np.array([True]), 3):
        with pytest.raises(DifferentiationError, match="`grad` differentiates by"):
            ts.grad(lambda x: ops.sum(x * 1.0))(given)


def test_the_way_out_is_one_that_the_transform_has() -> None:
    def scale(x: Any, n: Any) -> Any:
        return (x * n).sum()

    x = np.ones(3, np.float32)
    for n in (3, np.arange(3)):
        for call in (lambda n: ts.vjp(scale, x, n), lambda n: ts.linearize(scale, x, n)):
            with pytest.raises(DifferentiationError, match="let the function capture it"):
                call(n)
        with pytest.raises(DifferentiationError, match="leave it out with `argnums`"):
            ts.grad(scale, (0, 1))(x, n)
