"""Spare time: nothing runs while a call does, what a call came in on does not count, and the budget is kept."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tessera.tuner.records import Plan
from tessera.tuner.search import BudgetError, Space, search
from tessera.tuner.spare_time import CallCounter, SpareMeasurer, SpareTime


@pytest.fixture
def calls() -> CallCounter:
    return CallCounter()


class Program:
    """Takes as long as its plan says, by a clock of its own."""

    def __init__(self, plan: Plan) -> None:
        self._time = 1000.0 - 100.0 * plan.overrides.get("tile", 0)

    def run(self) -> float:
        time.sleep(0.001)
        return self._time

    def bits(self) -> str:
        return "c0ffee"

    def close(self) -> None:
        pass


class Programs:
    """A workload of such programs."""

    def compile(self, plan: Plan) -> Program:
        return Program(plan)

    def prepare(self, plan: Plan) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_it_is_quiet_when_no_call_is_under_way_and_none_was_for_a_while(calls: CallCounter) -> None:
    assert calls.is_quiet(0.0)
    calls.enter()
    calls.enter()
    assert not calls.is_quiet(0.0)
    calls.leave()
    assert not calls.is_quiet(0.0), "another thread's call is under way"
    calls.leave()
    assert calls.is_quiet(0.0)
    assert not calls.is_quiet(60.0)


def test_calls_of_a_device_count_until_it_is_done(calls: CallCounter) -> None:
    calls.enter()
    calls.leave(is_settled=False)
    assert calls.is_unsettled
    assert not calls.is_quiet(0.0)
    started = calls.started
    calls.enter()
    calls.settle(started)
    calls.leave(is_settled=False)
    assert not calls.is_quiet(0.0), "one call more than it is done with"
    calls.settle(calls.started)
    assert calls.is_quiet(0.0)


def test_counts_of_many_threads_are_kept_and_another_process_sees_them(calls: CallCounter) -> None:
    def work() -> None:
        for _ in range(2000):
            calls.enter()
            calls.leave()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert calls.started == 8000
    assert CallCounter(calls.file).started == 8000
    assert calls.is_quiet(0.0)


def test_a_counter_that_is_closed_has_no_file_and_calls_leave_it(calls: CallCounter) -> None:
    before = len(os.listdir("/proc/self/fd"))
    calls.enter()
    calls.close()
    assert len(os.listdir("/proc/self/fd")) < before
    calls.leave()
    calls.enter()
    calls.close()


def test_who_measures_says_how_far_it_is(calls: CallCounter) -> None:
    spare = SpareTime(calls, budget=60.0, quiet=0.0)
    assert calls.progress == (0.0, 0, 0)
    with spare.count_time():
        for _ in range(3):
            spare.run(lambda: float(time.sleep(0.002) is None))
        spare.wait()
        used, discarded, runs = calls.progress
    assert (discarded, runs) == (0, 3)
    assert 0.006 <= used <= spare.used


def test_a_run_waits_for_the_call_that_is_under_way(calls: CallCounter) -> None:
    spare, order = SpareTime(calls, budget=60.0, quiet=0.0), list[str]()
    calls.enter()

    def serve() -> None:
        time.sleep(0.1)
        order.append("call")
        calls.leave()

    thread = threading.Thread(target=serve)
    thread.start()
    with spare.count_time():
        spare.run(lambda: float(order.append("run") is None))
    thread.join()
    assert order == ["call", "run"]
    assert spare.used < 0.09, "waiting is not counted"


def test_a_run_that_a_call_comes_in_on_is_thrown_away(calls: CallCounter) -> None:
    spare, runs = SpareTime(calls, budget=60.0, quiet=0.0), list[float]()

    def run() -> float:
        runs.append(float(len(runs)))
        if len(runs) <= 2:
            calls.enter()
            calls.leave()
        return runs[-1]

    with spare.count_time():
        assert spare.run(run) == 2.0
    assert spare.discarded == 2


def test_no_more_than_the_share_of_the_time_is_used(calls: CallCounter) -> None:
    spare, start = SpareTime(calls, budget=60.0, share=0.25, quiet=0.0), time.monotonic()
    with spare.count_time():
        spare.run(lambda: float(time.sleep(0.05) is None))
    assert time.monotonic() - start >= 0.19
    assert spare.used < 0.12


def test_a_search_in_spare_time_ends_with_the_budget_and_gives_the_best_so_far(calls: CallCounter) -> None:
    plans = [Plan.of({"tile": tile / 100}) for tile in range(400)]
    spare = SpareTime(calls, budget=0.3, quiet=0.0)
    with spare.count_time(), SpareMeasurer(Programs(), spare) as measurer:
        outcome = search(Space.of(plans), measurer, mode="exhaustive", budget=600.0)
    assert outcome.stopped == "budget"
    assert 0 < outcome.measured < 40
    assert outcome.best is not None
    assert spare.used < 0.3 + 0.3, "a trial more at most"


def test_a_plan_whose_every_run_is_disturbed_is_given_up(calls: CallCounter) -> None:
    spare = SpareTime(calls, budget=60.0, quiet=0.0)

    def disturbed() -> float:
        calls.enter()
        calls.leave()
        return 1.0

    with spare.count_time(), pytest.raises(BudgetError):
        spare.run(disturbed)
