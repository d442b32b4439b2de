"""What calls and replays ask of the driver and of Python on a GPU, counted."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_launch import counts
from tessera.runtime.devices.cuda.driver import Driver, is_available
from tessera.runtime.devices.cuda.memory import copy_within
from tessera.runtime.devices.cuda.streams import current_stream

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
RNG = np.random.default_rng(20)


def test_a_cached_call_is_one_launch_and_two_functions_of_python() -> None:
    once, again = {"cuLaunchKernel": 1}, {"cuGraphLaunch": 1}
    assert counts() == {"driver": once, "again": again, "python": ["__call__", "active"]}


def chained(x: Any) -> Any:
    for _ in range(6):
        x = ts.ops.softmax(x, axis=-1) + ts.ops.cumsum(x, axis=0)
    return x


class Counted:
    """A function of the driver that counts."""

    def __init__(self, function: Callable[..., int]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *given: Any) -> int:
        self.calls += 1
        return self.function(*given)


def test_a_replay_is_one_call_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    function = ts.jit(chained, backend="cuda")
    values = [RNG.standard_normal((64, 96)).astype(np.float32) for _ in range(3)]
    x = ts.cuda.array(values[0])
    function(x)
    with ts.cuda.capture() as graph:
        y = function(x)
    launch = Counted(graph._launch)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(graph, "_launch", launch)
    called: list[str] = []
    plain = Driver.call

    def call(self: Driver, name: str, *given: Any) -> None:
        called.append(name)
        plain(self, name, *given)

    monkeypatch.setattr(Driver, "call", call)
    for number, value in enumerate(values, start=1):
        ts.cuda.write(x, value)
        called.clear()
        graph.replay()
        assert (launch.calls, called) == (number, [])
        np.testing.assert_array_equal(np.asarray(y), np.asarray(function(ts.cuda.array(value))))


def doubled(x: Any) -> Any:
    return x * 2.0


def recorded() -> tuple[Any, Any, Any, Any]:
    """A function, its capture, and the tensors that the capture reads and writes."""
    function = ts.jit(chained, backend="cuda")
    x = ts.cuda.array(np.zeros((64, 96), np.float32))
    function(x)
    with ts.cuda.capture() as graph:
        y = function(x)
    return function, graph, x, y


def test_a_replay_in_another_stream_waits_for_it_and_is_waited_for() -> None:
    function, graph, x, y = recorded()
    double = ts.jit(doubled, backend="cuda")
    assert y.stream == x.stream == 0
    for _ in range(5):
        value = RNG.standard_normal((64, 96)).astype(np.float32)
        with ts.graph.stream("aside"):
            given = double(ts.cuda.array(value))
            copy_within(x.address, given.address, x.nbytes, current_stream())
            graph.replay()
            found = double(y)
        expected = np.asarray(function(ts.cuda.array(2.0 * value)))
        np.testing.assert_array_equal(np.asarray(found), 2.0 * expected)


def test_a_capture_may_be_a_part_of_another() -> None:
    function, graph, x, y = recorded()
    double = ts.jit(doubled, backend="cuda")
    double(y)
    with ts.cuda.capture() as whole:
        graph.replay()
        z = double(y)
    del graph
    value = RNG.standard_normal((64, 96)).astype(np.float32)
    ts.cuda.write(x, value)
    whole.replay()
    np.testing.assert_array_equal(np.asarray(z), 2.0 * np.asarray(function(ts.cuda.array(value))))


def test_a_thread_that_has_not_met_the_device_replays_too() -> None:
    function, graph, x, y = recorded()
    value = RNG.standard_normal((64, 96)).astype(np.float32)
    ts.cuda.write(x, value)
    thread = threading.Thread(target=graph.replay)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(np.asarray(y), np.asarray(function(ts.cuda.array(value))))


def test_a_result_outlives_its_capture() -> None:
    function, graph, x, y = recorded()
    value = RNG.standard_normal((64, 96)).astype(np.float32)
    ts.cuda.write(x, value)
    graph.replay()
    del graph
    gc.collect()
    others = [ts.cuda.array(np.full((64, 96), np.nan, np.float32)) for _ in range(8)]
    np.testing.assert_array_equal(np.asarray(y), np.asarray(function(ts.cuda.array(value))))
    assert y.address not in [other.address for other in others]
