"""Programs as a GPU gets them, run on the interpreter of tile kernels: they mean what the CPU's do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tests.backends.nvptx.kernels import PROGRAMS, lowered
from tests.oracles.schedule_interpreter import run_program

LARGE = frozenset({"map", "long row"})
"""Programs that take the interpreter too long."""


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in LARGE])
def test_kernels_of_a_gpu_mean_what_the_processors_do(name: str) -> None:
    function, shapes, dynamic = PROGRAMS[name]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    here = lower(ts.jit(function, dynamic=dynamic).trace(*arrays).tape, Options())
    (expected,) = run_program(here.module, *arrays)
    (found,) = run_program(lowered(name).module, *arrays)
    assert found.tobytes() == expected.tobytes()


@settings(max_examples=8)
@given(st.integers(1, 70), st.integers(1, 70))
def test_what_is_read_along_the_other_dim_is_walked_in_squares(rows: int, columns: int) -> None:
    function, _, _ = PROGRAMS["transpose"]
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    tape = ts.jit(function).trace(x).tape
    lowering = lower(tape, Options.of(backend="cuda", features=("sm_90a",)))
    (found,) = run_program(lowering.module, x)
    np.testing.assert_array_equal(found, x.T + 1)
