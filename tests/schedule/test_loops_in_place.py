"""Updates of what loops carry are written in place and keep meaning: random bodies, interpreted and compiled."""

# Bodies of loops are lambdas and functions of traced values, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import DONATED
from tessera.ir.schedule.host_program.memory import kept_by, overwritten_by
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.typed_ops import ForOp, WhileOp
from tests.schedule.programs import check_meaning, run_schedule, simplify, tensor, trace

ROWS = 4
TABLE, NUMBER = tensor("4 3"), tensor("", "i64")
Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "add", "add", "map", "read", "count", "inner", "branch", "least"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=5,
)


def _step(step: Step, tables: list[Any], numbers: list[Any], i: Any) -> None:
    """One more table, or number, from those that there are."""
    what, first, second = step
    table, other, number = tables[first % len(tables)], tables[second % len(tables)], numbers[second % len(numbers)]
    if what == "set":
        tables.append(table.at[number % ROWS].set(other[i] * 0.5))
    elif what == "add":
        tables.append(table.at[i].add(other[number % ROWS]))
    elif what == "map":
        tables.append(table * 0.5 + other)
    elif what == "read":
        tables.append(table + other.sum(axis=0))
    elif what == "count":
        numbers.append(number + 1 + first)
    elif what == "inner":
        tables.append(ts.fori_loop(0, ROWS - 1, lambda j, state: state.at[j].add(other[i] * 0.25), table))
    elif what == "branch":
        tables.append(ts.cond(number > 2, lambda: table.at[i].set(1.0), lambda: other))
    else:
        numbers.append(ops.where(number > numbers[first % len(numbers)], number - 1, number))


def program(kind: str, steps: Sequence[Step], carried: Sequence[int], kept: Sequence[int]) -> Any:
    """A loop that carries two tables and a number, and reads a third table; some of its results are given."""

    def function(a: Any, b: Any, c: Any, n: Any) -> Any:
        made = c - 3.0

        def body(i: Any, state: Any) -> Any:
            tables, numbers = [*state[:2], c, made], [state[2]]
            for step in steps:
                _step(step, tables, numbers, i)
            own = [tables[at % len(tables)] for at in carried[:2]]
            return (*own, numbers[carried[2] % len(numbers)])

        start = (a, b + 1.0, n)
        if kind == "for":
            end = ts.fori_loop(0, ROWS, body, start)
        elif kind == "while":
            end = ts.while_loop(lambda s: s[0] < ROWS, lambda s: (s[0] + 1, *body(s[0], s[1:])), (0, *start))[1:]
        else:
            turns = ops.arange(ROWS)
            end, rows = ts.scan(lambda s, i: (body(i, s), s[0] + 0.0), start, turns)
            end = (*end[:2], end[2] + rows.sum().cast("i64"))
        every = [*end, a, c]
        return tuple(every[at % len(every)] for at in kept)

    return function


def arrays(start: int) -> list[Any]:
    rng = np.random.default_rng(start + 9)
    tables = [rng.integers(-8, 8, (ROWS, 3)).astype(np.float32) for _ in range(3)]
    return [*tables, np.array(start, np.int64)]


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["for", "while", "scan"]),
    steps=STEPS,
    carried=st.lists(st.integers(0, 7), min_size=3, max_size=3),
    kept=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    donated=st.sets(st.integers(0, 3)),
    start=st.integers(0, 6),
)
def test_loops_in_place_keep_meaning(
    kind: str, steps: list[Step], carried: list[int], kept: list[int], donated: set[int], start: int
) -> None:
    tape = trace(program(kind, steps, carried, kept), TABLE, TABLE, TABLE, NUMBER)
    tape.promises[DONATED] = tuple(sorted(donated))
    given = arrays(start)
    check_meaning(tape, given)


