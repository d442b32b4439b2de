"""Tuning while a program serves: bits, budget, adoption, what is skipped, and a clean end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.api import stored_plans
from tessera.api.jit import Jit
from tessera.api.online_tuning import Online
from tessera.diagnostics.codes import TuningError
from tessera.tuner.spare_time import CallCounter
from tests.determinism.programs import bits
from tests.tuner.online_clock import FASTER

LIKES, LIKES_LITTLE = (f"tests.tuner.online_clock:{name}" for name in ("likes_blocks", "likes_little"))


@pytest.fixture(autouse=True)
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    yield
    stored_plans.forget_plans()


def layer(x: Any, w: Any) -> Any:
    return ops.tanh(x @ w)


def double(x: Any) -> Any:
    return x * 2.0


def arrays(rows: int = 64) -> list[Any]:
    rng = np.random.default_rng(1)
    return [ts.array(rng.uniform(-1, 1, shape).astype(np.float32)) for shape in ((rows, 96), (96, 128))]


def make(*functions: Any, setup: str = "", **settings: Any) -> Online:
    """An online tuning that is not nice, as machines that test are busy, under a clock of the tests."""
    made = ts.autotune.online(*functions, share=1.0, quiet=0.0, **settings)
    made.niceness, made.setup = 0, setup
    return made


def serve(tuning: Online, call: Callable[[], Any], seconds: float = 120.0) -> list[str]:
    """Call until all that is known was looked at; the states of programs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not tuning.stopped:
        call()
        time.sleep(0.02)
        states = [one.state for one in tuning.report()]
        if states and not {"waiting", "measuring"} & set(states):
            break
    return [one.state for one in tuning.report()]


def test_a_plan_that_pays_is_adopted_with_equal_bits_and_kept() -> None:
    step, given = ts.jit(layer), arrays()
    expected, before = bits(step(*given)), ts.autotune.measurements()
    compiles = step.cache_info().compiles
    with make(step, setup=LIKES, budget=60.0) as tuning:
        assert serve(tuning, lambda: step(*given)) == ["adopted"]
        (found,) = tuning.report()
        assert {value for _, value in found.plan.choices} == {FASTER}
        assert found.gain > 0.3
        assert bits(step(*given)) == expected
        assert "(autotune)" in str(step.explain(*given))
    assert ts.autotune.measurements() == before, "nothing is measured in the process that serves"
    assert step.cache_info().compiles == compiles, "nor compiled"
    assert "adopted" in str(tuning)
    other = ts.jit(layer)
    assert bits(other(*given)) == expected
    assert "(autotune)" in str(other.explain(*given)), "what was adopted is kept"
    with make(other, setup=LIKES, budget=60.0) as tuning:
        assert serve(tuning, lambda: other(*given)) == ["adopted"]
        assert tuning.report()[0].runs == 0


def test_a_plan_below_the_threshold_is_not_adopted() -> None:
    step, given = ts.jit(layer), arrays()
    with make(step, setup=LIKES_LITTLE, budget=60.0) as tuning:
        assert serve(tuning, lambda: step(*given)) == ["kept"]
        (found,) = tuning.report()
    assert not found.plan.choices
    assert "at least 7.0 % are needed" in found.reason


def test_the_budget_is_kept() -> None:
    step, given = ts.jit(layer), arrays()
    with make(step, budget=0.2) as tuning:
        serve(tuning, lambda: step(*given))
        assert tuning.stopped == "budget"
    assert tuning.used < 0.2 + 5.0, "what was compiled when it ended, and one trial"
    assert "ended by budget" in str(tuning)


def test_the_hottest_program_is_first_and_sizes_are_those_of_calls() -> None:
    @ts.jit
    def rows(x: ts.Tensor["N", 96, ts.f32], w: ts.Tensor[96, 128, ts.f32]) -> Any:
        return ops.tanh(x @ w)

    cold, given = ts.jit(double), arrays()
    with make(cold, rows, setup=LIKES, budget=60.0) as tuning:
        cold(given[0])
        serve(tuning, lambda: rows(*given))
        first, second = tuning.report()
    assert (first.name, first.state) == ("rows", "adopted")
    assert first.calls > second.calls == 1


