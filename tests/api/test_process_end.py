"""Compiling while the interpreter ends: in handlers of its end, and in threads that it does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# One handler is registered before anything of ours, and so runs last; one after it.
HANDLERS = """
    import atexit
    import numpy as np

    def compile_late(number):
        import tessera as ts
        print(ts.jit(lambda x: x * 2.0 + number)(np.ones(2, np.float32)).tolist(), flush=True)

    atexit.register(compile_late, 1.0)
    import tessera as ts
    ts.jit(lambda x: x * 2.0)(np.ones(2, np.float32))
    atexit.register(compile_late, 2.0)
    from tessera.ir.target import worker_pool
    print(*worker_pool.pool().process_ids(), flush=True)
"""

DAEMONS = """
    import threading, time
    import numpy as np
    import tessera as ts

    def compile_on(number):
        for step in range(10_000):
            ts.jit(lambda x: x * float(step) + float(number))(np.ones(2, np.float32))

    ts.jit(lambda x: x)(np.ones(2, np.float32))
    for number in range(3):
        threading.Thread(target=compile_on, args=(number,), daemon=True).start()
    time.sleep(0.6)
    print("end", flush=True)
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TESSERA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_handlers_of_the_end_compile_and_leave_no_process(tmp_path: Path) -> None:
    done = run(HANDLERS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ids, *printed = done.stdout.splitlines()
    assert printed == ["[4.0, 4.0]", "[3.0, 3.0]"]
    deadline = time.monotonic() + 5
    while [one for one in ids.split() if Path(f"/proc/{one}").exists()]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_daemon_threads_that_compile_do_not_hold_up_the_end(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(DAEMONS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "end\n")
    assert "Fatal" not in done.stderr
    assert time.monotonic() - started < 30
