"""Policies in kernels for NVIDIA: roundings, saturation and formats in PTX; what is exact, and what says it is not."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.backends.nvptx.compile import NvptxBackend
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.ir.base.policies import policies_of
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble, assembler

X = np.zeros((64, 64), np.float32)
BIG = np.zeros((256, 256), ml_dtypes.bfloat16)
POLICIES = {
    "stochastic": ts.Policy(storage=ts.bf16, rounding="stochastic"),
    "toward zero": ts.Policy(storage=ts.bf16, rounding="toward_zero"),
    "saturate": ts.Policy(storage=ts.f16, saturation="saturate", denormals="flush"),
    "fp8": ts.Inference(),
    "nvfp4": ts.NVFP4(),
    "tf32": ts.Policy(compute=ts.tf32),
    "narrow sums": ts.Policy(accumulate=ts.bf16),
}


def layer(x: Any) -> Any:
    return ops.softmax(ops.exp(x @ x) + 1.0)


def lowered(policy: Any, function: Any = layer, x: Any = X, **options: Any) -> Any:
    jitted: Any = ts.jit(function, policy=policy)
    return lower(jitted.trace(x).tape, Options.of(backend="cuda", features=("sm_90a",), **options))


@pytest.mark.parametrize("name", POLICIES)
def test_kernels_of_a_policy_become_ptx_and_carry_it(name: str) -> None:
    lowering = lowered(POLICIES[name])
    assert {policies_of(kernel) for kernel in lowering.targets} == {(POLICIES[name],)}
    roundings = [op for kernel in lowering.targets for op in kernel.walk() if op.name == "ttarget.round"]
    assert roundings
    wanted = POLICIES[name].rounding
    if wanted:
        assert wanted in {op.value("rounding") for op in roundings}  # pyright: ignore[reportAttributeAccessIssue]
    ptx = [text.decode() for text in compile_texts(lowering.texts, NvptxBackend().code_target)]
    assert all(".visible .entry" in text for text in ptx)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("name", ["stochastic", "saturate", "fp8"])
def test_ptx_of_a_policy_assembles(name: str) -> None:
    for text in compile_texts(lowered(POLICIES[name]).texts, NvptxBackend().code_target):
        assert assemble(text, "sm_90a").startswith(b"\x7fELF")


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
def test_integers_by_random_bits_assemble() -> None:
    function: Any = ts.jit(lambda x, key: ops.round_to(x, ts.i8, rounding="stochastic", key=key))
    made = lower(function.trace(X, ts.random.key(0)).tape, Options.of(backend="cuda", features=("sm_90a",)))
    for text in compile_texts(made.texts, NvptxBackend().code_target):
        assert assemble(text, "sm_90a").startswith(b"\x7fELF")


def report_of(function: Any, x: Any, gpu: str = "sm_90a", **options: Any) -> str:
    jitted: Any = ts.jit(function)
    made = compile_tape(jitted.trace(x).tape, Options.of(backend="cuda", features=(gpu,), **options))
    return made.metadata["report"]["numerics"]


@pytest.mark.parametrize("gpu", ["sm_80", "sm_90a"])
def test_what_matrix_kernels_approximate_is_in_the_artifact_with_its_bound(gpu: str) -> None:
    found = report_of(lambda x: ops.gelu(x @ x), BIG, gpu)
    assert found.startswith("reproducible; the machine's own gelu_")
    assert "units of the last place of bf16" in found
    assert report_of(lambda x: x @ x, BIG) == "reproducible"
    assert report_of(lambda x: ops.exp(x), BIG) == "reproducible"


def test_exponentials_by_the_machine_are_in_the_artifact() -> None:
    found = report_of(lambda x: ops.exp(x), X, overrides={"math.exp": "hardware"})
    assert found == "reproducible; the machine's own exp within 4 units of the last place of f32"
    assert report_of(lambda x: ops.exp(x), X, overrides={"math.exp": "exact"}) == "reproducible"


@pytest.mark.parametrize("call", [lambda x: ops.gelu(x @ x), lambda x: (x @ x) / 3.0, lambda x: ops.silu(x @ x)])
def test_exact_functions_are_had_in_matrix_kernels_too(call: Any) -> None:
    plain = lowered(ts.Policy(), call, BIG)
    exact = lowered(ts.Policy(), call, BIG, overrides={"math.exp": "exact"})
    assert "ttarget.matrix_kernel" in {kernel.name for kernel in exact.targets}
    # Our own quotients start from a reciprocal too, by another name, and mend it.
    assert any("approx.ftz.f32 $0" in text for text in plain.texts)
    assert not any("approx.ftz.f32 $0" in text for text in exact.texts)
    assert "numerics.exact = true" in str(exact.targets[0])
    assert report_of(call, BIG, overrides={"math.exp": "exact"}) == "reproducible"


def test_attention_without_approximations() -> None:
    q = np.zeros((1, 2, 256, 64), ml_dtypes.bfloat16)

    def attend(q: Any) -> Any:
        return ops.attention(q, q, q)

    assert "exp2 within 2 units of the last place of f32" in report_of(attend, q)
    exact = lowered(ts.Policy(), attend, q, overrides={"math.exp": "exact"})
    assert not any("ex2.approx" in text for text in exact.texts)
    if assembler() is not None:
        for text in compile_texts(exact.texts, NvptxBackend().code_target):
            assert assemble(text, "sm_90a").startswith(b"\x7fELF")


@pytest.mark.parametrize("rows", [1, 5, 16, 63, 64, 300])
def test_the_number_of_rows_does_not_decide_who_multiplies_eight_bits(rows: int) -> None:
    """Tensor cores accumulate in another order than multiply-adds: a row alone must not have other bits."""
    jitted: Any = ts.jit(lambda x, w: x @ w, policy=ts.Inference())
    given = [np.zeros(shape, np.float32) for shape in ((rows, 512), (512, 256))]
    kernels = lower(jitted.trace(*given).tape, Options.of(backend="cuda", features=("sm_90a",))).kernels
    (found,) = [kernel for kernel in kernels if kernel.value("kind") == "contraction"]
    assert found.value("warpgroups"), found.value("reasons")
