"""Compiled functions among threads, forks, signals and the end of the interpreter: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SETTING = """
    import os, signal, sys, threading, time
    import numpy as np
    import tessera as ts
    from tessera import ops

    @ts.jit(dynamic=True)
    def table(x, y):
        return ops.softmax(x @ y, axis=1)

    def expected(seed, rows):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((rows, 64)).astype(np.float32), rng.standard_normal((64, 96)).astype(np.float32)
        return (x, y), table(x, y).tobytes()
"""

THREADS = """
    cases = [expected(seed, 16 + 40 * seed) for seed in range(4)]
    wrong, done = [], []

    def caller(number):
        @ts.jit
        def own(x, y):
            return (x * float(number % 2)) @ y
        for iteration in range(30):
            arguments, wanted = cases[(number + iteration) % 4]
            if table(*arguments).tobytes() != wanted:
                wrong.append((number, iteration))
        x, y = cases[0][0]
        if not np.allclose(own(x, y).numpy(), (x * float(number % 2)) @ y, atol=1e-3):
            wrong.append((number, "own"))
        done.append(number)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(done), wrong)
"""

FIRST_CALLS = """
    results, gate = [], threading.Barrier(6)
    x = np.ones((8, 64), np.float32)

    def caller():
        gate.wait()
        results.append(table(x, x.T.copy()).tobytes())

    threads = [threading.Thread(target=caller) for _ in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(results), len(set(results)), len(table.specializations))
"""

FORK = """
    arguments, wanted = expected(1, 300)
    for iteration in range(2):
        child = os.fork()
        if not child:
            same = table(*arguments).tobytes() == wanted
            fresh = ts.jit(lambda x: x * 3.0 + iteration)(arguments[0])
            os._exit(0 if same and fresh.shape == (300, 64) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert table(*arguments).tobytes() == wanted
    print("done")
"""

FORK_IN_A_CALL = """
    arguments, wanted = expected(1, 2000)
    stop = False

    def caller():
        while not stop:
            table(*arguments)

    thread = threading.Thread(target=caller)
    thread.start()
    for iteration in range(10):
        child = os.fork()
        if not child:
            os._exit(0 if table(*arguments).tobytes() == wanted else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop = True
    thread.join()
    print("done")
"""

INTERRUPT = """
    n = 500
    x = np.ones((n, n), np.float32)

    @ts.jit
    def long(x):
        for _ in range(3):
            x = (x @ x) * 1e-3
        return x

    wanted = long(x).tobytes()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may have it ignored
    threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        for _ in range(10_000):
            long(x)
        print("never interrupted")
    except KeyboardInterrupt:
        print("interrupted", long(x).tobytes() == wanted)
"""

ENDLESS = """
    @ts.jit
    def spin(x: ts.Tensor["N", ts.f32], rounds: ts.Tensor[ts.i64]):
        last = ts.while_loop(lambda y: y[0].max() < 1.0, lambda y: (y[0] * 0.5, y[1]), (x, x))[0]
        return ts.fori_loop(0, rounds, lambda i, total: total + x, last)

    @ts.jit
    def steps(x: ts.Tensor["N", ts.f32], rounds: ts.Tensor[ts.i64]):
        return ts.fori_loop(0, rounds, lambda i, total: total + x, x)

    twos, zeros = np.full(3, 2, np.float32), np.zeros(3, np.float32)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = []
    for function, arguments in ((spin, (zeros, 1)), (steps, (twos, 2**60))):
        function(twos, 3)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            function(*arguments)
        except KeyboardInterrupt:
            ended.append(function(twos, 3).tolist())
    print(ended)
"""

HANDLED = """
    heard = []
    signal.signal(signal.SIGALRM, lambda *_: heard.append(1))

    @ts.jit
    def steps(x: ts.Tensor["N", ts.f32], rounds: ts.Tensor[ts.i64]):
        return ts.fori_loop(0, rounds, lambda i, total: ts.ops.where(total > 100.0, x, total + 1.0), x)

    ones = np.ones(3, np.float32)
    steps(ones, 3)
    rounds = 1000
    while not heard:  # as many rounds as take longer than the alarm
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        steps(ones, rounds)
        signal.setitimer(signal.ITIMER_REAL, 0)
        rounds *= 4
    print(len(heard), steps(ones, 5).tolist())
"""

SHUTDOWN = """
    arguments, _ = expected(1, 2000)

    def caller():
        while True:
            table(*arguments)

    for _ in range(3):
        threading.Thread(target=caller, daemon=True).start()
    time.sleep(0.05)
    print("done", flush=True)
"""

NESTED = """
    @ts.jit(dynamic=True)
    def outer(x, y):
        return table(x, y) * 2.0 + ops.sum(table(x, y))

    arguments, wanted = expected(2, 50)
    inner = np.frombuffer(wanted, np.float32).reshape(50, 96)
    print(np.allclose(outer(*arguments).numpy(), inner * 2 + inner.sum(), rtol=1e-4))
"""


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(SETTING) + textwrap.dedent(program)],
        env={**os.environ, "TESSERA_NUM_THREADS": "3", "TESSERA_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all of these programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (THREADS, "8 []"),
        (FIRST_CALLS, "6 1 1"),
        (FORK, "done"),
        (FORK_IN_A_CALL, "done"),
        (INTERRUPT, "interrupted True"),
        (ENDLESS, "[[8.0, 8.0, 8.0], [8.0, 8.0, 8.0]]"),
        (HANDLED, "1 [6.0, 6.0, 6.0]"),
        (SHUTDOWN, "done"),
        (NESTED, "True"),
    ],
    ids=["threads", "first calls", "fork", "fork in a call", "interrupt", "endless", "handled", "shutdown", "nested"],
)
def test_calls_end_well(program: str, printed: str, folder: Path) -> None:
    result = run(program, folder)
    assert (result.stdout.strip(), result.returncode) == (printed, 0), result.stderr


def test_a_number_of_threads_that_is_none_is_an_error(folder: Path) -> None:
    result = run("expected(1, 4)", folder, TESSERA_NUM_THREADS="-2")
    assert result.returncode == 1
    assert "error[T0705]" in result.stderr
    assert "`TESSERA_NUM_THREADS` is `-2`" in result.stderr