def test_what_cannot_be_measured_elsewhere_is_skipped_with_its_reason() -> None:
    @ts.jit
    def prints(x: Any) -> Any:
        ts.debug_print("x = {}", x)
        return x * 2.0

    large, given = ts.jit(layer), arrays()
    with make(prints, large, budget=60.0, memory=1000) as tuning:
        prints(given[0][0, :2])
        assert serve(tuning, lambda: large(*given)) == ["skipped", "skipped"]
        reasons = {one.name: one.reason for one in tuning.report()}
    assert "acts on the outside" in reasons["prints"]
    assert "bytes of tensors, and `memory` is 1000" in reasons["layer"]


def test_calls_of_many_threads_go_on_and_give_the_same_bits() -> None:
    step, given = ts.jit(layer), arrays()
    expected, wrong, end = bits(step(*given)), list[str](), threading.Event()

    def work() -> None:
        while not end.wait(0.01):
            if bits(step(*given)) != expected:
                wrong.append("other bits")

    threads = [threading.Thread(target=work) for _ in range(3)]
    with make(step, setup=LIKES, budget=60.0) as tuning:
        for one in threads:
            one.start()
        try:
            states = serve(tuning, lambda: step(*given))
        finally:
            end.set()
            for one in threads:
                one.join()
    assert states == ["adopted"]
    assert not wrong
    assert tuning.discarded > 0, "calls came in on runs, which do not count"


def test_calls_go_on_while_a_tuning_starts_and_stops() -> None:
    step, given = ts.jit(double), ts.ones((4,))
    step(given)
    failed, end = list[BaseException](), threading.Event()

    def work() -> None:
        while not end.is_set():
            try:
                step(given)
            except BaseException as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=work) for _ in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for one in threads:
            one.start()
        for _ in range(20):
            tuning = make(step, budget=60.0).start()
            time.sleep(0.002)
            tuning.stop()
    finally:
        sys.setswitchinterval(interval)
        end.set()
        for one in threads:
            one.join()
    assert not failed
    assert type(step) is Jit


def test_a_call_may_begin_before_the_end_and_go_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step, given = ts.jit(double), ts.ones((4,))
    tuning = make(step, budget=60.0).start()
    begin = type(step).__call__
    tuning.stop()
    assert begin(step, given).tolist() == [2.0] * 4, "it had looked for what to call, and no more"
    tuning, enter = make(step, budget=60.0).start(), CallCounter.enter

    def enter_and_stop(self: CallCounter) -> None:
        enter(self)
        tuning.stop()

    monkeypatch.setattr(CallCounter, "enter", enter_and_stop)
    assert step(given).tolist() == [2.0] * 4
    assert type(step) is Jit


def test_no_file_stays_open() -> None:
    step, given = ts.jit(layer), arrays()
    step(*given)
    made: list[Online] = []
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        made.append(make(step, budget=60.0))
        with made[-1]:
            step(*given)
    made.append(make(step))
    assert len(os.listdir("/proc/self/fd")) == len(before), "nor has one that was never started a file"
    assert [sum(one.calls for one in tuning.report()) for tuning in made] == [1, 1, 1, 0]


@pytest.mark.parametrize("donate", [(), ("x",)])
def test_sizes_come_of_keywords_and_of_tensors_that_were_donated(donate: tuple[str, ...]) -> None:
    @ts.jit(donate=donate)
    def rows(x: ts.Tensor["N", 96, ts.f32], w: ts.Tensor[96, 128, ts.f32]) -> Any:
        return ops.tanh(x @ w)

    def call() -> None:
        x, w = arrays()
        rows(w=w, x=x)

    with make(rows, setup=LIKES, budget=60.0) as tuning:
        assert serve(tuning, call) == ["adopted"]


def test_no_argument_is_kept() -> None:
    @ts.jit
    def rows(x: ts.Tensor["N", ts.f32]) -> Any:
        return x * 2.0

    hot, others = ts.jit(layer), arrays()
    with make(hot, rows, budget=60.0) as tuning:
        end = time.monotonic() + 30.0
        while not any(one.state == "measuring" for one in tuning.report()) and time.monotonic() < end:
            hot(*others)
        given = ts.ones((8,))
        kept = weakref.ref(given)
        rows(given)
        del given
        while kept() is not None and time.monotonic() < end:
            time.sleep(0.01)
        states = {one.name: one.state for one in tuning.report()}
    assert kept() is None
    assert states["rows"] == "waiting", "its turn has not come, and its sizes are known"


