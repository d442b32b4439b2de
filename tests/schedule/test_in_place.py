"""Updates in place keep meaning: random programs of caches, rows and counters, some of which their caller donates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import DONATED, Tape
from tessera.ir.base.verify import verify
from tessera.ir.schedule.host_program.memory import donated_in, kept_in, overwritten_by
from tessera.ir.schedule.plan import programs_in
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import check_meaning, run_schedule, simplify, tensor, trace

CACHE, ROW, NUMBER = tensor("2 1 5 3"), tensor("2 1 2 3"), tensor("", "i64")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "map", "count", "count", "least", "read"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=6,
)


def program(steps: list[tuple[str, int, int]], kept: list[int]) -> Tape:
    """Two caches, a counter and a row; each step makes one more cache or counter, and some of all are results."""

    def function(*arguments: Any) -> Any:
        caches, numbers, (row,) = list(arguments[:2]), [arguments[2]], arguments[3:]
        read: list[Any] = []
        for what, first, second in steps:
            cache, number = caches[first % len(caches)], numbers[second % len(numbers)]
            if what == "write":
                caches.append(apply("kv_write", (cache, number, row)))
            elif what == "map":
                caches.append(ops.relu(cache))
            elif what == "count":
                numbers.append(number + 1 + first)
            elif what == "least":
                other = numbers[first % len(numbers)]
                numbers.append(ops.where(number > other, number - 1, other))
            else:
                read.append(ops.reshape(cache, (30,)).sum())
        every = [*caches[1:], *numbers[1:], *read]
        return tuple(every[at % len(every)] for at in kept)

    return trace(function, CACHE, CACHE, NUMBER, ROW)


def arrays(start: int) -> list[Any]:
    rng = np.random.default_rng(start + 9)
    shapes = ((2, 1, 5, 3), (2, 1, 5, 3), (2, 1, 2, 3))
    first, second, row = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return [first, second, np.array(start, np.int64), row]


@settings(max_examples=30)
@given(
    steps=STEPS,
    kept=st.lists(st.integers(0, 20), min_size=1, max_size=4),
    donated=st.sets(st.integers(0, 3)),
    start=st.integers(-2, 6),
)
def test_what_is_written_over_nobody_misses(
    steps: list[tuple[str, int, int]], kept: list[int], donated: set[int], start: int
) -> None:
    tape = program(steps, kept)
    tape.promises[DONATED] = tuple(sorted(donated))
    given = arrays(start)
    module = check_meaning(tape, given)
    (placed,) = programs_in(module)
    assert donated_in(placed) == tuple(sorted(donated))
    assert {argument for _, argument in kept_in(placed)} <= donated


def test_an_append_to_what_is_given_up_copies_nothing() -> None:
    tape = program([("write", 0, 0), ("write", 2, 0), ("count", 0, 0)], [2, 3])
    for donated, groups in (((0, 2), 3), ((), 1)):
        tape.promises[DONATED] = donated
        (plan,) = programs_in(run_schedule(simplify(tape), steps=2))
        assert sum(bool(overwritten_by(op)) for op in plan.walk()) == groups
        (placed,) = programs_in(run_schedule(simplify(tape)))
        assert [op.name for op in placed.walk()].count("tsched.alloc") == (0 if donated else 2)
        assert kept_in(placed) == (((0, 0), (1, 2)) if donated else ())


def test_a_number_is_written_over_once_and_by_others_read_before() -> None:
    def count_up(m: Any, n: Any) -> Any:
        return ops.where(m > n, m - 1, n), m + 3

    tape = trace(count_up, NUMBER, NUMBER)
    tape.promises[DONATED] = (0,)
    plan = run_schedule(simplify(tape), steps=2)
    verify(plan)
    assert sum(bool(overwritten_by(op)) for op in plan.walk()) == 1
    assert [int(one) for one in run_program(plan, np.array(7), np.array(5))] == [6, 10]


def test_a_number_is_not_counted_behind_the_end_of_what_it_reads() -> None:
    """The second of two donated counters would move down to its reader, behind the op that writes over the first."""

    def count_up(m: Any, n: Any, x: Any) -> Any:
        more = m + 1
        return ops.exp(x * more.cast("f32")).sum(), x * m.cast("f32"), n + m, more

    tape = trace(count_up, NUMBER, NUMBER, tensor("4"))
    tape.promises[DONATED] = (0, 1)
    for steps in (2, None):
        module = run_schedule(simplify(tape), steps=steps)
        verify(module)
        found = run_program(module, np.array(3), np.array(8), np.ones(4, np.float32))
        assert [int(one) for one in found[2:]] == [11, 4]


def test_what_is_donated_and_returned_is_returned_without_a_copy() -> None:
    tape = trace(lambda x: (ops.reshape(x, (6,)), x), tensor("2 3"))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    tape.promises[DONATED] = (0,)
    (placed,) = programs_in(run_schedule(simplify(tape)))
    assert [op.name for op in placed.walk()].count("tsched.copy") == 1
    assert kept_in(placed) == ((0, 0),)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    module = run_schedule(simplify(tape))
    found = run_program(module, x)
    np.testing.assert_array_equal(found[0], x.reshape(6))
    np.testing.assert_array_equal(found[1], x)


@pytest.mark.parametrize("start", [-9, -1, 0, 3, 4, 5, 2**40])
def test_rows_beyond_the_capacity_are_left_out(start: int) -> None:
    tape = program([("write", 0, 0)], [1])
    tape.promises[DONATED] = (0,)
    given = arrays(start % 7)
    given[2] = np.array(start, np.int64)
    (wanted,) = run_tape(tape, [array.copy() for array in given])
    (found,) = run_program(run_schedule(simplify(tape)), *given)
    np.testing.assert_array_equal(found, wanted)


STATE = tensor("6")
ELEMENTS = st.lists(
    st.tuples(st.sampled_from(["add", "mul", "flip", "sub", "relu"]), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40)
@given(
    steps=ELEMENTS,
    kept=st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True),
    donated=st.sets(st.integers(0, 2), min_size=1),
)
def test_maps_over_what_is_donated_compute_the_same(
    steps: list[tuple[str, int, int]], kept: list[int], donated: set[int]
) -> None:
    def function(*arguments: Any) -> Any:
        made = list(arguments)
        for what, first, second in steps:
            one, other = made[first % len(made)], made[second % len(made)]
            if what == "flip":
                made.append(ops.flip(one, 0) + other)
            else:
                made.append(ops.relu(one) if what == "relu" else getattr(ops, what)(one, other))
        return tuple(made[at % len(made)] for at in kept)

    tape = trace(function, STATE, STATE, STATE)
    tape.promises[DONATED] = tuple(sorted(donated))
    given = [np.random.default_rng(at).standard_normal(6).astype(np.float32) for at in range(3)]
    wanted = run_tape(tape, [array.copy() for array in given])
    for count in (2, 5, None):
        module = run_schedule(simplify(tape), steps=count)
        verify(module)
        found = run_program(module, *[array.copy() for array in given])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_optimizer_keeps_the_memory_of_its_state() -> None:
    """Parameters and moments are written over in one kernel, behind the last reader of the old parameters."""

    def step(w: Any, m: Any, x: Any) -> Any:
        gradient = ops.flip(w, 0) * x
        new = 0.9 * m + gradient
        return w - 0.1 * new, new, (w * w).sum()

    tape = trace(step, STATE, STATE, STATE)
    tape.promises[DONATED] = (0, 1)
    (placed,) = programs_in(run_schedule(simplify(tape)))
    # The gradient reads another element of the parameters, so that it must be in memory to write over them.
    assert kept_in(placed) == ((1, 1),)

    def better(w: Any, m: Any, gradient: Any) -> Any:
        new = 0.9 * m + gradient
        return w - 0.1 * new, new, (w * w).sum()

    tape = trace(better, STATE, STATE, STATE)
    tape.promises[DONATED] = (0, 1)
    (placed,) = programs_in(run_schedule(simplify(tape)))
    assert kept_in(placed) == ((0, 0), (1, 1))
    assert [op.name for op in placed.walk()].count("tsched.alloc") == 1


READS = ("same", "transposed", "operand", "none", "row", "twice")


@settings(max_examples=30)
@given(
    reads=st.tuples(*[st.sampled_from(READS)] * 2),
    donated=st.sets(st.integers(0, 1)),
    is_read_later=st.booleans(),
)
def test_epilogues_write_over_nothing_that_other_blocks_read(
    reads: tuple[str, str], donated: set[int], is_read_later: bool
) -> None:
    """Updates of two tensors with one product: its epilogue reads them as they are, or in ways that are not safe."""

    def function(p: Any, m: Any, x: Any, y: Any) -> Any:
        lhs = p if "operand" in reads else x
        gradient = ops.matmul(lhs, y)
        made: list[Any] = []
        for value, how in zip((p, m), reads, strict=True):
            old = {"transposed": ops.transpose(value), "none": x, "row": value[0]}.get(how, value)
            gradient = gradient + old * (value if how == "twice" else 0.5)
            made.append(gradient)
        return (*made, p * 2.0 + m) if is_read_later else tuple(made)

    tape = trace(function, *[tensor("9 9")] * 4)
    tape.promises[DONATED] = tuple(sorted(donated))
    rng = np.random.default_rng(1)
    given = [rng.integers(-4, 5, (9, 9)).astype(np.float32) for _ in range(4)]
    wanted = run_tape(tape, [array.copy() for array in given])
    for count in (2, None):
        module = run_schedule(simplify(tape), steps=count)
        verify(module)
        found = run_program(module, *[array.copy() for array in given])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_update_in_an_epilogue_takes_no_new_memory() -> None:
    def learn(p: Any, m: Any, x: Any, y: Any) -> Any:
        moment = 0.5 * m + ops.matmul(ops.transpose(x), y)
        return p - 0.25 * moment, moment

    tape = trace(learn, tensor("9 7"), tensor("9 7"), tensor("4 9"), tensor("4 7"))
    tape.promises[DONATED] = (0, 1)
    (placed,) = programs_in(run_schedule(simplify(tape)))
    assert [op.name for op in placed.walk()].count("tsched.alloc") == 0
    assert kept_in(placed) == ((0, 0), (1, 1))
