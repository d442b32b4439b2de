"""Debug builds on the device: an index outside is named with kernel, program, line and value; programs call Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import CaptureError, PositionError
from tessera.runtime.devices.cuda.driver import is_available
from tests.graph.outside import check_inside, named_outside
from tests.kernel.test_watch import TABLE, counted, numbers, padded, summed
from tests.kernel.test_watch import picked as rows

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]


def picked(x: Any, i: Any) -> Any:
    return x[i]


def taken(x: Any, i: Any) -> Any:
    return ops.take(x, i, axis=0)


def scattered(x: Any, i: Any) -> Any:
    return ops.scatter_add(x, i, ops.ones((i.shape[0], 3)), axis=0)


@pytest.mark.parametrize("use", [picked, taken, scattered])
def test_an_index_outside_is_named_and_others_change_nothing(use: Callable[..., Any]) -> None:
    plain, checked = (ts.jit(use, dynamic=True, backend="cuda", debug=debug) for debug in (False, True))
    check_inside(checked, plain)
    for span in named_outside(checked):
        assert span.file == __file__
        assert span.line == use.__code__.co_firstlineno + 1
    # The device is well, and the next call is right.
    check_inside(checked, plain)


ONES = np.ones((9, 20), np.float32), np.ones((20, 12), np.float32)
MANY = np.full(40000, 5, np.int32)
MANY[[20001, 30000, 39999]] = 7, -1, 9
WRONG: list[tuple[Any, tuple[Any, ...], str]] = [
    (rows, (numbers(0, 1, 2, 3, 4, 7, 6, 0, 1), TABLE), "program [1] of [3]"),
    (rows, (numbers(0, 1, 2, 3, 9, -2, 8, -5, -9), TABLE), "program [1] of [3]"),
    (rows, (MANY, TABLE), "program [5000] of [10000]"),
    (counted, (numbers(0, -1, 1, 6), np.zeros(6, np.float32)), "program [0] of [1]"),
    (summed, (numbers(0, 1, 2, 3, 4, 5), *ONES), "program [1, 0] of [2, 2]"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_a_kernel_is_refused_in_the_words_of_the_cpu(case: int) -> None:
    made, given, program = WRONG[case]
    said: list[str] = []
    for backend in ("cpu", "cuda", "cuda"):
        with pytest.raises(PositionError) as caught:
            made.with_options(debug=True, backend=backend)(*given)
        said.append(str(caught.value))
    assert said[0] == said[1] == said[2]
    assert program in said[0]


def test_what_is_inside_is_right_after_what_is_not() -> None:
    ids = MANY.copy()
    ids[[20001, 30000, 39999]] = 0, 1, 6
    found = rows.with_options(debug=True, backend="cuda")(ids, TABLE)
    np.testing.assert_array_equal(np.asarray(found), TABLE[ids])
    expected = np.where((MANY >= 0) & (MANY < 7), TABLE[np.clip(MANY, 0, 6), 0], np.float32(-1))
    np.testing.assert_array_equal(
        np.asarray(padded.with_options(debug=True, backend="cuda")(MANY, TABLE))[:, 0], expected
    )


def shown(x: Any) -> Any:
    y = x * 2.0
    ts.debug_print("y = {}", y)
    return y + 1.0


def test_programs_print_and_call_python_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    found = ts.jit(shown, backend="cuda")(np.array([1.0, 2.0], np.float32))
    assert capfd.readouterr().out == "y = [2, 4]\n"
    assert found.tolist() == [3.0, 5.0]

    def asked(x: Any) -> Any:
        return ts.io_callback(np.negative, x * 3.0, result=x) + 1.0

    function = ts.jit(asked, backend="cuda")
    for value in (1.0, 2.0):
        assert function(np.full(4, value, np.float32)).tolist() == [1.0 - 3.0 * value] * 4


def test_what_python_raises_is_raised_once() -> None:
    calls: list[int] = []

    def wrong(x: Any) -> None:
        calls.append(1)
        raise KeyError("no such thing")

    def asked(x: Any) -> Any:
        ts.io_callback(wrong, x)
        return x + 1.0

    function = ts.jit(asked, backend="cuda")
    x = ts.cuda.array(np.ones(4, np.float32))
    for count in (1, 2):
        with pytest.raises(KeyError, match="no such thing"):
            function(x)
        assert len(calls) == count


def test_a_program_that_calls_python_is_not_recorded() -> None:
    function = ts.jit(shown, backend="cuda")
    x = ts.cuda.array(np.ones(4, np.float32))
    function(x)
    with pytest.raises(CaptureError, match="calls Python cannot be captured"), ts.cuda.capture():
        function(x)