def test_each_call_is_counted_whoever_asks_meanwhile() -> None:
    step, given = ts.jit(double), ts.ones((4,))
    step(given)

    def work() -> None:
        for _ in range(500):
            step(given)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with make(step, budget=60.0) as tuning:
        for one in threads:
            one.start()
        while any(one.is_alive() for one in threads):
            tuning.report()
    assert [one.calls for one in tuning.report()] == [2000]


def test_a_report_is_of_now_and_says_nothing_of_measuring_after_the_end() -> None:
    step, given = ts.jit(layer), arrays()
    with make(step, setup=LIKES, budget=600.0) as tuning:
        step(*given)
        end = time.monotonic() + 60.0
        while not (found := tuning.report()) or not found[0].runs:
            assert time.monotonic() < end
            time.sleep(0.005)
        assert found[0].state == "measuring"
        assert tuning.used > 0.0
    (found,) = tuning.report()
    assert (found.state, found.reason) == ("unfinished", "ended by stop")
    assert found.runs > 0
    assert "measuring" not in str(tuning)


def _children() -> set[str]:
    with open(f"/proc/{os.getpid()}/task/{threading.main_thread().native_id}/children", encoding="utf-8") as file:
        found = set(file.read().split())
    for task in os.listdir(f"/proc/{os.getpid()}/task"):
        try:
            with open(f"/proc/{os.getpid()}/task/{task}/children", encoding="utf-8") as file:
                found |= set(file.read().split())
        except FileNotFoundError:
            continue  # a thread that has ended since it was listed
    return found


def test_an_error_in_the_block_ends_everything_cleanly() -> None:
    step, given = ts.jit(layer), arrays()
    step(*given)
    before = _children()
    tuning = make(step, budget=60.0)

    def fail() -> None:
        with tuning:
            end = time.monotonic() + 30.0
            while time.monotonic() < end and not (_children() - before):
                step(*given)
                time.sleep(0.01)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert tuning.stopped == "stop"
    assert not _children() - before
    assert not [one for one in threading.enumerate() if one.name == "tessera-online"]
    assert type(step) is Jit
    step(*given)


def test_a_process_that_dies_costs_the_tuning_and_no_call() -> None:
    step, given = ts.jit(layer), arrays()
    expected, before = bits(step(*given)), _children()
    with make(step, budget=60.0) as tuning:
        end = time.monotonic() + 30.0
        while time.monotonic() < end and not tuning.stopped:
            assert bits(step(*given)) == expected
            for child in _children() - before:
                os.kill(int(child), signal.SIGKILL)
            time.sleep(0.02)
        assert tuning.stopped.startswith("failed: ")
        assert "ended with status -9" in tuning.stopped
        assert bits(step(*given)) == expected


def test_functions_with_their_source_and_stopping_twice() -> None:
    @ts.function
    def step(x: Any) -> Any:
        return x * 2.0

    kind = type(step)
    tuning = make(step, step, budget=1.0).start()
    assert step.source
    assert isinstance(step, kind)
    step(ts.ones((4,)))
    with pytest.raises(TuningError, match="tuned online already"):
        make(step).start()
    tuning.stop()
    tuning.stop()
    assert type(step) is kind


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"budget": 0}, "`budget` is a number of seconds"),
        ({"share": 0.0}, "`share` is a fraction above 0, at most 1, got 0.0"),
        ({"share": 2}, "`share` is a fraction"),
        ({"quiet": -1.0}, "`quiet` is seconds, at least 0"),
        ({"memory": "1 GiB"}, "`memory` is bytes, got '1 GiB'"),
        ({"threshold": -1.0}, "`threshold` is a fraction"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(TuningError, match=text):
        ts.autotune.online(ts.jit(layer), **settings)


def test_what_is_no_jitted_function_is_refused() -> None:
    for given in ((), (layer,)):
        with pytest.raises(TuningError, match="takes jitted functions, got"):
            ts.autotune.online(*given)
