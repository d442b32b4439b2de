"""Fast math: asked for, visible, recorded; the default is reproducible, whatever runs it and how often."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.api.compilation import cache_key
from tessera.compiler.options import Options
from tessera.ir.base.scalar_reference import apply
from tessera.ir.tile import pipeline as tile
from tessera.types.dtype import f32

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(1)
A, B, C = (RNG.standard_normal(4096).astype(np.float32) for _ in range(3))


def chain(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def test_fast_math_rounds_once_and_says_so() -> None:
    plain, fast = ts.jit(chain), ts.jit(chain, fast_math=True)
    exact = A.astype(np.float64) * B + C
    np.testing.assert_array_equal(np.asarray(plain(A, B, C)), A * B + C)
    np.testing.assert_array_equal(np.asarray(fast(A, B, C)), exact.astype(np.float32))
    assert (np.asarray(fast(A, B, C)) != np.asarray(plain(A, B, C))).any()
    assert plain.explain(A, B, C).report["numerics"] == "reproducible"
    assert fast.explain(A, B, C).report["numerics"] == "fast math: 1 adds fused with their multiplies"
    assert '"fast_math":true' in str(fast.explain(A, B, C))


def test_fast_math_is_in_the_artifact_and_in_the_key() -> None:
    fast = ts.jit(chain, fast_math=True)
    fast(A, B, C)
    (made,) = fast.specializations
    executable: Any = made.loaded
    assert "fast math" in executable.executable.metadata["report"]["numerics"]
    tape = fast.trace(A, B, C).tape
    assert cache_key(tape, Options()) != cache_key(tape, Options(fast_math=True))
    assert 'fn = "fma"' in fast.lower(A, B, C).tile
    assert 'fn = "fma"' not in ts.jit(chain).lower(A, B, C).tile


def test_the_default_gives_the_same_bits_a_hundred_times() -> None:
    f = ts.jit(lambda a, b, c: (chain(a, b, c).sum(), ts.ops.softmax(a * b)))
    first = [np.asarray(out).tobytes() for out in f(A, B, C)]
    assert all([np.asarray(out).tobytes() for out in f(A, B, C)] == first for _ in range(99))


RUNS = """
import hashlib, sys
import numpy as np
import tessera as ts
rng = np.random.default_rng(4)
x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((96, 256), (256, 80)))
f = ts.jit(lambda x, w: (ts.ops.gelu(x @ w), ts.ops.softmax(x), x.sum(0), ts.ops.rmsnorm(x) * 0.1 + x))
found = {hashlib.sha256(b"".join(np.asarray(out).tobytes() for out in f(x, w))).hexdigest() for _ in range(100)}
report = f.explain(x, w)
print(len(found), found.pop(), report.report["numerics"], report.source.split(",")[0].split()[0])
"""


def run_apart(folder: Path, threads: int) -> list[str]:
    """A hundred runs in a process of its own: how many results, their hash, what the account says."""
    own = {"TESSERA_CACHE_DIR": str(folder), "TESSERA_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUNS]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own}, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.slow
def test_d1_a_hundred_runs_are_bit_equal_for_any_threads_cold_and_warm(tmp_path: Path) -> None:
    cold, warm, other = (
        run_apart(tmp_path / folder, threads) for folder, threads in (("one", 1), ("one", 3), ("two", 2))
    )
    assert cold[0] == warm[0] == other[0] == "1"
    assert cold[1] == warm[1] == other[1]
    assert cold[2] == warm[2] == other[2] == "reproducible"
    assert (cold[3], warm[3], other[3]) == ("compiled", "disk", "compiled")


def test_d1_fast_math_is_off_unless_it_is_asked_for() -> None:
    assert not Options().fast_math
    assert Options.of().text == Options.of(fast_math=False).text != Options.of(fast_math=True).text
    assert "tile-fuse-multiply-adds" not in [one.name for one in tile.pipeline()]
    assert "tile-fuse-multiply-adds" in [one.name for one in tile.pipeline(fast_math=True)]


@given(st.tuples(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3))
def test_what_is_fused_differs_by_the_rounding_of_the_product_alone(values: tuple[float, float, float]) -> None:
    a, b, c = (np.array([value], np.float32) for value in values)
    with np.errstate(all="ignore"):
        fused = apply("fma", [a, b, c], f32)[0].astype(np.float64)
        apart = apply("add", [apply("mul", [a, b], f32), c], f32)[0].astype(np.float64)
        product = float(a[0]) * float(b[0])
    if np.isfinite(fused) and np.isfinite(apart):
        bound = abs(product) * 2.0**-24 + 2.0**-149 + 2 * np.spacing(np.float32(max(abs(fused), abs(apart))))
        assert abs(fused - apart) <= bound