BODIES: dict[str, Any] = {
    "one update": lambda i, s, c: (s[0].at[i].set(s[1][i]), s[1]),
    "two updates of one": lambda i, s, c: (s[0].at[i].set(c[i]).at[0].add(s[1][i]), s[1]),
    "read after the update": lambda i, s, c: ((t := s[0].at[i].add(1.0)), s[1] + t[0]),
    "the old value read after": lambda i, s, c: (s[0].at[i].set(7.0), s[1] + s[0].sum()),
    "swapped": lambda i, s, c: (s[1].at[i].add(1.0), s[0].at[i].set(3.0)),
    "one becomes both": lambda i, s, c: ((t := s[0].at[i].add(c[i])), t),
    "of what is captured": lambda i, s, c: (s[0] + c.at[i].set(9.0), s[1]),
    "what is captured starts": lambda i, s, c: (ts.fori_loop(0, i, lambda j, t: t.at[j].add(2.0), c), s[1] + s[0]),
    "inner": lambda i, s, c: (ts.fori_loop(0, i, lambda j, t: t.at[j].add(s[1][i]), s[0]), s[1]),
    "inner of both": lambda i, s, c: ts.fori_loop(0, i, lambda j, t: (t[0].at[j].set(t[1][i]), t[1].at[i].add(1)), s),
    "of what is made around": lambda i, s, c: (s[0] + c.at[i].set(9.0), s[1]),
    "maps": lambda i, s, c: (s[0] * 0.5 + c, s[1] + s[0]),
    "branch": lambda i, s, c: (ts.cond(i > 1, lambda: s[0].at[i].set(4.0), lambda: s[0] - 1.0), s[1]),
}


@pytest.mark.parametrize("kind", ["for", "while", "scan"])
@pytest.mark.parametrize("name", BODIES)
def test_compiled_loops_keep_values_and_what_they_are_given(name: str, kind: str) -> None:
    body = BODIES[name]

    def function(a: Any, b: Any, given: Any) -> Any:
        c = given - 3.0 if name == "of what is made around" else given
        if kind == "for":
            return (*ts.fori_loop(0, ROWS, lambda i, s: body(i, s, c), (a, b)), c)
        if kind == "while":
            loop = ts.while_loop(lambda s: s[0] < ROWS, lambda s: (s[0] + 1, *body(s[0], s[1:], c)), (0, a, b))
            return (*loop[1:], a)
        end, rows = ts.scan(lambda s, i: (body(i, s, c), s[0] + s[1]), (a, a), ops.arange(ROWS))
        return (*end, rows, a)

    given = arrays(3)[:3]
    before = [array.copy() for array in given]
    found, wanted = ts.jit(function)(*given), ts.jit(function, backend="reference")(*before)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} in {kind}")
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy, err_msg="an argument was written over")
    donated = ts.jit(function, donate=("a", "b"))(*map(ts.array, given[:2]), given[2])
    for ours, theirs in zip(donated, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} in {kind}, donated")


def loops_of(function: Any, *types: Any) -> list[SpecOp]:
    (plan,) = programs_in(run_schedule(simplify(trace(function, *types)), steps=2))
    return [op for op in plan.walk() if isinstance(op, ForOp | WhileOp)]


def test_a_nest_of_loops_updates_one_buffer() -> None:
    def nest(a: Any) -> Any:
        inner = lambda i, s: ts.fori_loop(0, i, lambda j, t: t.at[j].add(1.0), s)  # noqa: E731
        return ts.fori_loop(0, ROWS, inner, a)

    outer, inner = loops_of(nest, TABLE)
    assert isinstance(outer, ForOp)
    assert isinstance(inner, ForOp)
    assert (kept_by(outer), kept_by(inner)) == ([0], [0])
    assert overwritten_by(inner)[0] is outer.regions[0].block.args[1]
    assert not overwritten_by(outer), "the caller keeps its argument, which is copied once"


@pytest.mark.parametrize(("name", "kept"), [("the old value read after", [0]), ("swapped", []), ("inner", [0, 1])])
def test_what_stays_in_one_buffer(name: str, kept: list[int]) -> None:
    """An update waits for readers of the old value, where nothing needs the new one before."""
    body = BODIES[name]
    loop, *_ = loops_of(lambda a, b: ts.fori_loop(0, ROWS, lambda i, s: body(i, s, None), (a, b)), TABLE, TABLE)
    assert isinstance(loop, ForOp)
    assert kept_by(loop) == kept


def test_what_somebody_needs_old_and_new_is_not_kept() -> None:
    both = lambda i, s: (s[0].at[i].set(7.0), s[0] * s[0].at[i].set(7.0))  # noqa: E731
    (loop,) = loops_of(lambda a, b: ts.fori_loop(0, ROWS, both, (a, b)), TABLE, TABLE)
    assert isinstance(loop, ForOp)
    assert kept_by(loop) == [1]
