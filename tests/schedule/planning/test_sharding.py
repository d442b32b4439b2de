"""Inserted collectives: the cheapest by trying everything on small programs, and the ones that everybody knows."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.schedule.planning.collectives import plan_collective
from tessera.ir.schedule.planning.sharding import Op, Program, insert_collectives
from tessera.types.topology import topology_of

NODE = topology_of({"devices": 4})


def time_of(call: str, bytes: int) -> float:
    return plan_collective(call, bytes, NODE).time


def unit(call: str, bytes: int) -> float:
    """Bytes as rings move them: all_reduce is as much as reduce_scatter and all_gather."""
    return bytes * {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}[call]


def cheapest(program: Program, inputs: dict[str, str], outputs: dict[str, str]) -> float:
    """The least cost over all strategies of all ops, and over all orders of conversions of each value."""
    least = float("inf")
    for chosen in product(*(list(program.strategies(op)) for op in program.ops)):
        produced = {**inputs, **{op.name: result for op, (_, result) in zip(program.ops, chosen, strict=True)}}
        wanted: dict[str, set[str]] = {name: set() for name in produced}
        for op, (operands, _) in zip(program.ops, chosen, strict=True):
            for name, state in zip(op.operands, operands, strict=True):
                wanted[name].add(state)
        for name, state in outputs.items():
            wanted[name].add(state)
        total = sum(cover(program, name, produced[name], states) for name, states in wanted.items())
        total += sum(program.work(op, operands) for op, (operands, _) in zip(program.ops, chosen, strict=True))
        least = min(least, total)
    return least


def cover(program: Program, name: str, start: str, wanted: set[str]) -> float:
    """The least cost of having a value in all of these states: in every order, by any path of conversions."""
    least = float("inf") if wanted else 0.0
    for order in permutations(wanted):
        for cost, _ in routes(program, name, frozenset([start]), order):
            least = min(least, cost)
    return least


def routes(
    program: Program, name: str, held: frozenset[str], order: tuple[str, ...]
) -> list[tuple[float, frozenset[str]]]:
    if not order:
        return [(0.0, held)]
    found: list[tuple[float, frozenset[str]]] = []
    for cost, passed in walks(program, name, held, order[0]):
        found += [(cost + more, last) for more, last in routes(program, name, held | passed, order[1:])]
    return found


def walks(program: Program, name: str, held: frozenset[str], target: str) -> list[tuple[float, frozenset[str]]]:
    """Every path without repetition to a state from one that is at hand: its cost and the states on it."""
    if target in held:
        return [(0.0, frozenset())]
    found: list[tuple[float, frozenset[str]]] = []
    for source in held:
        step = program.convert(name, source, target)
        if step is not None:
            found.append((program.price(step), frozenset([target])))
        for middle in program.states(name):
            first = program.convert(name, source, middle)
            if first is None or middle in held or middle == target:
                continue
            for cost, passed in walks(program, name, held | {middle}, target):
                found.append((program.price(first) + cost, passed | {middle}))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Program, dict[str, str], dict[str, str]]:
    sizes = {label: draw(st.sampled_from([4, 6, 8])) for label in "mkn"}
    inputs = {"x": "mk", "w": "kn"}
    ops: list[Op] = []
    values: dict[str, str] = dict(inputs)
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["matmul", "scale", "add"]))
        name = f"v{number}"
        if kind == "matmul":
            first = draw(st.sampled_from([value for value, labels in values.items() if labels == "mk"]))
            ops.append(Op(name, (first, "w"), ("mk", "kn"), "mn"))
        else:
            first = draw(st.sampled_from(sorted(values)))
            labels = values[first]
            same = sorted(value for value, other in values.items() if other == labels)
            second = draw(st.sampled_from(same))
            operands = (first,) if kind == "scale" else (first, second)
            ops.append(Op(name, operands, (labels,) * len(operands), labels, is_linear=kind == "scale"))
        values[name] = ops[-1].result
    program = Program(tuple(ops), inputs, sizes, 4, unit, compute=draw(st.sampled_from([0.0, 0.5, 2.0])))
    given_states = {name: draw(st.sampled_from(program.states(name))) for name in inputs}
    last = ops[-1].name
    outputs = {last: draw(st.sampled_from([state for state in program.states(last) if state != "P"]))}
    return program, given_states, outputs


@given(cases())
def test_the_inserted_set_is_the_cheapest(case: tuple[Program, dict[str, str], dict[str, str]]) -> None:
    program, inputs, outputs = case
    found = insert_collectives(program, inputs, outputs)
    assert found.time == pytest.approx(cheapest(program, inputs, outputs))
    moved = sum(program.price(step) for step in found.conversions)
    assert found.time == pytest.approx(moved) if program.compute == 0 else found.time > moved


@given(cases())
def test_every_op_reads_what_its_strategy_takes(case: tuple[Program, dict[str, str], dict[str, str]]) -> None:
    program, inputs, outputs = case
    found = insert_collectives(program, inputs, outputs)
    held: dict[str, set[str]] = {name: {state} for name, state in inputs.items()}
    for step in found.conversions:
        held.setdefault(step.value, {found.states.get(step.value, "")})
        assert step.source in held[step.value]
        held[step.value].add(step.target)
    for op in program.ops:
        held.setdefault(op.name, set()).add(found.states[op.name])
        assert any(
            result == found.states[op.name]
            and all(state in held[name] for name, state in zip(op.operands, operands, strict=True))
            for operands, result in program.strategies(op)
        )
    assert all(state in held[name] for name, state in outputs.items())


MLP = (
    Op("h", ("x", "up"), ("bd", "df"), "bf"),
    Op("a", ("h",), ("bf",), "bf"),
    Op("y", ("a", "down"), ("bf", "fd"), "bd"),
)
SIZES = {"b": 256, "d": 1024, "f": 4096}
INPUTS = {"x": "bd", "up": "df", "down": "fd"}


def test_a_layer_split_by_columns_and_rows_needs_one_all_reduce() -> None:
    """Megatron's MLP: columns of the first matrix, rows of the second; sequence parallel it is RS and AG."""
    program = Program(MLP, INPUTS, SIZES, 4, time_of, bytes=2)
    states = {"x": "R", "up": "S1", "down": "S0"}
    found = insert_collectives(program, states, {"y": "R"})
    assert [str(one) for one in found.collectives] == ["y: P -> R by all_reduce of 524288 bytes"]
    assert found.states == {"h": "S1", "a": "S1", "y": "P"}
    split = insert_collectives(program, {**states, "x": "S0"}, {"y": "S0"})
    assert [one.call for one in split.collectives] == ["all_gather", "reduce_scatter"]
    assert split.render().splitlines()[1] == "x: S0 -> R by all_gather of 524288 bytes"


