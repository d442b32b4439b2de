"""The order of launches: any run that keeps it gives the same bits, and an edge less is found, by name and by bytes."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import ops
from tessera.api.control import cond, fori_loop, scan, while_loop
from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.schedule.host_program.accesses import ByteRange, Memory
from tessera.ir.schedule.host_program.launch_order import (
    BEGIN,
    LaunchOrder,
    Node,
    StreamPlan,
    assign_streams,
    ops_of,
    order_among,
    order_of,
)
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.passes.reorder_launches import ReorderLaunches
from tessera.ir.schedule.plan import programs_in
from tessera.types.dim import Dim
from tessera.types.effect import Effects
from tests.oracles.any_order import AnyOrder
from tests.oracles.launch_orders import (
    critical_path,
    is_sequential,
    log_of,
    reduce_order,
    without_edge,
    without_wait,
)
from tests.oracles.launch_races import first_race
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import inputs_for, run_schedule, simplify, tapes, tensor, trace

SIZES = {"A": 3, "B": 5}


def branches(x: Any, y: Any) -> Any:
    left, right = ops.softmax(x @ ops.transpose(y)), ops.softmax(y @ ops.transpose(x))
    return left @ x, (right @ y) * ops.sum(x, axis=0), ops.sum(left * right, axis=1)


def loop_in_loop(x: Any, y: Any) -> Any:
    start = fori_loop(0, 3, lambda i, s: s * 0.5 + ops.softmax(y), x)
    chosen = cond(x.sum() > 0, lambda a: ops.softmax(a) * 2.0, lambda a: a @ ops.transpose(y) @ y, y)
    last, rows = scan(lambda s, row: (s + row, ops.softmax(s * row)), x[0], y)
    climbed = while_loop(lambda s: s.sum() < 9, lambda s: s + 1.0, last[0:1] * 0.0)
    return start + chosen, rows, climbed


def columns(x: Any, y: Any) -> Any:
    left, right = ops.softmax(x), ops.softmax(y)
    return ops.softmax(left, axis=0), ops.softmax(right, axis=0), ops.softmax(left * right, axis=0)


PROGRAMS: tuple[Callable[..., Any], ...] = (branches, loop_in_loop, columns)


def bits(results: Sequence[Any]) -> list[bytes]:
    return [np.asarray(one).tobytes() for one in results]


def trace_program(function: Callable[..., Any]) -> Tape:
    return trace(function, tensor("A B"), tensor("A B"))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("steps", [2, 5, None], ids=["plan", "placed", "planned"])
def test_every_stage_runs_in_any_order(function: Callable[..., Any], steps: int | None) -> None:
    tape = trace_program(function)
    module, arrays = run_schedule(simplify(tape), steps), inputs_for(tape, SIZES)
    program = AnyOrder(module)
    program.order.check()
    expected = bits(run_program(module, *arrays))
    for seed in range(4):
        assert bits(program.run(*arrays, seed=seed)) == expected


@settings(max_examples=15)
@given(tape=tapes(), seed=st.integers(0, 1 << 30))
def test_random_programs_run_in_any_order_and_are_written_down_in_it(tape: Tape, seed: int) -> None:
    module, arrays = run_schedule(simplify(tape)), inputs_for(tape, SIZES)
    program = AnyOrder(module)
    program.order.check()
    with np.errstate(all="ignore"):
        expected = bits(run_program(module, *arrays))
        assert bits(program.run(*arrays, seed=seed)) == expected
        text = print_module(module)
        ReorderLaunches(seed).run(module)
        verify(module)
        assert bits(run_program(module, *arrays)) == expected
    again = parse_module(text)
    ReorderLaunches(seed).run(again)
    assert print_module(again) == print_module(module)


def order_for(function: Callable[..., Any]) -> LaunchOrder:
    module = run_schedule(simplify(trace_program(function)))
    (program,) = programs_in(module)
    return order_of(program, symbol_table(module))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_a_missing_edge_is_found_whichever_it_is(function: Callable[..., Any]) -> None:
    order = reduce_order(order_for(function))
    order.check()
    assert order.edges
    for first, second in sorted(order.edges)[::3]:
        with pytest.raises(ScheduleError, match="nothing orders them") as caught:
            without_edge(order, (first, second)).check()
        names = [str(order.nodes[number]) for number in (first, second)]
        assert all(f"`{name}`" in caught.value.message for name in names)
        assert f"an edge ({first}, {second})" in str(caught.value)


def test_a_missing_edge_gives_other_bits_sooner_or_later() -> None:
    tape = trace_program(branches)
    module, arrays = run_schedule(simplify(tape)), inputs_for(tape, SIZES)
    expected = bits(run_program(module, *arrays))
    program = AnyOrder(module)
    calls = [node.number for node in program.order.nodes if node.what == "call"]
    before = program.order.before()
    wrong = 0
    for first in calls:
        for second in [number for number in calls if before[number] >> first & 1][:1]:
            changed = AnyOrder(module)
            for edge in program.order.edges:
                if edge[1] == second:
                    changed.forget(edge)
            with np.errstate(all="ignore"):
                wrong += any(_differs(changed, arrays, expected, seed) for seed in range(20))
    assert wrong > 0


def _differs(program: AnyOrder, arrays: Sequence[Any], expected: list[bytes], seed: int) -> bool:
    try:
        return bits(program.run(*arrays, seed=seed)) != expected
    except KeyError:
        return True  # a buffer that nobody had made yet


def test_what_waits_in_a_cycle_is_refused() -> None:
    nodes = tuple(Node(number, "call", f"k{number}") for number in range(3))
    with pytest.raises(ScheduleError, match=r"in a cycle: 1 call k1, 2 call k2"):
        LaunchOrder(nodes, frozenset({(0, 1), (1, 2), (2, 1)})).check()


def test_a_reversed_edge_is_refused() -> None:
    place = ByteRange("workspace", Dim.constant(64), Dim.constant(64))
    nodes = (Node(0, "call", "writes", (), (place,)), Node(1, "call", "reads", (place,)))
    with pytest.raises(ScheduleError) as caught:
        LaunchOrder(nodes, frozenset({(1, 0)})).check()
    assert "both touch workspace[64, 128), and `0 call writes` waits for `1 call reads`" in caught.value.message


def test_effects_keep_their_order_and_draws_do_not() -> None:
    done = [("io", "callback"), ("random", "call"), ("io", "callback"), ("state", "call"), ("random", "call")]
    nodes = [Node(at, what, what, effects=Effects([effect])) for at, (effect, what) in enumerate(done)]
    order = reduce_order(order_among(nodes))
    assert order.edges == {(0, 2), (2, 3)}
    with pytest.raises(ScheduleError, match="keep their order"):
        without_edge(order, (0, 2)).check()


# Random orders: launches that touch bytes of one small memory.


@st.composite
def orders(draw: st.DrawFn) -> LaunchOrder:
    def places() -> tuple[ByteRange, ...]:
        spans = draw(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 3)), max_size=2))
        return tuple(ByteRange("workspace", Dim.constant(start), Dim.constant(size)) for start, size in spans)

    kinds = st.sampled_from(["call", "call", "call", "copy", "alloc"])
    count = draw(st.integers(1, 9))
    return order_among(Node(at, draw(kinds), f"k{at}", places(), places()) for at in range(count))


@given(orders(), st.integers(0, 1 << 20))
def test_edges_are_those_of_conflicts_and_drawn_orders_keep_them(order: LaunchOrder, seed: int) -> None:
    order.check()
    for first, second in order.edges:
        assert first < second
        assert order.nodes[first].conflict_with(order.nodes[second]) is not None
    reduced = reduce_order(order)
    assert reduced.before() == order.before()
    place = {number: at for at, number in enumerate(order.draw(Random(seed)))}
    assert all(place[first] < place[second] for first, second in order.edges)
    for edge in reduced.edges:
        assert without_edge(reduced, edge).before() != order.before()


@given(orders())
def test_width_and_the_longest_path_are_those_of_a_search(order: LaunchOrder) -> None:
    launches = order.launches()
    before, count = launches.before(), len(launches.nodes)
    free = [
        chosen
        for chosen in range(1 << count)
        if not any(chosen >> number & 1 and before[number] & chosen for number in range(count))
    ]
    assert order.width == max(chosen.bit_count() for chosen in free)
    path = critical_path(order)
    assert all((path[at], path[at + 1]) in launches.edges for at in range(len(path) - 1))
    depth: list[int] = []
    for number in range(count):
        depth.append(1 + max((depth[n] for n in range(number) if before[number] >> n & 1), default=0))
    assert len(path) == max(depth, default=0)
    assert is_sequential(order) == (order.width <= 1)


def waits_of(plan: StreamPlan) -> list[tuple[int, int]]:
    return [(step.node.number, wait) for step in plan.steps for wait in step.waits if wait != BEGIN]


@given(orders(), st.integers(1, 4))
def test_streams_keep_every_edge_and_no_wait_can_be_left_out(order: LaunchOrder, count: int) -> None:
    plan = assign_streams(order, count)
    assert plan.streams <= count
    assert [step.node for step in plan.steps] == list(order.launches().nodes)
    assert all(step.stream == 0 for step in plan.steps if step.node.what != "call")
    known = known_to(plan)
    before = order.launches().before()
    assert all(not before[number] & ~known[number] for number in range(len(known)))
    plan.check(order)
    for node, wait in waits_of(plan):
        less = without_wait(plan, node, wait)
        assert any(before[number] & ~known for number, known in enumerate(known_to(less)))
        with pytest.raises(ScheduleError, match="does not wait for it"):
            less.check(order)
    assert {wait for _, wait in waits_of(plan)} | set(plan.joins) == set(plan.events) - {BEGIN}
    if all(node.what != "alloc" for node in order.nodes):
        assert first_race(log_of(plan, {})) is None
        for node, wait in waits_of(plan):
            assert first_race(log_of(without_wait(plan, node, wait), {})) is not None


def known_to(plan: StreamPlan) -> list[int]:
    """For each launch all that happen before it, by the order of streams and waits alone."""
    streams: dict[int, int] = {}
    found: list[int] = []
    for number, step in enumerate(plan.steps):
        known = streams.get(step.stream, 0)
        for wait in step.waits:
            known |= 0 if wait == BEGIN else found[wait] | 1 << wait
        found.append(known)
        streams[step.stream] = known | 1 << number
    return found


def scaled_updates(*tensors: Any) -> Any:
    """As an optimizer has it: updates of one form that are launched together, by a number of all gradients."""
    half = len(tensors) // 2
    scale = 1.0 / ops.sqrt(sum(((g * g).sum() for g in tensors[half:]), start=1.0))
    return tuple(w - g * scale * 0.1 for w, g in zip(tensors[:half], tensors[half:], strict=True))


def launched(op: SpecOp) -> list[SpecOp]:
    return [part for part in launch_of(op) if isinstance(part, SpecOp)]


def test_a_launch_of_several_groups_waits_for_what_all_of_them_read() -> None:
    """Between its groups are ops of memory, which have other neighbours."""
    tape = trace(scaled_updates, *[tensor(f"{size} 7") for _ in range(2) for size in (3, 4, 5, 6)])
    module = run_schedule(simplify(tape))
    (program,) = programs_in(module)
    memory, order = Memory(program, symbol_table(module)), order_of(program, symbol_table(module))
    ops_in_order = ops_of(program.regions[0].block)
    several = [op for op in ops_in_order if len(launched(op)) > 1]
    assert several
    between = ops_in_order[ops_in_order.index(several[0]) : ops_in_order.index(several[-1])]
    assert any(op not in several for op in between)
    for op in several:
        node, parts = order.nodes[ops_in_order.index(op)], [memory.accesses(part) for part in launched(op)]
        assert set(node.reads) == {one for part in parts for one in part.reads}
        assert set(node.writes) == {one for part in parts for one in part.writes}


def test_the_text_says_who_waits_for_whom_and_what_is_touched() -> None:
    lines = str(order_for(columns)).splitlines()
    assert lines[0] == "4 launches, 3 at a time at most, 2 one after the other at least"
    assert any(": after " in line and "writes result" in line for line in lines)
    assert any("reads argument x0" in line for line in lines)
    assert "at a time at most" in "\n".join(str(order_for(loop_in_loop)).splitlines()[1:])
