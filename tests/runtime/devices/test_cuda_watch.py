"""Watched streams with a driver that does nothing: what a call writes down, when it raises, and that nothing stays."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx import host
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.compiler.program_plan import match_launches, plan_program
from tessera.diagnostics.codes import StreamRaceError
from tessera.ir.schedule.host_program.launch_order import BEGIN, StreamPlan, assign_streams
from tessera.runtime.devices.cuda import driver as cuda_driver
from tessera.runtime.devices.cuda import launch_times as launch_times  # so that its driver is replaced too
from tessera.runtime.devices.cuda import program as cuda_program
from tessera.runtime.devices.cuda import streams as cuda_stream
from tessera.runtime.devices.cuda.memory import PinnedMemory, Pool
from tessera.runtime.devices.cuda.program import CudaProgram, NativeCall, Sizes
from tessera.runtime.devices.cuda.race_check import race_check
from tessera.runtime.devices.cuda.streams import CURRENT, Stream, Words, capture, stream
from tessera.runtime.devices.cuda.tensor import CudaTensor, form_of
from tessera.runtime.loader import link
from tessera.runtime.timeline import WATCH, HostWait, Launch, Signal, Wait, notify
from tessera.types.dtype import f32
from tests.oracles.launch_orders import without_wait
from tests.runtime.devices.numbered import Numbered

_ANY = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 11)
SHAPE = (4, 64)


class Driver(Numbered):
    """Says yes to everything."""

    ordinal, step = 0, 1 << 16

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.function = _ANY(self._count)

    def _count(self, *_: Any) -> int:
        self.calls += 1
        return 0

    def address(self, name: str) -> int:
        return ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def enter(self) -> bool:
        return False

    def call(self, name: str, *given: Any) -> None:
        getattr(self, name)(*given)

    def __getattr__(self, name: str) -> Any:
        def answer(*given: Any) -> int:
            self.give(name, given)
            return 0

        return answer


def chain(x: Any, y: Any) -> Any:
    return ts.ops.relu(x @ y.T) @ y


def wide(x: Any, y: Any) -> Any:
    return sum(ts.ops.relu((x * factor) @ y.T) @ y for factor in (1.0, 2.0, 3.0))


def skips(x: Any, y: Any) -> Any:
    """Early values that are read late, in the opposite order."""
    kept = [x]
    for _ in range(6):
        kept.append(ts.ops.relu(kept[-1] @ y.T) @ y)
    total = kept.pop()
    while kept:
        total = ts.ops.relu(total @ y.T) @ y * kept.pop()
    return total


@cache
def executable(function: Callable[..., Any] = chain, streams: int = 1, **given: Any) -> Any:
    arrays = [np.zeros(SHAPE, np.float32)] * 2
    overrides = {"launch.streams": streams} if streams > 1 else {}
    options = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides, **given)
    return compile_tape(ts.jit(function).trace(*arrays).tape, options)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made, pool = Driver(), Pool()
    for name, module in list(sys.modules.items()):
        if name.startswith("tessera.runtime.devices.cuda."):
            for part, value in (("driver", lambda: made), ("POOL", pool)):
                if hasattr(module, part):
                    monkeypatch.setattr(module, part, value)
    monkeypatch.setattr(cuda_stream, "_BRANCHES", {})
    monkeypatch.setattr(cuda_stream, "_SPARE", [])
    yield made
    assert WATCH.note is None


def program(compiled: Any = None) -> Callable[..., Any]:
    """The compiled function with its real host program, whose kernels are left out."""
    made = object.__new__(CudaProgram)
    made.executable, made.copies = compiled or executable(), 0
    facts = made.executable.metadata
    code = link([made.executable.objects[0]], {})
    fields: dict[str, Any] = {
        "_plans": {},
        "_sizes": Sizes(made.executable),
        "_states": {},
        "_native": NativeCall(code.address("tessera_call"), code),
        "_callbacks": None,
        "_code": code,
        "_donation": None,
        "_entry": cuda_program._ENTRY(code.address("tessera_entry")),  # pyright: ignore[reportPrivateUsage]
        "_words": Words(
            [7000 + at for at in range(len(facts["called"]))],
            facts["streams"],
            facts["events"],
            code.address("tessera_nothing") if facts["streams"] > 1 else 0,
            offloads=facts["offloaded"] != "0",
        ),
        "_maps": type("Maps", (), {"address": 0})(),
    }
    made.__dict__.update(fields)
    made.call = made.__dict__["_native"].builtin
    return made


def unheard(*_: Any) -> None:
    """A wait that nobody makes."""


def tensor() -> CudaTensor:
    return CudaTensor.empty(SHAPE, f32)


def test_a_call_says_what_each_kernel_reads_and_writes(cuda: Driver) -> None:
    function, x, y = program(), tensor(), tensor()
    with race_check() as log:
        z = function(x, y)
    first, second = (entry for entry in log if isinstance(entry, Launch))
    names = executable().metadata["called"]
    assert (first.name, second.name) == (names[0], names[1])
    spans = [(one.address, one.address + one.nbytes) for one in (x, y, z)]
    assert first.reads[:2] == (spans[0], spans[1])
    assert second.writes == (spans[2],)
    assert first.writes[0] == second.reads[0]
    assert spans[2] in first.taken
    assert cuda.calls == 2


def test_streams_that_wait_are_clean_and_those_that_do_not_are_stopped(
    cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, x, aside = program(), tensor(), Stream()
    with race_check() as log:
        y = function(x, x)
        with stream(aside):
            z = function(y, y)
    assert [type(entry) for entry in log if isinstance(entry, Signal | Wait)] == [Signal, Wait] * 2
    assert z.stream == aside.handle
    monkeypatch.setattr(cuda_program, "wait_for", unheard)
    calls = cuda.calls
    with race_check():
        y = function(x, x)
        with stream(aside), pytest.raises(StreamRaceError, match="nothing orders them") as caught:
            function(y, y)
        assert executable().metadata["called"][1] in str(caught.value)
    assert cuda.calls == calls + 2  # what races is not launched


def test_watching_leaves_nothing_behind(cuda: Driver) -> None:
    function, x = program(), tensor()
    with race_check() as log:
        y = function(x, x)
        assert function.call(x, x) is NotImplemented  # pyright: ignore[reportFunctionMemberAccess]
        with stream(Stream()):
            assert type(CURRENT.handle) is not int
    assert CURRENT.handle is y.stream is y.lane is x.stream
    count = len(log)
    function(x, x)
    function(y, y)
    assert len(log) == count


def test_copies_and_waits_of_the_host_are_entries(cuda: Driver) -> None:
    aside = Stream()
    with race_check() as log:
        x = CudaTensor.of(np.zeros(SHAPE, np.float32))
        with stream(aside):
            y = x.copy()
        y.cpu()
        aside.synchronize()
        cuda_driver.synchronize()
    kinds = [type(entry) for entry in log]
    assert kinds == [Launch, HostWait, Signal, Wait, Launch, Signal, Wait, Launch, HostWait, HostWait, HostWait]
    assert "host: waits for everything" in str(log)
    assert f"{aside.handle:#x}: a copy" in str(log)


def test_a_graph_is_logged_when_it_is_replayed(cuda: Driver) -> None:
    function, x = program(), tensor()
    with race_check() as log:
        with capture() as recording:
            function(x, x)
        before = [entry for entry in log if isinstance(entry, Launch)]
        recording.replay()
        recording.replay()
    launches = [entry for entry in log if isinstance(entry, Launch)]
    assert before == []
    assert [launch.stream for launch in launches] == [0] * 4
    assert form_of(f32, SHAPE).bytes == launches[0].reads[0][1] - launches[0].reads[0][0]


def test_of_a_graph_that_nobody_watched_the_memory_is_known(cuda: Driver) -> None:
    function, x, aside = program(), tensor(), Stream()
    with capture() as recording:
        y = function(x, x)
    with race_check(), stream(aside):
        recording.replay()
        function(y, y)
    with race_check():
        recording.replay()
        moved = (y.address, y.address + y.nbytes)
        with pytest.raises(StreamRaceError, match="`other` in stream `0x9` reads what `a CUDA graph`"):
            notify([Launch("other", 9, (moved,))])


def test_a_program_of_several_streams_fills_them_where_it_is_captured(cuda: Driver) -> None:
    function, x, y = program(executable(wide, 4)), tensor(), tensor()
    with race_check() as log:
        function(x, y)
    assert {entry.stream for entry in log if isinstance(entry, Launch)} == {0}
    with capture() as recording:
        function(x, y)
    with race_check() as log:
        recording.replay()
    assert len(log) == 1  # nobody watched when it was captured
    with race_check() as log:
        with capture() as recording:
            function(x, y)
        recording.replay()
    streams = {entry.stream for entry in log if isinstance(entry, Launch)}
    assert len(streams) == 3
    assert 0 in streams
    assert len(cuda_stream._SPARE) == 2  # pyright: ignore[reportPrivateUsage] - one capture after the other
    assert {type(entry) for entry in log} >= {Signal, Wait}


def test_a_wait_that_a_host_program_leaves_out_is_found(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[StreamPlan] = []

    def make_planned(order: Any, count: int) -> StreamPlan:
        plan = assign_streams(order, count)
        plans.append(plan)
        step = next(step for step in plan.steps if any(wait != BEGIN for wait in step.waits))
        return without_wait(plan, step.node.number, step.waits[-1])

    monkeypatch.setattr(host, "assign_checked_streams", make_planned)
    arrays = [np.zeros(SHAPE, np.float32)] * 2
    options = Options.of(backend="cuda", features=("sm_90a",), overrides={"launch.streams": 2})
    function = program(compile_tape(ts.jit(wide).trace(*arrays).tape, options))
    x, y = tensor(), tensor()
    with race_check():
        with capture() as recording:
            function(x, y)
        with pytest.raises(StreamRaceError, match="nothing orders them"):
            recording.replay()
    assert plans[0].streams == 2


# Offloaded values: copies in streams of their own, which wait for kernels, and for which kernels wait.

FEW = 2500
"""Bytes of workspace that most of what `skips` keeps does not fit into."""


def pinned() -> int:
    """Bytes of pinned memory that somebody needs."""
    gc.collect()
    return PinnedMemory.held


def copies_in(log: Any, name: str) -> list[Launch]:
    return [entry for entry in log if isinstance(entry, Launch) and entry.name == name]


@pytest.mark.parametrize("streams", [1, 2])
def test_offloaded_values_go_through_pinned_memory_beside_kernels(cuda: Driver, streams: int) -> None:
    """The log of a call is checked for races: a wait that is missing anywhere would raise."""
    made = executable(skips, streams, memory=FEW, offload=True)
    size = int(made.metadata["offloaded"])
    assert size >= 3 * 4 * 64 * 4
    assert int(made.metadata["workspace"]) <= FEW
    function, x, y, before = program(made), tensor(), tensor(), pinned()
    with race_check() as log:
        function(x, y)
        function(x, y)
    assert pinned() == before + size
    out, back = copies_in(log, "a copy to the host"), copies_in(log, "a copy from the host")
    assert len(out) == len(back) >= 6
    assert {span for copy in out for span in copy.writes} == {span for copy in back for span in copy.reads}
    used = [{entry.stream for entry in entries} for entries in (out, back, copies_in(log, made.metadata["called"][0]))]
    assert [len(one) for one in used[:2]] == [1, 1]
    assert used[0].isdisjoint(used[1])
    assert used[2].isdisjoint(used[0] | used[1])
    assert function.call(x, y) is NotImplemented  # pyright: ignore[reportFunctionMemberAccess]
    del function
    assert pinned() == before


def test_a_wait_for_an_offloaded_value_that_is_left_out_is_found(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    left_out: list[tuple[int, int]] = []
    plans: list[StreamPlan] = []

    def make_planned(order: Any, count: int) -> StreamPlan:
        plans.append(assign_streams(order, count))
        return without_wait(plans[-1], *left_out[-1]) if left_out else plans[-1]

    monkeypatch.setattr(host, "assign_checked_streams", make_planned)
    arrays = [np.zeros(SHAPE, np.float32)] * 2
    options = Options.of(backend="cuda", features=("sm_90a",), memory=FEW, offload=True)
    tape = ts.jit(skips).trace(*arrays).tape
    compile_tape(tape, options)
    waits = [(step.node.number, wait) for step in plans[0].steps for wait in step.waits if wait != BEGIN]
    assert len(waits) > 8
    x, y, found = tensor(), tensor(), ""
    for pair in waits[::4]:
        left_out.append(pair)
        function = program(compile_tape(tape, options))
        with race_check(), pytest.raises(StreamRaceError, match="nothing orders them") as caught:
            function(x, y)
        found += str(caught.value)
    assert "the host" in found


def test_a_captured_call_has_pinned_memory_of_its_own(cuda: Driver) -> None:
    made = executable(skips, memory=FEW, offload=True)
    function, x, y, size = program(made), tensor(), tensor(), int(made.metadata["offloaded"])
    before = pinned()
    function(x, y)
    with race_check() as log:
        with capture() as recording:
            function(x, y)
        assert pinned() == before + 2 * size
        recording.replay()
    assert len(copies_in(log, "a copy from the host")) >= 3
    del recording, function
    assert pinned() == before


class Clock(Driver):
    """A driver on whose device every event is a millisecond after the one before, and a launch takes two more."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.times = 0, dict[int, int]()

    def _count(self, *given: Any) -> int:
        self.now += 2
        return super()._count(*given)

    def cuEventRecord(self, event: Any, stream: Any) -> None:  # noqa: N802 - the driver's name
        self.now += 1
        self.times[event.value] = self.now

    def cuEventElapsedTime(self, found: Any, earlier: Any, later: Any) -> None:  # noqa: N802 - the driver's name
        found._obj.value = self.times[later.value] - self.times[earlier.value]


def test_launches_are_timed_by_events_and_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Clock()
    for name, module in list(sys.modules.items()):
        if name.startswith("tessera.runtime.devices.cuda.") and hasattr(module, "driver"):
            monkeypatch.setattr(module, "driver", lambda: made)
            monkeypatch.setattr(module, "POOL", Pool(), raising=False)
    function, x = program(), tensor()
    with cuda_program.CudaProgram.record_launches() as times:
        function(x, x)
        function(x, x)
    first, second = (one for one in times.spans[:2])
    assert [one.name for one in times.spans] == executable().metadata["called"] * 2
    assert {one.end - one.start for one in times.spans} == {3_000_000}
    assert second.start - first.end == 1_000_000
    assert {(one.kind, one.track, one.rank) for one in times.spans} == {("kernel", 0, 0)}
    assert WATCH.note is None
    assert made.calls == 4
    options = Options.of(backend="cuda", features=("sm_90a",))
    plan = plan_program(ts.jit(chain).trace(*[np.zeros(SHAPE, np.float32)] * 2).tape, options)
    calls = match_launches(plan, [one.name for one in times.spans[:2]], {})
    assert [one and one.step for one in calls] == [one.step for one in plan.calls]
    function(x, x)
    assert len(times.spans) == 4
