"""What a cached call costs the host: microseconds beside torch, and what stands behind them, counted.

    python -m benchmarks.gpu launch [--rounds N] [--out FILE]

Counted are the calls of the driver that a call makes and the functions of Python that it enters; they are the same on
every machine. The clock is read around bursts of calls that take turns, with the device idle before each.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.gpu_record import need_gpu, options, write
from benchmarks.gpu_replay import spread
from tessera.runtime.devices.cuda_driver import Driver

GOAL = 5.0
"""Microseconds of the host that a cached call may take."""
BURST = 50
_WORDS = 12
"""Arguments of the function of the driver that has most."""
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * _WORDS)
_KEPT: list[Any] = []
"""Functions that programs call as long as they live."""


@contextmanager
def counting() -> Generator[Counter[str]]:
    """Within it, programs that are loaded call the driver by way of counters, by name."""
    found: Counter[str] = Counter()
    own = Driver.address

    def address(self: Driver, name: str) -> int:
        function = _FUNCTION(own(self, name))

        def called(*words: Any) -> int:
            found[name] += 1
            return function(*words)

        _KEPT.append(_FUNCTION(called))
        return ctypes.cast(_KEPT[-1], ctypes.c_void_p).value or 0

    Driver.address = address
    try:
        yield found
    finally:
        Driver.address = own


def entered(run: Callable[[], Any]) -> list[str]:
    """The functions of Python that a run enters, but for itself, by name."""
    found: list[str] = []

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        kept = run()
    finally:
        sys.setprofile(before)
    del kept  # whose end is not part of the call
    return found[1:]


def blend(a: Any, b: Any, c: Any) -> Any:
    """Three tensors to one, in one kernel."""
    return a + b * c


def counts() -> dict[str, Any]:
    """What one cached call does."""
    x = ts.cuda.array(np.ones(1024, np.float32))

    def warm() -> Any:
        function = ts.jit(blend, backend="cuda")
        kept = [function(x, x, x) for _ in range(4)]
        del kept
        return function

    with counting() as called:
        counted = warm()
    called.clear()
    counted(x, x, x)
    plain = warm()  # whose driver is not Python
    return {"driver": dict(called), "python": entered(lambda: plain(x, x, x))}


def launch_times(torch: Any, rounds: int) -> dict[str, dict[str, float]]:
    """What a call with three tensors and a result costs the host, in microseconds, while the device is idle."""
    function = ts.jit(blend, backend="cuda")
    y = torch.randn(1024, device="cuda")
    x = ts.cuda.array(y)
    kept = [function(x, x, x) for _ in range(4)]
    program = function.specializations[0].loaded
    runs: dict[str, Callable[[], Any]] = {
        "jit": lambda: function(x, x, x),
        "program": lambda: program.call(x, x, x),
        "torch": lambda: torch.addcmul(y, y, y),
    }
    kept.clear()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(BURST):
                run()
            found[name].append((time.perf_counter() - start) / BURST)
    return {name: spread(times) for name, times in found.items()}


def launch_cost(torch: Any) -> dict[str, float]:
    """The medians alone."""
    return {name: times["median"] for name, times in launch_times(torch, 30).items()}


def record_of(times: dict[str, dict[str, float]], counted: dict[str, Any]) -> dict[str, Any]:
    """The record but for where it was made."""
    is_reached = times["jit"]["median"] <= GOAL
    return {"microseconds": times, "counts": counted, "goal": GOAL, "is_reached": is_reached}


def main() -> None:
    """The command line."""
    parser = options("launch", __doc__)
    parser.add_argument("--rounds", type=int, default=300, help="bursts of each")
    asked = parser.parse_args()
    if asked.rounds < 10:
        parser.error("there are ten rounds at least")
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer: only here
    times = launch_times(torch, asked.rounds)
    record = record_of(times, counts())
    print("a call costs the host, in us:", ", ".join(f"{name} {one['median']:.2f}" for name, one in times.items()))
    print(f"one of {record['counts']}")
    write(asked.out, record)
    raise SystemExit(0 if record["is_reached"] else 1)


if __name__ == "__main__":
    main()
