"""A small part of the trial of interrupts: one kernel of each kind, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_NUM_THREADS": "2"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "part"), [("matmul", "0.08"), ("sum", "0.3"), ("sort", "0.06")])
def test_a_kernel_of_a_second_answers_an_interrupt_in_half_a_second(case: str, part: str) -> None:
    done = run("-m", "tests.trials.interrupts", case, part)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "after the signal" in done.stdout


# The main thread is interrupted over and over while threads of Python's compute: theirs must come to their end.
OTHERS = """
    import os, signal, threading, time
    import numpy as np
    import tessera as ts

    x = np.random.default_rng(0).random((700, 700), np.float32)
    functions = [ts.jit(lambda x: x @ x), ts.jit(lambda x: ts.ops.softmax(x, axis=-1)), ts.jit(lambda x: x.sum())]
    wanted = [function(x).numpy() for function in functions]
    large = np.ones((2500, 2500), np.float32)
    functions[0](large)
    wrong, calls, is_over = [], [0], False

    def compute(number):
        while not is_over:
            if not np.array_equal(functions[number](x).numpy(), wanted[number]):
                wrong.append(number)
            calls[0] += 1

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = 0
    for _ in range(6):
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                functions[0](large)
        except KeyboardInterrupt:
            interrupts += 1
        timer.join()
    is_over = True
    for thread in threads:
        thread.join()
    print(interrupts, wrong, calls[0] > 6, np.array_equal(functions[0](x).numpy(), wanted[0]))
"""

# A handler that returns, and runs a program of its own, which is interrupted itself: the outer call goes on.
HANDLER = """
    import os, signal, threading, time
    import numpy as np
    import tessera as ts

    multiply, total = ts.jit(lambda x: x @ x), ts.jit(lambda x: x.sum())
    large, small = np.ones((2000, 2000), np.float32), np.ones((900, 900), np.float32)
    wanted, heard = multiply(large).numpy(), []
    multiply(small), total(small)

    def inner(*_):
        raise KeyboardInterrupt

    def outer(*_):
        signal.signal(signal.SIGUSR2, inner)
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR2)).start()
        try:
            while True:
                multiply(small)
        except KeyboardInterrupt:
            heard.append(total(small).item())

    signal.signal(signal.SIGUSR1, outer)
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    while not heard:
        same = np.array_equal(multiply(large).numpy(), wanted)
        assert same
    print(heard)
"""


@pytest.mark.parametrize(
    ("program", "printed"), [(OTHERS, "6 [] True True"), (HANDLER, "[810000.0]")], ids=["threads", "handler"]
)
def test_an_interrupt_stops_nobody_else(program: str, printed: str) -> None:
    done = run("-c", textwrap.dedent(program))
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr
