"""Pipelines: orders, peaks and bubbles of the schedules, run step by step, against their closed forms."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.planning.pipelines import (
    Action,
    Pipeline,
    needs,
    pipeline,
    pipeline_of,
    render_wavefront,
    wavefront,
)

load_dialects()


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    stages = draw(st.integers(1, 7))
    chunks = draw(st.integers(1, 4))
    if chunks == 1:
        return pipeline("1f1b", stages, draw(st.integers(stages, 4 * stages + 3)))
    return pipeline("interleaved", stages, stages * draw(st.integers(1, 4)), chunks)


times = st.fractions(Fraction(1, 4), 5, max_denominator=4)


@given(pipelines(), times, times)
def test_makespan_and_bubble_are_the_closed_forms(pipe: Pipeline, forward: Fraction, backward: Fraction) -> None:
    """Whatever a forward and a backward take: the time of `stages - 1` pairs, of one chunk each, is lost."""
    table = pipe.timetable(forward, backward)
    ideal = pipe.microbatch * (forward + backward)
    assert (
        table.makespan
        == pipe.makespan(forward, backward)
        == ideal + (pipe.stages - 1) * (forward + backward) / pipe.chunks
    )
    assert (
        table.bubble_fraction
        == pipe.bubble_fraction
        == Fraction(pipe.stages - 1, pipe.microbatch * pipe.chunks + pipe.stages - 1)
    )


@given(pipelines())
def test_peak_activations_are_the_closed_form(pipe: Pipeline) -> None:
    table = pipe.timetable()
    for rank in range(pipe.stages):
        behind = pipe.stages - rank - 1
        wanted = behind + 1 if pipe.chunks == 1 else 2 * behind + (pipe.chunks - 1) * pipe.stages + 1
        assert table.peak_activations(rank) == pipe.peak_activations(rank) == min(wanted, pipe.ideal_actions)


@given(pipelines())
def test_every_action_runs_once_and_after_what_it_needs(pipe: Pipeline) -> None:
    table = pipe.timetable()
    ends = {(span.rank, span.action): span.end for span in table.spans}
    assert len(ends) == len(table.spans) == 2 * pipe.stages * pipe.ideal_actions
    for span in table.spans:
        assert all(ends[need] <= span.start for need in needs(pipe, span.rank, span.action))
    for rank in range(pipe.stages):
        own = [span for span in table.spans if span.rank == rank]
        assert [span.action for span in own] == pipe.order(rank)
        assert all(first.end <= second.start for first, second in pairwise(own))


def test_1f1b_keeps_as_many_activations_as_there_are_stages_behind() -> None:
    """The order of four stages and eight microbatches, as in the paper of PipeDream."""
    pipe = pipeline("1f1b", 4, 8)
    assert [pipe.peak_activations(rank) for rank in range(4)] == [4, 3, 2, 1]
    assert " ".join(map(str, pipe.order(0))) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7"
    assert " ".join(map(str, pipe.order(3))) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"
    assert pipe.bubble_fraction == Fraction(3, 11)
    assert pipeline("interleaved", 4, 8, 2).bubble_fraction == Fraction(3, 19)


def test_interleaved_stages_take_groups_of_microbatches_chunk_after_chunk() -> None:
    order = pipeline("interleaved", 2, 4, 2).order(1)
    assert " ".join(map(str, order)) == "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"


def test_the_wavefront_of_the_document() -> None:
    """Stages 3, microbatch 8: ten steps, microbatch t - s at step t in stage s."""
    table = wavefront(3, 8)
    assert len(table) == 10
    for step, row in enumerate(table):
        assert list(row) == [step - stage if 0 <= step - stage < 8 else None for stage in range(3)]
    assert render_wavefront(table).splitlines()[1:] == [
        "stage 0 0 1 2 3 4 5 6 7 . .",
        "stage 1 . 0 1 2 3 4 5 6 7 .",
        "stage 2 . . 0 1 2 3 4 5 6 7",
    ]


def test_the_text_of_the_document_expands() -> None:
    module = parse_module('tsched.pipeline @train { axis="pp", stages=3, microbatch=8 }')
    verify(module)
    (op,) = module.ops
    assert isinstance(op, SpecOp)
    pipe = pipeline_of(op)
    assert pipe == Pipeline("1f1b", 3, 8)
    assert pipe.timetable().render().splitlines()[2] == (
        "rank 2 | .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3 F4 B4 B4 F5 B5 B5 F6 B6 B6 F7 B7 B7 .  .  .  ."
    )


def test_a_region_takes_its_stages_from_the_mesh() -> None:
    stages = "\n".join(f"%s{at + 1} = tsched.stage @f(%s{at}) {{index = {at}}}" for at in range(8))
    text = f"""tsched.module attributes {{mesh = {{pp = 4}}}} {{
      %y = tsched.pipeline.region(schedule = "interleaved", axis = "pp", microbatch = 8, chunks = 2) {{
        {stages}
        tsched.yield %s8
      }}
      tsched.return %y
    }}"""
    module = parse_module(text)
    verify(module)
    (region,) = [op for op in module.walk() if op.name == "tsched.pipeline.region"]
    assert isinstance(region, SpecOp)
    assert pipeline_of(region) == Pipeline("interleaved", 4, 8, 2)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (("gpipe", 2, 4, 1), "`schedule` is one of 1f1b, interleaved, got 'gpipe'"),
        (("1f1b", 0, 4, 1), "`stages` must be at least 1, got 0"),
        (("1f1b", 4, 3, 1), "3 microbatches never fill 4 stages"),
        (("1f1b", 4, 8, 2), "1f1b has 1 chunk on a rank, got 2"),
        (("interleaved", 4, 8, 1), "interleaved stages have at least 2 chunks on a rank, got 1"),
        (("interleaved", 4, 6, 2), "6 microbatches leave 2 over"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(numbers: tuple[str, int, int, int], reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        pipeline(*numbers)
    assert reason in caught.value.message
    assert caught.value.fix is not None


def test_a_wavefront_has_stages_and_microbatches() -> None:
    with pytest.raises(ScheduleError, match="`microbatch` must be at least 1, got 0"):
        wavefront(3, 0)


def test_an_action_is_named_by_microbatch_and_chunk() -> None:
    assert (str(Action("F", 3)), str(Action("B", 0, 2))) == ("F3", "B0.2")
