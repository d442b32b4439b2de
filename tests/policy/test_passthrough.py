"""The policy that a program is compiled under: carried by functions, ops and kernels of all four IRs, and kept."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import PolicyError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.policies import POLICY, check_kernel_policy, policies_of
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.passes.check_policy import CheckPolicy, _is_satisfied  # pyright: ignore[reportPrivateUsage]
from tessera.types.policy import SILENT, Policy, tf32
from tests.policy.programs import POLICIES, random_program

X = np.linspace(-2, 2, 64 * 64, dtype=np.float32).reshape(64, 64)
FULL = Policy(
    storage=ts.bf16,
    compute=ts.bf16,
    accumulate=ts.f32,
    rounding="toward_zero",
    saturation="saturate",
    denormals="flush",
    loss_scale=8.0,
)


def layer(x: Any) -> Any:
    return ops.softmax(ops.exp(x @ x) + 1.0)


def functions_of(text: str) -> Iterator[SpecOp]:
    """The functions of a text, whose modules read back as they are written."""
    for part in text.split("\nbuiltin.module"):
        module = parse_module(part if part.startswith("builtin") else f"builtin.module{part}")
        assert print_module(parse_module(print_module(module))) == print_module(module)
        yield from (op for op in module.ops if isinstance(op, SpecOp))


@pytest.mark.parametrize("policy", [FULL, ts.Training(), ts.NVFP4(ts.f16), ts.Inference()], ids=str)
def test_g3_2_the_policy_is_on_what_the_function_becomes_at_all_four_levels(policy: Policy) -> None:
    texts = ts.jit(layer, policy=policy).lower(X)
    heads = [*functions_of(texts.graph)]
    heads += [op for op in functions_of(texts.schedule) if op.name == "tsched.module"]
    heads += [*functions_of(texts.tile), *functions_of(texts.target)]
    assert {op.name.split(".")[0] for op in heads} == {"tgraph", "tsched", "ttile", "ttarget"}
    assert {policies_of(op) for op in heads} == {(policy,)}
    assert len({op.attributes[POLICY] for op in heads}) == 1


@pytest.mark.parametrize("policy", [FULL, *POLICIES], ids=str)
def test_entries_are_the_policy(policy: Policy) -> None:
    assert Policy.of(policy.entries) == policy
    assert Policy.of(dict(policy.entries)).entries == policy.entries


def test_g3_2_scopes_and_types_are_on_their_ops_and_on_kernels_of_those_alone() -> None:
    @ts.jit(policy=ts.Training())
    def f(x: Any) -> Any:
        y = x @ x
        with ts.policy(rounding="toward_zero"):
            z = ops.exp(y)
        return z.sum(-1)

    texts = f.lower(X)
    inner = Policy(storage=ts.bf16, accumulate=ts.f32, rounding="toward_zero")
    (function,) = functions_of(texts.graph)
    assert policies_of(function) == (ts.Training(),)
    own = {op.name: policies_of(op) for op in function.walk() if op is not function and policies_of(op)}
    assert set(own.values()) == {(inner,)}
    assert "tgraph.exp" in own
    assert "tgraph.matmul" not in own
    said = [set(policies_of(op)) for op in functions_of(texts.target)]
    assert {one for several in said for one in several} == {ts.Training(), inner}
    assert said == [set(policies_of(op)) for op in functions_of(texts.tile)]


@ts.kernel
def halved(x: ts.KTile["M", "N", ts.f32]) -> Any:
    """A kernel that rounds as it likes."""
    T = ts.tile.context()
    return ts.tile.cast(ts.tile.load(x, rows=T.m, cols=T.n) * 0.5, ts.bf16)


def test_kernels_of_users_do_as_they_say_themselves() -> None:
    f = ts.jit(lambda x: halved(x), policy=ts.Policy(rounding="toward_zero"), debug=True)
    assert np.asarray(f(X)).shape == X.shape
    assert [policies_of(op) for op in functions_of(f.lower(X).target)] == [(SILENT,)]


def test_g3_2_a_function_without_a_policy_says_nothing_anywhere() -> None:
    assert POLICY not in str(ts.jit(layer).lower(X))


def test_g3_2_the_account_of_a_program_names_its_policies() -> None:
    f = ts.jit(layer, policy=ts.Training())
    f(X)
    account = f.explain(X)
    assert account.signature.endswith("under storage(bf16) @ accum(f32)")
    assert account.report["policies"]
    assert all(line.endswith(": storage(bf16) @ accum(f32)") for line in account.report["policies"])
    plain = ts.jit(layer)
    plain(X)
    assert "policies" not in plain.explain(X).report


def test_equal_code_of_two_policies_is_not_one_entry_of_the_cache() -> None:
    first, second = (ts.jit(lambda x: x + 1.0, policy=policy) for policy in (ts.keep_denormals, SILENT))
    assert first.lower(X).llvm == second.lower(X).llvm
    assert first.explain(X).key != second.explain(X).key


def test_the_policy_survives_the_way_to_ir_and_back() -> None:
    @ts.jit(policy=ts.Training())
    def f(x: Any) -> Any:
        with ts.policy(saturation="saturate"):
            return ts.fori_loop(0, 2, lambda _, y: y * 2.0, x.cast(ts.bf16))

    tape = f.trace(X).tape
    function: Any = from_tape(tape).ops.first
    again = to_tape(function)
    assert again.promises == tape.promises
    assert [record.policy for record in again.records] == [record.policy for record in tape.records]


@settings(max_examples=25)
@given(st.integers(0, 400))
def test_what_is_traced_under_a_policy_keeps_it(seed: int) -> None:
    program = random_program(seed)
    tape = ts.jit(program).trace(*program.arrays()).tape
    CheckPolicy().run(from_tape(tape))


@pytest.mark.parametrize("seed", range(3, len(POLICIES), 2))
def test_kernels_keep_the_policy_that_they_carry(seed: int) -> None:
    program = random_program(seed)
    lowering = lower(ts.jit(program).trace(*program.arrays()).tape, Options())
    assert any(policies_of(kernel) for kernel in lowering.kernels)
    for kernel in (*lowering.kernels, *lowering.targets):
        check_kernel_policy(kernel)


def test_g3_a_function_that_does_not_keep_its_policy_is_refused() -> None:
    tape = ts.jit(layer).trace(X).tape
    tape.promises[POLICY] = ts.Training().entries
    with pytest.raises(PolicyError, match="takes operand 0 in f32, which was never stored as bf16") as caught:
        CheckPolicy().run(from_tape(tape))
    assert caught.value.span is not None
    assert "numerics.policy" in str(caught.value)


def test_g3_the_line_refuses_it_too() -> None:
    tape = ts.jit(lambda x: x.cast(ts.bf16)).trace(X).tape
    tape.promises[POLICY] = {"rounding": "toward_zero"}
    with pytest.raises(PolicyError, match="makes bf16 of f32 by plain rounding"):
        lower(tape, Options())


def test_a_compute_mode_is_satisfied_by_itself_and_by_what_is_narrower() -> None:
    assert _is_satisfied(tf32, {"tf32"})
    assert _is_satisfied(tf32, {"bf16"})
    assert not _is_satisfied(tf32, {"f32"})
    assert not _is_satisfied(tf32, {"f64", "f32"})
    assert not _is_satisfied(tf32, set())
