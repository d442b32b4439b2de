"""Ctrl-C while compiled code runs on the CPU: how long until the caller has control again, and what is true after it.

`python -m tests.trials.interrupts` runs every case at full size and prints how late after the signal each answers;
`python -m tests.trials.interrupts matmul 0.2` one of them, at a fifth of the work. Each case runs in this process: a
first call compiles it and gives the bits, a second is interrupted, a third must give the same bits again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts

LIMIT = 0.5
"""Seconds in which the caller has control again."""
DELAY = 0.1
"""Seconds into the call when the signal comes."""


# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false


def _ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _matmul(part: float) -> tuple[Any, tuple[Any, ...]]:
    n = int(6000 * part ** (1 / 3))
    return ts.jit(lambda x: x @ x), (_ones(n, n),)


def _long_dot(part: float) -> tuple[Any, tuple[Any, ...]]:
    return ts.jit(lambda x: x @ x.T), (_ones(1, int(400_000_000 * part)),)


def _row(function: Callable[[Any], Any], count: int) -> Callable[[float], tuple[Any, tuple[Any, ...]]]:
    def case(part: float) -> tuple[Any, tuple[Any, ...]]:
        values = np.random.default_rng(1).random(int(count * part), np.float32)
        return ts.jit(function), (values,)

    return case


def _attention(part: float) -> tuple[Any, tuple[Any, ...]]:
    q = _ones(1, max(1, int(8 * part)), 8192, 64)
    return ts.jit(lambda q: ts.ops.attention(q, q, q)), (q,)


def _convolution(part: float) -> tuple[Any, tuple[Any, ...]]:
    x, w = _ones(max(1, int(24 * part)), 64, 256, 256), _ones(64, 64, 3, 3)
    return ts.jit(lambda x, w: ts.ops.conv2d(x, w)), (x, w)


CASES: dict[str, Callable[[float], tuple[Any, tuple[Any, ...]]]] = {
    "matmul": _matmul,
    "long dot": _long_dot,
    "map": _row(lambda x: ts.ops.tanh(ts.ops.sin(x)), 500_000_000),
    "sum": _row(lambda x: ts.ops.exp(ts.ops.sin(x)).sum(), 500_000_000),
    "cumsum": _row(lambda x: ts.ops.cumsum(x, axis=0), 400_000_000),
    "argmax": _row(lambda x: ts.ops.argmax(x, axis=0), 900_000_000),
    "sort": _row(lambda x: ts.ops.sort(x), 30_000_000),
    "attention": _attention,
    "convolution": _convolution,
}
"""Cases of a second or more on two slow cores, by name."""


def interrupt(case: str, part: float = 1.0) -> tuple[float, float]:
    """The seconds that a call takes, and those from a signal in another to its exception; a third has the same bits."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may have it ignored
    function, arguments = CASES[case](part)
    wanted = function(*arguments).numpy()
    started = time.perf_counter()
    function(*arguments)
    whole = time.perf_counter() - started
    sent: list[float] = []

    def strike() -> None:
        time.sleep(DELAY)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        function(*arguments)
        thread.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        answered = time.perf_counter() - sent[0]
    else:
        raise AssertionError(f"{case}: over in {whole:.2f} s, before the signal")
    thread.join()
    assert np.array_equal(function(*arguments).numpy(), wanted), f"{case}: other bits after an interrupt"
    return whole, answered


def main() -> None:
    """Print a row for each case."""
    chosen = sys.argv[1:2] or list(CASES)
    part = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    late: list[str] = []
    for case in chosen:
        whole, answered = interrupt(case, part)
        print(f"{case:12} {whole:7.2f} s, interrupted {1e3 * answered:6.0f} ms after the signal", flush=True)
        late += [case] if answered > LIMIT else []
    if late:
        sys.exit(f"later than {LIMIT} s: {', '.join(late)}")


if __name__ == "__main__":
    main()
