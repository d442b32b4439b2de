"""What PTX alone shows of promises about numbers: denormals that no instruction flushes, and equal text every time."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.backends.nvptx.hopper.fast_math import ERFC, ERFC_P, FLOORS
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_texts
from tests.policy.processes import printed_in_processes

X = np.zeros(64, np.float32)


def steps(x: Any, y: Any) -> Any:
    """Sums, products, quotients, roots, folds and a product of matrices."""
    square = ops.reshape(x, (8, 8)) @ ops.reshape(y, (8, 8))
    return x * y + x / y, ops.sqrt(x), (x - y).sum(), ops.exp(x), ops.softmax(square)


def ptx(policy: Any) -> tuple[Any, str]:
    function: Any = ts.jit(steps, policy=policy)
    lowering = lower(function.trace(X, X).tape, Options.of(backend="cuda", features=("sm_90a",)))
    return lowering, b"\n".join(compile_texts(lowering.texts, NvptxBackend().code_target)).decode()


@pytest.mark.parametrize("policy", [ts.Policy(), ts.keep_denormals, ts.flush_denormals], ids=repr)
def test_n1_1_no_instruction_flushes_by_itself(policy: Any) -> None:
    """Denormals go where the policy says so, in an op that says so, and nowhere else."""
    lowering, text = ptx(policy)
    assert "mul.rn.f32" in text
    assert ".ftz" not in text
    flushes = [
        op
        for kernel in lowering.targets
        for op in kernel.walk()
        if op.name == "ttarget.round" and op.value("denormals") == "flush"
    ]
    assert bool(flushes) is (policy == ts.flush_denormals)


def test_the_tail_of_gelu_is_as_near_as_said_at_every_number_of_bf16() -> None:
    """What the machine is told to compute, in f32 by NumPy: 0.01 units of bf16 wherever the gate is a normal number."""
    codes = np.arange(1 << 15, 0xFF80, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    x = codes[codes >= FLOORS["gelu_erf"]]
    size = np.abs(x)
    t = 1 / (size * np.float32(ERFC_P * math.sqrt(0.5)) + np.float32(1))
    tail = np.zeros_like(t)
    for coefficient in ERFC:
        tail = tail * t + np.float32(0.5 * coefficient)
    gate = tail * t * np.exp2(size * size * np.float32(-0.5 * math.log2(math.e)))
    wide = x.astype(np.float64)
    wanted = wide * 0.5 * np.vectorize(math.erfc)(-wide / math.sqrt(2))
    shown = np.abs(wanted) > 2.0**-118
    step = 2.0 ** (np.floor(np.log2(np.abs(wanted[shown]))) - 7)
    assert shown.sum() > 10_000
    assert (np.abs((x * gate).astype(np.float64) - wanted)[shown] <= 0.01 * step).all()


@pytest.mark.parametrize("policy", [ts.Training(), ts.Policy(storage=ts.bf16, rounding="stochastic")], ids=repr)
def test_backward_programs_under_a_policy_are_compiled_for_a_gpu(policy: Any) -> None:
    loss = lambda w, x: (ops.gelu(x @ w) ** 2.0).sum()  # noqa: E731
    w = np.zeros((64, 64), np.float32)
    tape = ts.jit(ts.grad(loss, (0, 1)), policy=policy).trace(w, w).tape
    made = compile_tape(tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert len(made.to_bytes()) > 1000


TEXTS = """
import hashlib
import ml_dtypes
import numpy as np
import tessera as ts
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
x = np.zeros((256, 256), ml_dtypes.bfloat16)
f = ts.jit(lambda x, w: (ts.ops.gelu(x @ w), ts.ops.softmax(x), x.sum(0)), policy=ts.Training())
made = compile_tape(f.trace(x, x).tape, Options.of(backend="cuda", features=("sm_90a",)))
print(hashlib.sha256(made.to_bytes()).hexdigest())
"""


@pytest.mark.slow
def test_d7_code_for_a_gpu_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Cold, warm, and cold elsewhere with other hashes: what runs is equal, byte for byte."""
    assert len(set(printed_in_processes(TEXTS, tmp_path))) == 1
