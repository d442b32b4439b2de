"""Loops, combiners and named batches on a GPU, with their gradients: what the CPU computes."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, ops
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.driver import is_available

X = np.random.default_rng(9).uniform(0.5, 1.0, (40, 6)).astype(np.float32)


def affine(p: Any, q: Any) -> Any:
    return p[0] * q[0], p[1] * q[0] + q[1]


def add_logs(a: Any, b: Any) -> Any:
    return ops.maximum(a, b) + ops.log1p(ops.exp(-abs(a - b)))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "while with a limit": lambda x: ts.while_loop(
        lambda s: s.sum() < 900.0, lambda s: s * 1.5 + ops.sin(s), x, max_trips=7
    ).sum(),
    "unrolled scan": lambda x: ts.scan(lambda h, r: (ops.tanh(h * r + r), h), x[0], x, unroll=3)[1].sum(),
    "associative_scan": lambda x: ts.associative_scan(affine, (x, x))[1].sum(),
    "reduce": lambda x: ts.reduce(x, -50.0, add_logs, 0).sum(),
    "map in batches": lambda x: ts.map(lambda row: ops.exp(row).sum(), x, batch_size=16).sum(),
    "named batch": lambda x: ts.vmap(lambda v: (v - dist.all_reduce(v, "i", "mean")) ** 2.0, axis_name="i")(x).sum(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["while with a limit", "associative_scan", "reduce"])
def test_a_gradient_is_assembled_for_a_gpu(name: str) -> None:
    """It runs where there is none."""
    program = ts.Jit(ts.value_and_grad(PROGRAMS[name]).function)  # pyright: ignore[reportFunctionMemberAccess]
    made: Any = compile_tape(program.trace(X).tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert made is not None


@pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_is_that_of_the_cpu(name: str) -> None:
    function = PROGRAMS[name]
    both: Any = ts.value_and_grad(function)
    here, mine = both(X)
    there, other = ts.jit(lambda x: both(x), backend="cuda")(X)
    np.testing.assert_allclose(float(there), float(here), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(other), np.asarray(mine), rtol=1e-4, atol=1e-5)
