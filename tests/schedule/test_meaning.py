"""Scheduling keeps meaning: plan, kernels and host program give what the graph gives, and their texts read back."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera import ops
from tessera.api.control import cond, fori_loop, scan, while_loop
from tessera.backends.reference.compile import run_tape
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.host_program.memory import lay_out
from tessera.ir.schedule.passes.plan_memory import lifetimes_in
from tessera.ir.schedule.plan import fusions_in, programs_in
from tests.oracles.memory_layouts import first_overlap, naive_total
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import assert_close, inputs_for, run_schedule, simplify, tapes, tensor, trace

SIZES = ({"A": 3, "B": 5}, {"A": 1, "B": 1}, {"A": 2, "B": 33})


@settings(max_examples=40)
@given(tape=tapes(), fusion=st.booleans())
def test_a_plan_gives_what_the_graph_gives(tape: Tape, fusion: bool) -> None:
    module = run_schedule(simplify(tape), steps=3, fusion=fusion)
    again = parse_module(print_module(module))
    verify(again)
    assert content_hash(again) == content_hash(module)
    for sizes in SIZES:
        arrays = inputs_for(tape, sizes)
        with np.errstate(all="ignore"):
            assert_close(run_program(module, *arrays), run_tape(tape, arrays))


@settings(max_examples=25)
@given(tape=tapes())
def test_a_host_program_gives_what_the_graph_gives(tape: Tape) -> None:
    module = run_schedule(simplify(tape))
    again = parse_module(print_module(module))
    verify(again)
    assert content_hash(again) == content_hash(module)
    sizes = SIZES[0]
    arrays = inputs_for(tape, sizes)
    with np.errstate(all="ignore"):
        assert_close(run_program(module, *arrays), run_tape(tape, arrays))
    (program,) = programs_in(module)
    _, lifetimes = lifetimes_in(program)
    layout = lay_out(lifetimes)
    for one in SIZES:
        assert first_overlap(lifetimes, layout, one) is None
        assert layout.total.evaluate(one) <= naive_total(lifetimes).evaluate(one)


@settings(max_examples=25)
@given(tape=tapes())
def test_fusion_does_its_job(tape: Tape) -> None:
    fused = run_schedule(simplify(tape), steps=1)
    alone = run_schedule(simplify(tape), steps=1, fusion=False)
    assert len(fusions_in(fused)) <= len(fusions_in(alone))
    # What a group leaves in memory is wanted by another, or is a result.
    for fuse in fusions_in(fused):
        assert all(list(result.uses) for result in fuse.results)


def _branch(x: Any) -> Any:
    return cond(x.sum() > 0, lambda a: a * 2.0, lambda a: ops.softmax(a), x)


def _repeat(x: Any) -> Any:
    return while_loop(lambda s: s[1].sum() < 9, lambda s: (s[0] * 0.5, s[1] + 1.0), (x, x[0, 0] * 0.0))


def _count(x: Any) -> Any:
    return fori_loop(0, 6, lambda i, s: (s[1], s[0] * 0.5 + s[1]), (x, x + 1.0))


def _count_with_index(x: Any) -> Any:
    return fori_loop(1, 4, lambda i, s: s + i.cast(x.dtype) * x, x)


def _scan(x: Any) -> Any:
    return scan(lambda s, row: (s + row, ops.softmax(s * row)), x[0], x)


def _scan_back(x: Any) -> Any:
    return scan(lambda s, row: (s, row), x[0], x, reverse=True)


def _nest(x: Any) -> Any:
    def climb(a: Any) -> Any:
        return while_loop(lambda s: s.sum() < 0, lambda s: s + 1.0, a)

    return cond(x.sum() > 0, lambda a: fori_loop(0, 3, lambda i, s: s + a, a), climb, x)


FLOWS = (_branch, _repeat, _count, _count_with_index, _scan, _scan_back, _nest)


@pytest.mark.parametrize("function", FLOWS, ids=lambda function: function.__name__[1:])
def test_control_flow_is_kept_by_every_pass(function: Any) -> None:
    tape = trace(function, tensor("A B"))
    expected = {str(sizes): run_tape(tape, inputs_for(tape, sizes)) for sizes in SIZES}
    for steps in (1, 2, 4, 5, None):
        module = run_schedule(simplify(tape), steps)
        for sizes in SIZES:
            assert_close(run_program(module, *inputs_for(tape, sizes)), expected[str(sizes)])
        text = print_module(module)
        assert content_hash(parse_module(text)) == content_hash(module)
