"""Traces of searches: the same winner is picked from them anywhere, and they stand for the device in a search."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tessera.diagnostics.codes import TuningFileError
from tessera.tuner.acceptance import Criteria
from tessera.tuner.records import Plan, Trial
from tessera.tuner.trace import Recorder, Replay, Trace, join_trials, pick, read_trace, write_trace
from tests.tuner.samples import MATMUL, SAFE_BITS, noisy, timed


def tile(size: int) -> Plan:
    return Plan.of({"map.tile": size})


def recorded() -> Trace:
    trials = [
        timed(noisy(0.05, 0.01, seed=1), tile(1)),
        timed(noisy(0.20, 0.01, seed=2), tile(2)),
        timed(noisy(0.40, 0.01, seed=3), tile(3), bits="0ther"),
        Trial(tile(4), reason="too many registers", predicted=900.0),
        timed(noisy(0.12, 0.01, seed=5), tile(5)),
    ]
    return Trace.of(MATMUL, trials, SAFE_BITS, Criteria(threshold=0.1))


def test_a_trace_of_a_file_gives_the_same_winner(tmp_path: Path) -> None:
    trace = recorded()
    decision = pick(trace)
    assert decision.accepted
    assert decision.plan == tile(2)
    write_trace(tmp_path / "trace.json", trace)
    again = read_trace(tmp_path / "trace.json")
    assert again == trace, "every sample, bit for bit"
    assert pick(again) == decision


def test_the_order_of_trials_does_not_matter() -> None:
    trace = recorded()
    trials = [*trace.trials, timed(noisy(0.20, 0.01, seed=2), tile(0))]
    found = set[Plan]()
    for seed in range(10):
        random.Random(seed).shuffle(trials)
        found.add(pick(Trace.of(MATMUL, trials, SAFE_BITS)).plan)
    assert len(found) == 1


def test_without_a_plan_that_may_be_used_the_safe_one_stays() -> None:
    trace = recorded()
    unfit = pick(Trace.of(MATMUL, trace.trials[2:4], SAFE_BITS))
    assert (unfit.accepted, unfit.plan) == (False, Plan())
    slow = pick(Trace.of(MATMUL, trace.trials[:1], SAFE_BITS))
    assert not slow.accepted
    assert "at least 7.0 % are needed" in slow.reason


def test_a_replay_measures_what_was_measured() -> None:
    trace = recorded()
    with Replay(trace) as replay:
        assert replay.prepare([tile(2), tile(4)]) == {tile(4): "too many registers"}
        assert replay.measure(tile(2), 20) == trace.trials[1]
        for begin, end in ((0, 3), (3, 20), (0, 3)):
            part = replay.measure(tile(2), end - begin)
            assert part.samples == trace.trials[1].samples[begin:end]
            assert part.baseline == trace.trials[1].baseline[begin:end]
        assert replay.measure(tile(4), 20).reason == "too many registers"
        assert replay.measure(tile(9), 20).reason == "the trace has no trial of it"
        assert replay.asked == [tile(2)] * 4 + [tile(4), tile(9)]


def test_measurements_of_one_plan_are_replayed_in_order_and_count_together() -> None:
    first, second = timed([1.1] * 3, tile(1)), timed([1.2] * 12, tile(1))
    trace = Trace.of(MATMUL, [first, timed([1.3] * 4, tile(2)), second], SAFE_BITS)
    replay = Replay(trace)
    assert [replay.measure(tile(1), 12) for _ in range(3)] == [first, second, first]
    (joined, short) = join_trials(trace.trials)
    assert joined.samples == first.samples + second.samples
    assert short.plan == tile(2)
    decision = pick(trace)
    assert (decision.plan, decision.accepted) == (tile(1), True), "4 rounds of the other are too few"
    assert decision.gain == pytest.approx(0.2)


def test_a_failure_in_any_measurement_is_the_failure_of_a_plan() -> None:
    good = timed([1.5] * 10, tile(1))
    for other, reason in (
        (Trial(tile(1), reason="it hung"), "it hung"),
        (timed([1.5] * 10, tile(1), bits="0ther"), "its results differ from run to run: `5afe` and `0ther`"),
    ):
        for trials in ([good, other], [good, other, good]):
            assert join_trials(trials)[0].reason == reason
            assert not pick(Trace.of(MATMUL, trials, SAFE_BITS)).accepted


def test_a_recorder_keeps_all_that_a_measurer_gives() -> None:
    trace = recorded()
    recorder = Recorder(Replay(trace))
    assert recorder.prepare([tile(2), tile(4)]) == {tile(4): "too many registers"}
    assert recorder.measure(tile(2), 20) == trace.trials[1]
    assert recorder.trials == [Trial(tile(4), reason="too many registers"), trace.trials[1]]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "x", '`format` must be "tessera-tuning-trace", got "x"'),
        (("signature", "arch"), 7, "`signature.arch` must be string, got 7"),
        (("criteria", "rounds"), 0, "`criteria.rounds` must be at least 1, got 0"),
        (("criteria", "confidence"), 1, "`criteria.confidence` must be at most 0.999999, got 1"),
        (("trials", 1, "samples", 0), -1, "`trials[1].samples[0]` must be more than 0, got -1"),
        (("trials", 1, "baseline"), [1.0], "`trials[1].baseline` must have 20 items as `samples`, got 1"),
        (("safe_bits",), None, "`safe_bits` must be string, got null"),
    ],
)
def test_a_trace_that_is_none_is_refused(
    tmp_path: Path, path: tuple[str | int, ...], value: object, message: str
) -> None:
    file = tmp_path / "trace.json"
    write_trace(file, recorded())
    content = json.loads(file.read_text())
    inner = content
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(TuningFileError, match=re.escape(message)):
        read_trace(file)


def test_files_that_are_not_there_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TuningFileError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(TuningFileError, match="cannot be written: No such file"):
        write_trace(tmp_path / "none" / "trace.json", recorded())
