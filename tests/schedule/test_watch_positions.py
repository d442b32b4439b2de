"""Watched programs give what they gave, and end where an index is outside; each line with one has a kernel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import PositionError
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Stages
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.dialect import from_tape
from tessera.ir.schedule import pipeline as schedule
from tessera.ir.schedule.plan import programs_in
from tessera.stdlib.kernels import StandardLibrary
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import MACHINE

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def pick(x: Any, i: Any) -> Any:
    return x[i] * 2.0


def add_at(x: Any, i: Any) -> Any:
    return ops.scatter_add(x, i, ops.ones((i.shape[0], 3)), axis=0)


def both(x: Any, i: Any) -> Any:
    first = x[i]
    return first + ops.relu(x)[i]


def _compile(function: Any) -> Any:
    return ts.jit(function, dynamic=True)


def plan(tape: Tape, *, debug: bool) -> ModuleOp:
    module = from_tape(tape)
    stages = Stages(lambda: from_tape(tape))
    stages.run("graph", graph.pipeline(checks=debug), module, graph.EXIT)
    passes = schedule.pipeline(MACHINE, StaticChooser(), StandardLibrary(), debug=debug)
    stages.run("schedule", passes, module, schedule.EXIT)
    return module


@cache
def modules(function: Any) -> tuple[ModuleOp, ModuleOp]:
    tape = _compile(function).trace(X, np.array([0, 1])).tape
    return plan(tape, debug=False), plan(tape, debug=True)


@given(st.lists(st.integers(-6, 5), min_size=1, max_size=6), st.sampled_from([pick, add_at, both]))
@settings(max_examples=15, deadline=None)
def test_watching_changes_nothing_but_what_is_outside(indices: list[int], function: Any) -> None:
    plain, watched = modules(function)
    given = X.copy(), np.array(indices, np.int64)
    if all(-4 <= index < 4 for index in indices):
        for one, other in zip(run_program(watched, *given), run_program(plain, *given), strict=True):
            np.testing.assert_array_equal(one, other)
        return
    with pytest.raises(PositionError) as caught:
        run_program(watched, *given)
    assert any(f"index {index} is outside" in caught.value.message for index in indices if not -4 <= index < 4)


def test_the_text_of_a_watched_program_reads_back() -> None:
    _, watched = modules(pick)
    again = parse_module(print_module(watched))
    verify(again)
    with pytest.raises(PositionError, match="index 7 is outside of an axis of 4 elements"):
        run_program(again, X.copy(), np.array([7]))


def test_equal_groups_of_two_lines_have_a_kernel_each() -> None:
    _, watched = modules(both)
    (program,) = programs_in(watched)
    found = [op for op in program.walk() if isinstance(op, SpecOp) and op.name == "tsched.callback"]
    texts: list[str] = [op.value("text") for op in found]
    lines = {both.__code__.co_firstlineno + 1, both.__code__.co_firstlineno + 2}
    assert all(any(f'{Path(__file__).name}", {line},' in text for text in texts) for line in lines)


def test_what_goes_nowhere_by_numbers_is_not_watched() -> None:
    def halve(x: Any) -> Any:
        return x[1:] * 0.5

    tape = ts.jit(halve, dynamic=True).trace(X).tape
    assert "check_positions" not in print_module(plan(tape, debug=True))