def test_data_parallel_reduces_gradients_alone() -> None:
    """dW = x^T dy, both sharded along the batch: one all_reduce; with a sharded optimizer one reduce_scatter."""
    ops, names = (Op("dw", ("x", "dy"), ("bd", "bf"), "df"),), {"x": "bd", "dy": "bf"}
    sizes = {**SIZES, "b": 1 << 16}
    program = Program(ops, names, sizes, 4, time_of, compute=1e-3)
    whole = insert_collectives(program, {"x": "S0", "dy": "S0"}, {"dw": "R"})
    part = insert_collectives(program, {"x": "S0", "dy": "S0"}, {"dw": "S0"})
    assert [one.call for one in whole.collectives] == ["all_reduce"]
    assert [one.call for one in part.collectives] == ["reduce_scatter"]
    assert part.time < whole.time
    # Where computing is free and operands are small, every rank may as well compute all of the result.
    free = insert_collectives(Program(ops, names, SIZES, 4, time_of), {"x": "S0", "dy": "S0"}, {"dw": "R"})
    assert [one.call for one in free.collectives] == ["all_gather", "all_gather"]


def test_partial_values_pass_linear_ops_before_they_are_reduced() -> None:
    ops = (Op("y", ("x", "w"), ("mk", "kn"), "mn"), Op("s", ("y",), ("mn",), "m", is_linear=True))
    program = Program(ops, {"x": "mk", "w": "kn"}, {"m": 64, "k": 64, "n": 64}, 4, unit)
    found = insert_collectives(program, {"x": "S1", "w": "S0"}, {"s": "R"})
    assert [str(one) for one in found.collectives] == ["s: P -> R by all_reduce of 256 bytes"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "reason"),
    [
        ({"x": "S3", "up": "R", "down": "R"}, {"y": "R"}, "`x` cannot be in state `S3`"),
        ({"x": "R", "up": "R", "down": "R"}, {"z": "R"}, "`z` cannot be in state `R`"),
    ],
)
def test_states_that_are_none_are_refused(inputs: dict[str, str], outputs: dict[str, str], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        insert_collectives(Program(MLP, INPUTS, SIZES, 4, time_of), inputs, outputs)


def test_ops_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="`y` reads `q`, which is not there"):
        insert_collectives(Program((Op("y", ("q",), ("bd",), "bd"),), INPUTS, SIZES, 4, time_of), {}, {})
    with pytest.raises(ScheduleError, match="`y` reads `x` as `bf`, and its dims are `bd`"):
        insert_collectives(Program((Op("y", ("x",), ("bf",), "bf"),), INPUTS, SIZES, 4, time_of), {}, {})
