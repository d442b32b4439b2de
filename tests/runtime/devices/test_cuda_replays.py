"""Calls with the same addresses again: what is captured and replayed, with a driver that only writes down."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.runtime.devices.cuda import graphs as cuda_replays
from tessera.runtime.devices.cuda.graphs import CAPTURE_AFTER, ENTRIES, RELEASE_AFTER, Replays
from tessera.runtime.devices.cuda.program import Plan
from tessera.runtime.devices.cuda.streams import current_stream, stream
from tessera.runtime.devices.cuda.tensor import CudaTensor, form_of
from tessera.types.dtype import f32
from tests.runtime.devices.test_cuda_call import OTHER, SHAPE, Called, both, sum_pairs, sum_rows, tensor

_LOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
_PLAY = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2)


class Driver:
    """Graphs are numbers; `refused` names functions that fail."""

    def __init__(self) -> None:
        self.library: Any = self
        self.graphs, self.asked, self.destroyed = 0, list[str](), list[int]()
        self.refused: set[str] = set()
        self.played: list[int] = []
        self.answer = 0
        self._play = _PLAY(self._replay)
        self.is_captured, self.looks = 0, 0
        self._look = _LOOK(self._look_up)

    def _replay(self, graph: int, _: int) -> int:
        self.played.append(graph)
        return self.answer

    def _look_up(self, stream: int, state: Any) -> int:
        self.looks += 1
        state[0] = self.is_captured
        return 0

    def address(self, name: str) -> int:
        function: Any = {"cuGraphLaunch": self._play, "cuStreamIsCapturing": self._look}[name]
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def call(self, name: str, *words: Any) -> None:
        self.asked.append(name)

    def __getattr__(self, name: str) -> Callable[..., int]:
        def answer(*words: Any) -> int:
            self.asked.append(name)
            if name in self.refused:
                return 900
            if name == "cuGraphInstantiateWithFlags":
                self.graphs += 1
                words[0]._obj.value = 0x500 + self.graphs
            if name == "cuGraphExecDestroy":
                self.destroyed.append(words[0].value)
            return 0

        return answer


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return _cuda(monkeypatch)


def _cuda(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda_replays, "driver", lambda: made)
    monkeypatch.setattr(cuda_replays, "Stream", lambda: type("Aside", (), {"handle": 0x99})())
    monkeypatch.setattr(cuda_replays, "_ASIDE", [])
    monkeypatch.setattr(cuda_replays, "_MADE", set[int]())
    return made


class Replayed(Called):
    """A program whose plan has replays; `captured` are the addresses that were."""

    def __init__(self, function: Callable[..., Any], workspace: int = 0, handle: int = 0) -> None:
        super().__init__(function, workspace=workspace)
        self.state[0] = handle
        self.recorded: list[list[int]] = []
        self.record_answer = 0
        outputs = list(zip(self.forms, self.free_lists, strict=True))
        self.replays = Replays(2 + len(outputs) + 1, 0, self._record)
        forms = [form_of(f32, SHAPE)] * 2
        plan = Plan(handle, forms, (ctypes.c_int64 * 1)(), outputs, self.own, self.state, self.replays)
        self.plans = [plan]
        self.native.add(plan)

    def _record(self, addresses: list[int], stream: int) -> int:
        assert stream == 0x99
        self.recorded.append(addresses)
        return self.record_answer


def test_a_call_that_repeats_is_captured_and_replayed(cuda: Driver) -> None:
    program, x, y = Replayed(sum_rows), tensor(0x10000), tensor(0x20000)
    for _ in range(CAPTURE_AFTER):
        assert program.call(x, y).address == 0x1030000
    assert program.recorded == [[0x1030000, 0, 0x10000, 0x20000]]
    assert len(program.launches) == CAPTURE_AFTER
    assert not cuda.played
    for _ in range(3):
        assert program.call(x, y).address == 0x1030000
    assert cuda.played == [0x501] * 3
    assert len(program.launches) == CAPTURE_AFTER
    assert program.native.calls == CAPTURE_AFTER + 3


def test_other_addresses_are_other_launches(cuda: Driver) -> None:
    program, x, y = Replayed(sum_rows), tensor(0x10000), tensor(0x20000)
    for _ in range(CAPTURE_AFTER):
        program.call(x, y)
    held = program.call(x, y)
    assert cuda.played == [0x501]
    for left, right in ((y, x), (x, x)):
        program.call(left, right)
    program.call(x, y)  # whose result has another place, as the one before is held
    assert cuda.played == [0x501]
    assert len(program.launches) == CAPTURE_AFTER + 3
    assert held.address == 0x1030000


def test_workspace_and_all_results_count(cuda: Driver) -> None:
    program, x = Replayed(sum_pairs, workspace=4096), tensor(0x10000)
    assert program.own is not None
    for _ in range(CAPTURE_AFTER + 1):
        program.call(x, x)
    assert cuda.played == [0x501]
    program.own.free.reverse()
    program.call(x, x)
    assert cuda.played == [0x501]
    several, launches = Replayed(both), CAPTURE_AFTER
    for _ in range(launches):
        several.call(x, x)
    assert several.recorded == [[0x1030000, 0x2030000, 0, 0x10000, 0x10000]]
    several.free_lists[1].free.reverse()
    several.call(x, x)
    assert cuda.played == [0x501]


def test_a_loop_that_keeps_its_last_results_is_replayed_too(cuda: Driver) -> None:
    program, x, kept = Replayed(sum_rows), tensor(0x10000), list[CudaTensor]()
    for _ in range(6 * CAPTURE_AFTER):
        kept = [*kept[-2:], program.call(x, x)]
    assert len(program.recorded) == 4
    assert len(cuda.played) > CAPTURE_AFTER


def test_a_program_that_cannot_be_captured_is_called_on(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)
    cuda.refused = {"cuStreamEndCapture"}
    for _ in range(4 * CAPTURE_AFTER):
        program.call(x, x)
    assert program.replays.is_off
    assert len(program.recorded) == 1
    assert (cuda.played, len(program.launches)) == ([], 4 * CAPTURE_AFTER)


def test_an_entry_that_fails_while_it_is_captured_is_not_replayed(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)
    program.record_answer = 901
    for _ in range(2 * CAPTURE_AFTER):
        program.call(x, x)
    assert cuda.asked.count("cuStreamEndCapture") == 1
    assert cuda.asked[-2:] == ["cuStreamEndCapture", "cuThreadExchangeStreamCaptureMode"]
    assert program.replays.graphs == []


def test_while_somebody_else_captures_nothing_is_and_later_it_is(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)
    cuda.refused = {"cuStreamIsCapturing"}
    for _ in range(2 * CAPTURE_AFTER):
        program.call(x, x)
    assert program.recorded == []
    cuda.refused.clear()
    for _ in range(CAPTURE_AFTER + 1):
        program.call(x, x)
    assert len(program.recorded) == 1
    assert len(cuda.played) >= 1


def test_a_replay_that_fails_is_python_s_to_explain(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)
    for _ in range(CAPTURE_AFTER):
        program.call(x, x)
    cuda.answer = 201
    assert program.call(x, x) is NotImplemented
    gc.collect()
    assert sorted(program.free_lists[0].free) == [0x1000000 + 0x10000 * at for at in range(4)]
    cuda.answer = 0
    assert program.call(x, x).address == 0x1030000


def test_a_stream_that_somebody_captures_takes_launches(cuda: Driver) -> None:
    with stream(OTHER):
        handle = current_stream()
        program, x = Replayed(sum_rows, handle=handle), tensor(0x10000, handle=handle)
        for _ in range(CAPTURE_AFTER + 1):
            program.call(x, x)
        assert (len(cuda.played), cuda.looks) == (1, CAPTURE_AFTER + 1)
        cuda.is_captured = 1
        program.call(x, x)
        assert len(cuda.played) == 1
        assert len(program.launches) == CAPTURE_AFTER + 1
        cuda.is_captured = 0
        program.call(x, x)
        assert len(cuda.played) == 2


def test_graphs_are_not_without_number(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_replays, "MOST", 1)
    program = Replayed(sum_rows)
    for place in (0x10000, 0x20000):
        for _ in range(CAPTURE_AFTER + 1):
            program.call(tensor(place), tensor(0x30000))
    assert len(program.recorded) == 1
    assert cuda.played == [0x501]


def test_what_is_no_longer_called_goes(cuda: Driver) -> None:
    program = Replayed(sum_rows)
    for at in range(ENTRIES):
        for _ in range(CAPTURE_AFTER):
            program.call(tensor(0x10000 * (at + 1)), tensor(0x20000))
    assert len(program.replays.graphs) == ENTRIES
    other = tensor(0x770000)
    for _ in range(RELEASE_AFTER):
        program.call(other, other)
    assert (len(cuda.destroyed), program.replays.graphs) == (ENTRIES, [])
    for _ in range(CAPTURE_AFTER + 2):
        program.call(other, other)
    assert len(cuda.played) == 2


def test_graphs_go_with_their_plan(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)
    for _ in range(CAPTURE_AFTER):
        program.call(x, x)
    program.native.clear()
    del program
    gc.collect()
    assert cuda.destroyed == [0x501]


def test_what_a_capture_raises_reaches_the_caller(cuda: Driver) -> None:
    program, x = Replayed(sum_rows), tensor(0x10000)

    def stop(addresses: list[int], stream: int) -> int:
        raise KeyboardInterrupt

    program.replays._run = stop  # pyright: ignore[reportPrivateUsage]
    for _ in range(CAPTURE_AFTER - 1):
        program.call(x, x)
    with pytest.raises(KeyboardInterrupt):
        program.call(x, x)
    gc.collect()
    assert len(program.free_lists[0].free) == 4


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), min_size=40, max_size=160))
def test_what_is_replayed_is_what_would_be_launched(steps: list[tuple[int, int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cuda = _cuda(patch)
        program, held = Replayed(sum_rows), list[CudaTensor]()
        inputs = [tensor(0x10000 * (at + 1)) for at in range(3)]
        for left, right, keeps in steps:
            played, launched = len(cuda.played), len(program.launches)
            made = program.call(inputs[left], inputs[right])
            wanted = [inputs[left].address, inputs[right].address, made.address]
            if len(cuda.played) > played:
                out, _, first, second = program.recorded[cuda.played[-1] - 0x501]
                assert [first, second, out] == wanted
                assert len(program.launches) == launched
            else:
                assert program.launches[-1] == wanted
            held = [*held[-1:], made] if keeps else []
        del program
