"""The model of overlap, against a simulation of events written from the rules, and against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.planning.collectives import plan_collective
from tessera.ir.schedule.planning.overlap import (
    COMMUNICATE,
    COMPUTE,
    Prediction,
    Task,
    predict,
    software_pipeline,
    tasks_of,
)
from tessera.types.topology import topology_of
from tests.oracles.stream_events import simulate_streams

load_dialects()


@st.composite
def programs(draw: st.DrawFn) -> list[Task]:
    count = draw(st.integers(1, 14))
    tasks: list[Task] = []
    for at in range(count):
        stream = draw(st.sampled_from([COMPUTE, COMPUTE, COMMUNICATE]))
        before = [task.name for task in tasks]
        after = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
        tasks.append(Task(f"t{at}", stream, draw(st.floats(1, 100)), tuple(after)))
    return tasks


@given(programs())
def test_without_slowdown_the_model_is_the_simulation(tasks: list[Task]) -> None:
    found, wanted = predict(tasks), simulate_streams(tasks)
    for one in found.placed:
        assert (one.start, one.end) == pytest.approx(wanted[one.task.name])


@given(programs(), st.floats(0, 0.5))
def test_the_makespan_is_within_a_tenth_of_the_simulation(tasks: list[Task], slowdown: float) -> None:
    wanted = max(end for _, end in simulate_streams(tasks, slowdown).values())
    assert predict(tasks, slowdown).makespan == pytest.approx(wanted, rel=0.1)


@given(programs())
def test_what_is_hidden_and_exposed_is_the_time_of_collectives(tasks: list[Task]) -> None:
    found = predict(tasks)
    total = sum(task.time for task in tasks if task.stream == COMMUNICATE)
    assert found.hidden + found.exposed == pytest.approx(total)
    assert -1e-9 <= found.exposed <= found.makespan + 1e-9
    longest = max(sum(task.time for task in tasks if task.stream == stream) for stream in (COMPUTE, COMMUNICATE))
    assert found.makespan >= longest - 1e-9


@given(st.integers(1, 12), st.floats(1, 50), st.floats(1, 50), st.floats(1, 50))
def test_a_loop_in_stages_takes_its_closed_form(count: int, load: float, compute: float, store: float) -> None:
    """With enough buffers: all stages once, and the slowest of them for every further iteration."""
    times = {"load": load, "compute": compute, "store": store}
    whole = predict(software_pipeline(times, count, buffers=count + 1)).makespan
    assert whole == pytest.approx(load + compute + store + (count - 1) * max(times.values()))
    # With one buffer nothing is loaded before the last was computed.
    single = predict(software_pipeline(times, count, buffers=1)).makespan
    assert single == pytest.approx(load + compute + store + (count - 1) * max(load + compute, store))
    # Two are enough where a load takes no longer than computing, or computing than a load: `load (n+1), compute (n)`.
    double = predict(software_pipeline(times, count, buffers=2)).makespan
    assert double == pytest.approx(whole)
    assert single >= double - 1e-9


START = '{number = 0, call = "all_gather", axis = "dp", ranks = 4}'
PLAN = f"""
tsched.module @f(%x: !tgraph.tensor<[B, 64], f32>, %g: !tgraph.tensor<[4096], f32>) -> !tgraph.tensor<[B, 64], f32> {{
  %s = tsched.collective_start %g {START} : !tgraph.tensor<[16384], f32>
  %a = tsched.fuse @mm(%x) {{time = 1000*B}} : !tgraph.tensor<[B, 64], f32>
  %r = tsched.collective_wait %g, %s {{number = 0}} : !tgraph.tensor<[16384], f32>
  %b = tsched.fuse @use(%a, %r) {{time = 10*B}} : !tgraph.tensor<[B, 64], f32>
  tsched.return %b
}}
"""


def test_a_plan_is_predicted_by_its_costs() -> None:
    module = parse_module(PLAN)
    verify(module)
    (program,) = module.ops
    assert isinstance(program, SpecOp)
    topology = topology_of({"devices": 4})
    tasks = tasks_of(program, {"B": 8}, topology)
    gather = plan_collective("all_gather", 65536, topology).time
    assert [(task.stream, task.time) for task in tasks] == [(COMMUNICATE, gather), (COMPUTE, 8000.0), (COMPUTE, 80.0)]
    assert tasks[2].after == (tasks[1].name, tasks[0].name)
    found = predict(tasks)
    assert found.makespan == 8080.0
    assert found.exposed == 0.0
    assert found.render().splitlines()[1].split() == ["compute", "0", "8000", "ns", "mm1"]


def step(x: Any, w: Any, v: Any) -> Any:
    return ts.dist.all_reduce(ops.matmul(x, w), axis="dp") + ops.matmul(x, v)


def test_the_host_program_of_a_jitted_function_hides_its_collective() -> None:
    """As compiled, the second matmul runs beside the collective; where overlap is off, it waits for it and adds it."""
    x = np.zeros((512, 512), np.float32)
    topology = topology_of({"devices": 2, "inside": 2.0})
    found: dict[bool, Prediction] = {}
    with ts.dist.mesh(dp=2):
        for is_on in (True, False):
            text = ts.jit(step, overrides={"collectives.overlap": is_on}).lower(x, x, x).schedule
            host = parse_module(text[text.rindex("builtin.module") :])
            program = next(op for op in host.ops if op.name == "tsched.module")
            assert isinstance(program, SpecOp)
            found[is_on] = predict(tasks_of(program, {}, topology))
    assert found[True].exposed == 0.0
    assert found[False].hidden == 0.0
    assert found[True].makespan < found[False].makespan
    names = [one.task.name for one in found[True].placed]
    wanted = simulate_streams([one.task for one in found[True].placed])
    assert [wanted[name][1] for name in names] == pytest.approx([one.end for one in found[True].placed])


@pytest.mark.parametrize(
    ("tasks", "slowdown", "reason"),
    [
        ([Task("a", COMPUTE, 1.0, ("b",))], 0.0, "task `a` waits for `b`, which is not issued before it"),
        ([Task("a", COMPUTE, 1.0), Task("a", COMPUTE, 1.0)], 0.0, "task `a` is issued twice"),
        ([Task("a", COMPUTE, -1.0)], 0.0, "task `a` takes -1.0 ns"),
        ([Task("a", COMPUTE, 1.0)], 1.0, "`slowdown` is a fraction from 0 to below 1, got 1.0"),
    ],
)
def test_programs_that_cannot_run_are_refused(tasks: list[Task], slowdown: float, reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        predict(tasks, slowdown)
    assert caught.value.message == reason


def test_a_loop_without_stages_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a loop has stages, iterations and buffers, got 0, 4 and 2"):
        software_pipeline({}, 4, 2)
