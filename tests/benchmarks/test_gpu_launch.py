"""What a cached call does, counted without a GPU: functions of Python, calls by way of counters, and the record."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_launch import blend, counting, entered, record_of
from tessera.runtime.devices.cuda.driver import Driver


def test_calls_of_the_driver_are_counted_and_made() -> None:
    made = object.__new__(Driver)
    made.library = ctypes.CDLL(None)
    plain = Driver.address
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    with counting() as found:
        through = prototype(made.address("abs"))
        assert [through(-3), through(4)] == [3, 4]
    assert found == {"abs": 2}
    assert Driver.address is plain
    assert prototype(made.address("abs"))(-5) == 5
    assert through(-6) == 6  # a program that was loaded there goes on


def test_a_cached_call_enters_two_functions_of_python() -> None:
    """What a call enters is the same for all backends: the way to the builtin of its program."""
    function = ts.jit(blend)
    x = ts.array(np.ones(8, np.float32))
    function(x, x, x)
    assert entered(lambda: function(x, x, x)) == ["__call__", "active"]
    assert len(entered(lambda: function(x[:4], x[:4], x[:4]))) > 10


@pytest.mark.parametrize(("took", "wanted"), [(4.1, True), (5.2, False)])
def test_the_goal_is_for_the_jitted_call(took: float, wanted: bool) -> None:
    times = {name: {"median": value, "p10": 1.0, "p90": 99.0} for name, value in (("jit", took), ("torch", 4.0))}
    found = record_of(times, {"driver": {"cuLaunchKernel": 1}, "python": []})
    assert found["is_reached"] is wanted
    assert found["microseconds"] == times
