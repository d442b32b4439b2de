"""Inserted collectives: no cheaper set exists on small programs, and the usual plans of the field come out."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ShardingError
from tessera.ir.base.tape import Tape
from tessera.ir.graph.sharding.insertion import ANY, AxisPlan, AxisProgram, Costs, plan_axis


def trace(function: Callable[..., Any], *shapes: Sequence[int]) -> Tape:
    return ts.jit(function).trace(*(np.ones(shape, np.float32) for shape in shapes)).tape


def exhaust(  # noqa: C901 - two recursions in each other
    program: AxisProgram, inputs: Mapping[int, str], outputs: Mapping[int, str]
) -> float:
    """The least cost among all strategies of all ops and all conversions, one or two steps each, tried one by one."""
    tape = program.tape

    def bring(held: dict[int, frozenset[str]], wanted: Sequence[tuple[int, str]], after: Callable[..., float]) -> float:
        if not wanted:
            return after(held)
        (value, target), *others = wanted
        if target in held[value]:
            return bring(held, others, after)
        best = inf
        for source in held[value]:
            for middle in (None, *program.states(value)):
                steps = [(source, target)] if middle is None else [(source, middle), (middle, target)]
                found = [one for step in steps if (one := program.convert(value, *step)) is not None]
                if len(found) == len(steps) and middle not in held[value]:
                    more = {**held, value: held[value] | {step.target for step in found}}
                    best = min(best, sum(map(program.price, found)) + bring(more, others, after))
        return best

    def go(at: int, held: dict[int, frozenset[str]]) -> float:
        if at == len(tape.records):
            return bring(held, list(outputs.items()), lambda _: 0.0)
        record, best = tape.records[at], inf
        for one in program.strategies(at):
            wanted = [pair for pair in zip(record.operands, one.operands, strict=True) if pair[1] != ANY]

            def after(now: dict[int, frozenset[str]], one: Any = one) -> float:
                made = {value: frozenset([state]) for value, state in zip(record.results, one.results, strict=True)}
                return program.work(at, one) + go(at + 1, {**now, **made})

            best = min(best, bring(held, wanted, after))
        return best

    return go(0, {value: frozenset([state]) for value, state in inputs.items()})


COSTS = st.sampled_from(
    [
        Costs(),
        Costs(latency=0.0),
        Costs(latency=1.0, bandwidth=0.01),
        Costs(latency=1.0, bandwidth=100.0, memory=0.01, flops=0.01),
    ]
)
PROGRAMS: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (lambda x, a, b: (x @ a) @ b, ((4, 8), (8, 4), (4, 6))),
    (lambda x, y: ops.exp(x) + y.sum(0), ((4, 8), (6, 8))),
    (lambda x, a: (x @ a).sum(), ((4, 6), (6, 8))),
    (lambda x, a: ops.transpose(x @ a) * 2.0, ((4, 8), (8, 6))),
    (lambda x: x.reshape((2, 4, 6)).max(1), ((8, 6),)),
    (lambda x, a: (x @ a, (x @ a).sum(0)), ((4, 8), (8, 4))),
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PROGRAMS), COSTS, st.data())
def test_no_set_of_collectives_is_cheaper(program: Any, costs: Costs, data: st.DataObject) -> None:
    function, shapes = program
    tape = trace(function, *shapes)
    axis = AxisProgram(tape, 2, costs)
    inputs = {value: data.draw(st.sampled_from([*axis.states(value), "Psum"])) for value in tape.inputs}
    outputs = {value: data.draw(st.sampled_from(axis.states(value))) for value in tape.outputs}
    assert plan_axis(axis, inputs, outputs).time == pytest.approx(exhaust(axis, inputs, outputs))


def plan(tape: Tape, inputs: Sequence[str], outputs: Sequence[str], ranks: int = 2) -> AxisPlan:
    pairs = (dict(zip(own, states, strict=True)) for own, states in ((tape.inputs, inputs), (tape.outputs, outputs)))
    return plan_axis(AxisProgram(tape, ranks, Costs()), *pairs)


def calls(found: AxisPlan) -> list[str]:
    return [one.call for one in found.all_conversions()]


MLP = trace(lambda x, a, b: ops.relu(x @ a) @ b, (256, 512), (512, 1024), (1024, 512))


def test_columns_then_rows_need_one_reduction() -> None:
    assert calls(plan(MLP, ["R", "S1", "S0"], ["R"])) == ["all_reduce"]
    assert calls(plan(MLP, ["R", "S1", "S0"], ["S0"])) == ["reduce_scatter"]


def test_a_cut_batch_needs_nothing() -> None:
    assert calls(plan(MLP, ["S0", "R", "R"], ["S0"])) == []


def test_gathered_weights_are_gathered_once() -> None:
    tape = trace(lambda x, w: (x @ w) @ w, (1024, 256), (256, 256))
    assert calls(plan(tape, ["S0", "S0"], ["S0"])) == ["all_gather"]


def test_gradients_are_added_as_terms_and_reduced_once() -> None:
    tape = trace(lambda x, y, u, v: ops.transpose(x) @ u + ops.transpose(y) @ v, *[(512, 256)] * 4)
    assert calls(plan(tape, ["S0"] * 4, ["R"])) == ["all_reduce"]
    assert calls(plan(tape, ["S0"] * 4, ["S1"])) == ["reduce_scatter"]


def test_a_dim_is_exchanged_for_another() -> None:
    tape = trace(lambda x: ops.exp(x), (512, 512))
    assert calls(plan(tape, ["S0"], ["S1"])) == ["all_to_all"]
    assert calls(plan(tape, ["S0"], ["R"])) == ["all_gather"]
    assert calls(plan(tape, ["R"], ["S0"])) == ["slice"]


def test_a_maximum_is_reduced_as_one() -> None:
    found = plan(trace(lambda x: x.max(0), (512, 64)), ["S0"], ["R"])
    (one,) = found.all_conversions()
    assert (one.call, one.source) == ("all_reduce", "Pmax")


def test_results_that_nothing_gives_as_terms_are_refused() -> None:
    with pytest.raises(ShardingError, match="cannot be terms of a sum over 2 ranks"):
        plan(trace(lambda x: ops.exp(x), (4, 4)), ["R"], ["Psum"])


def test_long_programs_are_planned_too() -> None:
    def deep(x: Any, w: Any) -> Any:
        for _ in range(30):
            x = ops.relu(x @ w) @ ops.transpose(w)
        return x

    found = plan(trace(deep, (256, 128), (128, 128)), ["S0", "R"], ["S0"])
    assert calls(found) == []
