"""Attention under a policy that stores a narrow dtype has the kernels of that dtype, forward and backward."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.types.policy import Policy

RNG = np.random.default_rng(11)
Q, K, V, COTANGENT = (RNG.standard_normal((1, 4, 70, 64)).astype(np.float32) for _ in range(4))
NARROW = [one.astype(ml_dtypes.bfloat16) for one in (Q, K, V, COTANGENT)]


def pull(q: Any, k: Any, v: Any, given: Any) -> Any:
    out, back = ts.vjp(lambda *x: ts.ops.attention(*x, causal=True), q, k, v)
    return out, back(given.cast(out.dtype))


def operands_of(graph: str, op: str) -> list[str]:
    """The dtypes that each op of a name takes, in the text of a program."""
    lines = re.findall(rf"= tgraph\.{op} .*: \((.*)\) -> ", graph)
    return [" ".join(re.findall(r"\], (\w+)>", line)) for line in lines]


def test_factors_stay_as_they_are_stored() -> None:
    graph = ts.jit(pull, policy=ts.Training()).lower(Q, K, V, COTANGENT).graph
    assert operands_of(graph, "attention_with_lse") == ["bf16 bf16 bf16"]
    assert operands_of(graph, "attention_backward") == ["bf16 bf16 bf16 bf16 f32 f32"]


def test_bits_are_those_of_attention_of_that_dtype() -> None:
    out, gradients = ts.jit(pull, policy=ts.Training())(Q, K, V, COTANGENT)
    plain, wanted = ts.jit(pull)(*NARROW)
    assert np.asarray(out).tobytes() == np.asarray(plain).tobytes()
    for one, other in zip(gradients, wanted, strict=True):
        narrow = np.asarray(one).astype(ml_dtypes.bfloat16)
        assert narrow.tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("rounding", ["toward_zero", "stochastic"])
def test_other_roundings_are_of_results_in_f32(rounding: str) -> None:
    policy = Policy(storage=ts.bf16, accumulate=ts.f32, rounding=rounding)
    graph = ts.jit(lambda q, k, v: ts.ops.attention(q, k, v), policy=policy).lower(Q, K, V).graph
    assert operands_of(graph, "attention") == ["f32 f32 f32"]


def test_gradients_run_on_tensor_cores() -> None:
    options = Options.of(backend="cuda", features=("sm_90a",))
    lowering = lower(ts.jit(pull, policy=ts.Training()).trace(Q, K, V, COTANGENT).tape, options)
    units: list[str] = list(lowering.code.facts()["tensor cores"])
    assert len(units) == 3
    assert all(one.endswith(": wgmma") for one in units), units
