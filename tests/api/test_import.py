"""`import tessera` is light: it loads neither the compiler nor what the compiler is made of."""

from __future__ import annotations

import subprocess
import sys

import tessera as ts


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_next_to_nothing() -> None:
    loaded = run("import sys, tessera; print(*sorted(m for m in sys.modules if m.startswith('tessera')))")
    assert loaded == "tessera"


def test_tracing_loads_no_compiler() -> None:
    program = """
import sys
import numpy as np
import tessera as ts
@ts.jit
def f(x: ts.Tensor["B", 4, ts.f32]):
    return ts.ops.softmax(x @ x.T)
f.trace(np.zeros((2, 4), np.float32))
print([name for name in ("xdsl", "llvmlite", "islpy", "rich", "typer") if name in sys.modules])
"""
    assert run(program) == "[]"


def test_import_is_quick() -> None:
    program = """
import time
import numpy
start = time.process_time()
import tessera
print(time.process_time() - start)
"""
    # CPU time, best of three: the limit is for a quiet machine, and this one may not be.
    assert min(float(run(program)) for _ in range(3)) < 0.05


def test_every_public_name_is_there() -> None:
    for name in ts.__all__:
        assert getattr(ts, name) is not None
    assert set(ts.__all__) <= set(dir(ts))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ts, "nothing_of_the_kind")
