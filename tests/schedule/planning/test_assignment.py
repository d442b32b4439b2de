"""Assignments of strategies: three ways to solve find the same time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.assignment import (
    Assignment,
    AssignmentProblem,
    Node,
    Strategy,
    solve,
    solve_dynamic,
    solve_milp,
    try_all,
)

SHARDINGS = ("R", "S0", "S1")


@st.composite
def problems(draw: Callable[[st.SearchStrategy[int]], int]) -> AssignmentProblem:
    """Small programs: inputs of some bytes, ops that read one or two values, and an output that may be tied."""
    number = st.integers(0, 30)
    inputs = draw(st.integers(1, 2))
    ties = draw(st.integers(0, 1))
    nodes: list[Node] = []
    for at in range(inputs):
        own = tuple(Strategy((), (one,), 0.0, float(draw(number))) for one in SHARDINGS)
        nodes.append(Node(f"in{at}", (), (f"in{at}",), own, "in0" if ties and at == 0 else ""))
    values = [f"in{at}" for at in range(inputs)]
    for at in range(draw(st.integers(1, 3))):
        reads = tuple(values[draw(st.integers(0, len(values) - 1))] for _ in range(draw(st.integers(1, 2))))
        kinds = (*SHARDINGS, "*")
        own = tuple(
            Strategy(
                tuple(kinds[draw(st.integers(0, 3))] for _ in reads),
                (SHARDINGS[draw(st.integers(0, 2))],),
                float(draw(number)),
            )
            for _ in range(draw(st.integers(1, 3)))
        )
        nodes.append(Node(f"op{at}", reads, (f"op{at}",), own))
        values.append(f"op{at}")
    ends = tuple(Strategy((one,), (), 0.0) for one in SHARDINGS) if ties else (Strategy(("R",), (), 0.0),)
    nodes.append(Node("out", (values[-1],), (), ends, "in0" if ties else ""))
    prices = {pair: float(draw(number)) for pair in ((a, b) for a in SHARDINGS for b in SHARDINGS)}
    most = float(draw(st.integers(0, 90))) if draw(st.integers(0, 1)) else math.inf
    return AssignmentProblem(nodes, lambda value, source, target: prices[source, target] + len(value) / 8, most)


def no_price(value: str, source: str, target: str) -> float:
    return 0.0


def time_of(solver: Callable[[AssignmentProblem], Assignment], problem: AssignmentProblem) -> float | None:
    """The time that a solver finds; None where it says that nothing fits."""
    try:
        found = solver(problem)
    except ScheduleError:
        return None
    assert problem.is_allowed(found.choice)
    assert math.isclose(problem.evaluate(found.choice).time, found.time)
    return found.time


@given(problems())
@settings(max_examples=40, deadline=None)
def test_the_dynamic_program_and_the_solver_find_the_least_of_all(problem: AssignmentProblem) -> None:
    pytest.importorskip("scipy")
    times = [time_of(solver, problem) for solver in (try_all, solve_dynamic, solve_milp)]
    assert all((one is None) == (two is None) for one, two in pairwise(times))
    if times[0] is not None:
        assert all(math.isclose(times[0], one or 0.0, abs_tol=1e-6) for one in times[1:])


def test_a_conversion_that_two_readers_want_is_paid_once() -> None:
    read = (Strategy(("S0",), ("R",), 1.0),)
    nodes = [
        Node("x", (), ("x",), (Strategy((), ("R",), 0.0),)),
        Node("a", ("x",), ("a",), read),
        Node("b", ("x",), ("b",), read),
    ]
    problem = AssignmentProblem(nodes, lambda value, source, target: 10.0)
    for solver in (try_all, solve_dynamic, solve_milp):
        found = solver(problem)
        assert found.time == 12.0
        assert found.conversions == (("x", "R", "S0"),)


def test_problems_that_are_none_are_refused() -> None:
    with pytest.raises(ScheduleError, match="`a` reads `x`, which is not there"):
        AssignmentProblem([Node("a", ("x",), (), (Strategy(("R",), (), 0.0),))], no_price)
    with pytest.raises(ScheduleError, match="`a` has no strategy"):
        AssignmentProblem([Node("a", (), (), ())], no_price)
    with pytest.raises(ScheduleError, match="there is no solver `oracle`"):
        solve(AssignmentProblem([], no_price), "oracle")
