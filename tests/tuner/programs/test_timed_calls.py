"""How a program is timed on a device: several calls are one graph, so that launches of the host are not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tessera.api import workload
from tessera.compiler.options import Options
from tessera.diagnostics.codes import CaptureError, DeviceError


class Program:
    """Counts its calls, and those of them that were captured."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, tensors: Any) -> None:
        self.calls += 1


class Device:
    """One that runs beside the host."""

    is_asynchronous = True


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    def timed(run: Callable[[], object]) -> float:
        run()
        return 600.0

    monkeypatch.setattr(workload, "device_time", timed)
    return Program()


def runnable(program: Program, calls: int) -> workload.RunnableProgram:
    made = workload.RunnableProgram(program, (), (), Device(), Options.of(backend="cpu"))
    made.calls = calls
    return made


def test_calls_are_captured_once_and_replayed(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    replays = list[int]()

    def capture(run: Callable[[], object]) -> Callable[[], object]:
        run()
        return lambda: replays.append(1)

    monkeypatch.setattr(workload, "capture_calls", capture)
    made = runnable(program, 6)
    assert [made.run(), made.run()] == [100.0, 100.0]
    assert len(replays) == 2
    assert program.calls == 1 + 6, "once before, so that nothing is loaded while a graph is captured"


def test_one_call_is_no_graph(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(workload, "capture_calls")
    assert runnable(program, 1).run() == 600.0
    assert program.calls == 1


def test_a_program_that_waits_for_the_device_is_called_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Callable[[], object]) -> Callable[[], object]:
        raise CaptureError("`loop` waits for a value of the device")

    monkeypatch.setattr(workload, "capture_calls", refuse)
    made = runnable(program, 6)
    assert made.run() == 600.0
    assert (made.calls, program.calls) == (1, 2)


def test_any_other_failure_of_a_capture_is_told(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: Callable[[], object]) -> Callable[[], object]:
        raise DeviceError("an illegal address, which cannot be captured")

    monkeypatch.setattr(workload, "capture_calls", fail)
    with pytest.raises(DeviceError, match="illegal address"):
        runnable(program, 6).run()
