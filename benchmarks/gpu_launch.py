"""What a cached call costs the host: microseconds beside torch, and what stands behind them, counted.

    python -m benchmarks.gpu launch [--rounds N] [--out FILE]

Counted are the calls of the driver that a call makes, at first and once it has come again often enough, and the
functions of Python that it enters; they are the same on every machine. The clock is read around bursts of calls that
are interleaved, with the device idle before each. Beside them stand bursts of native code that call the driver
alone, for a kernel that does nothing: what no call can go below.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.gpu_record import need_gpu, options, write
from benchmarks.gpu_replay import spread
from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.target.architectures import machine_of, target_text
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import ModuleText
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.driver import Driver, Module, driver
from tessera.runtime.devices.cuda.graphs import CAPTURE_AFTER, graph_of
from tessera.runtime.devices.cuda.streams import Stream
from tessera.runtime.loader import link

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
    """Within it, programs that are loaded call the driver through counters, by name."""
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
    """What one cached call does: at first, and once it has come again often enough."""
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
    first = dict(called)
    for _ in range(CAPTURE_AFTER):
        counted(x, x, x)
    called.clear()
    counted(x, x, x)
    plain = warm()  # whose driver is not Python
    return {"driver": first, "again": dict(called), "python": entered(lambda: plain(x, x, x))}


_NOTHING = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n"
_BURST = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def burst_of(words: int) -> tuple[Any, Any]:
    """Native code that calls a function with so many words, so many times; and what keeps it in memory."""
    module = ModuleText(target_text(machine_of(frozenset())))
    f = module.function("burst", [("ptr", "function"), ("ptr", "words"), ("i64", "count")], ret="i64")
    function, given, count = f.arguments
    loaded = [f.load(f.gep(given, at, "i64"), "i64") for at in range(words)]

    def turn(_: Value, carried: list[Value]) -> list[Value]:
        code = f.raw("i32", f"call i32 {function.text}({', '.join(map(str, loaded))})")
        return [f.op("or", carried[0], f.cast("zext", code, "i64"))]

    f.ret(f.loop(0, count, 1, turn, [f.const_i(0)])[0])
    code = link(compile_texts([module.text()], CpuBackend(machine_of(frozenset())).code_target), {})
    return _BURST(code.address("burst")), code


def driver_runs() -> dict[str, Callable[[], Any]]:
    """Bursts of the driver alone: of a launch, and of a graph with one."""
    cuda, aside = driver(), Stream()
    kernel = Module(_NOTHING).function("nothing")
    launch, play = burst_of(11), burst_of(2)
    shape = [kernel, 1, 1, 1, 32, 1, 1, 0]

    def words(*given: int) -> Any:
        return (ctypes.c_uint64 * len(given))(*given)

    def record(_: Sequence[int], stream: int) -> int:
        return launch[0](cuda.address("cuLaunchKernel"), words(*shape, stream, 0, 0), 1)

    graph = graph_of(cuda.library, aside.handle, 0, record, [])
    assert graph, "a launch can be recorded"
    asked = {
        "cuLaunchKernel": (launch, words(*shape, 0, 0, 0)),
        "cuGraphLaunch": (play, words(graph, 0)),
    }

    def run(name: str) -> Callable[[], Any]:
        (function, code), given = asked[name]
        address = cuda.address(name)

        def call() -> Any:
            assert not function(address, given, BURST), name
            return code

        return call

    return {name: run(name) for name in asked}


def launch_times(torch: Any, rounds: int) -> dict[str, dict[str, float]]:
    """What a call with three tensors and a result costs the host, in microseconds, while the device is idle."""
    function = ts.jit(blend, backend="cuda")
    y = torch.randn(1024, device="cuda")
    x = ts.cuda.array(y)
    kept = [function(x, x, x) for _ in range(4)]
    program = function.specializations[0].loaded

    def times(run: Callable[[], Any]) -> Callable[[], None]:
        def burst() -> None:
            for _ in range(BURST):
                run()

        return burst

    held: list[Any] = []
    runs: dict[str, Callable[[], Any]] = {
        "jit": times(lambda: function(x, x, x)),
        "program": times(lambda: program.call(x, x, x)),
        "torch": times(lambda: torch.addcmul(y, y, y)),
        # Results that are kept have new addresses each time, so that nothing is replayed.
        "jit, other memory": times(lambda: held.append(function(x, x, x))),
        **driver_runs(),
    }
    kept.clear()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            found[name].append((time.perf_counter() - start) / BURST)
            held.clear()
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
    print(f"it does {record['counts']}")
    write(asked.out, record)
    raise SystemExit(0 if record["is_reached"] else 1)


if __name__ == "__main__":
    main()
