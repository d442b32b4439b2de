"""Fix-its work: each edit that an error offers is typed into the program, and the program then compiles and runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.error import TesseraError
from tests.errors.test_programs import PRELUDE, SECTION, Wrong, programs, run

SHAPES = Path(__file__).parents[1] / "features" / "shape_errors.md"
SHAPE_CODES = ("T0101", "T0103", "T0105", "T0106", "T0205", "T0702", "shape_errors")


def golden() -> list[Wrong]:
    """Every wrong program whose golden text shows an edit, each message once."""
    whole = SHAPES.read_text(encoding="utf-8")
    more = [Wrong(SHAPES, match["name"], match["program"], match["text"]) for match in SECTION.finditer(whole)]
    found = [wrong for wrong in (*programs(), *more) if "\nhelp: " in wrong.text]
    return list({wrong.text.splitlines()[0]: wrong for wrong in found}.values())


def error_of(program: str, folder: Path) -> TesseraError | None:
    """The error that a program raises; None where it runs."""
    try:
        run(program, folder)
    except TesseraError as error:
        return error
    return None


@pytest.mark.parametrize("wrong", golden(), ids=str)
def test_a_program_with_its_fix_compiles(wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = error_of(wrong.program, tmp_path)
    assert error is not None
    assert error.fix is not None
    assert error.fix.span is not None
    run(error.fix.apply(PRELUDE + wrong.program).removeprefix(PRELUDE), tmp_path)


@pytest.mark.parametrize("wrong", golden(), ids=str)
def test_the_text_has_code_place_caret_and_edit(wrong: Wrong) -> None:
    assert re.match(r"error\[T\d{4}\]: ", wrong.text)
    assert len(re.findall(r"--> model\.py:\d+:\d+\n", wrong.text)) == 2
    assert re.search(r"\^+\n", wrong.text)
    assert re.search(r"\nhelp: .+\n +--> .+\n +\|\n *\d+ \| .+\n +\| +\++\n$", wrong.text)


def test_there_are_thirty_of_which_twenty_are_shapes() -> None:
    assert len(golden()) >= 30
    assert len([wrong for wrong in golden() if wrong.file.stem in SHAPE_CODES]) >= 20


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x @ y": lambda x, y: x @ y,
    "ts.ops.stack([x, y])": lambda x, y: np.stack([x, y]),
    "ts.ops.concat([x, y], axis=0)": lambda x, y: np.concatenate([x, y], axis=0),
    "x & y": lambda x, y: x + y,
}


def shown(shape: tuple[int, ...], rank: int) -> Iterator[Any]:
    """An operand transposed, or with one axis or two put in so that it has a rank."""
    array = np.zeros(shape)
    if array.ndim > 1:
        yield array.swapaxes(-1, -2)
    for places in combinations(range(rank), rank - array.ndim) if 0 < rank - array.ndim < 3 else ():
        yield np.expand_dims(array, places)


def is_curable(expression: str, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether NumPy takes the two once one of them is changed, or the axis: then an edit must be offered."""
    rank = max(len(left), len(right))
    pairs = [(one, np.zeros(right)) for one in shown(left, rank)]
    pairs += [(np.zeros(left), other) for other in shown(right, rank)]
    tries = [(CALLS[expression], x, y) for x, y in pairs]
    if "axis" in expression:
        axes = range(min(len(left), len(right)))
        tries += [(partial(_joined, axis), np.zeros(left), np.zeros(right)) for axis in axes]
    return any(_runs(call, x, y) for call, x, y in tries)


def _joined(axis: int, x: Any, y: Any) -> Any:
    return np.concatenate([x, y], axis=axis)


def _runs(call: Callable[[Any, Any], Any], x: Any, y: Any) -> bool:
    try:
        call(x, y)
    except ValueError:
        return False
    return True


BINARY = """f = ts.jit(lambda x, y: {expression})
f.trace(np.zeros({left}, np.{left_dtype}), np.zeros({right}, np.{right_dtype}))
"""
SIZES = st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple)
DTYPES = st.sampled_from(["float32", "float64", "int32", "int64", "uint8", "bool_"])


@given(
    st.sampled_from(["x + y", "x @ y", "ts.ops.stack([x, y])", "ts.ops.concat([x, y], axis=0)", "x & y"]),
    SIZES,
    SIZES,
    DTYPES,
    DTYPES,
)
def test_whatever_is_wrong_with_two_operands_an_edit_is_right(
    tmp_path_factory: pytest.TempPathFactory,
    expression: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    left_dtype: str,
    right_dtype: str,
) -> None:
    """An edit is offered for one mistake at a time: after it, the same mistake is gone.

    Dtypes can always be cast; shapes have an edit where one operand transposed, or given an axis, would fit.
    """
    folder = tmp_path_factory.mktemp("wrong")
    program = BINARY.format(
        expression=expression, left=left, right=right, left_dtype=left_dtype, right_dtype=right_dtype
    )
    seen: list[str] = []
    while (error := error_of(program, folder)) is not None:
        message = str(error).splitlines()[0]
        assert message not in seen, f"the edit cured nothing:\n{error}"
        assert len(seen) < 3, f"three edits were not enough: {seen}\n{program}"
        if error.fix is None or error.fix.span is None:
            assert error.code != "T0102", f"no edit fixes dtypes:\n{error}"
            assert seen or not is_curable(expression, left, right), f"no edit is offered:\n{error}"
            break
        seen.append(message)
        program = error.fix.apply(PRELUDE + program).removeprefix(PRELUDE)
