"""Gradients under numerics policies: every one that a program works under, with the bits of the reference."""

# Programs are functions of tensors of any dtype here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import PolicyError
from tessera.ir.base.policies import check_kernel_policy
from tessera.ir.base.tape import POLICY, Record, Tape
from tessera.ir.graph.dialect import from_tape
from tessera.ir.graph.passes.check_policy import CheckPolicy
from tessera.types.policy import Policy
from tests.policy.processes import printed_in_processes
from tests.policy.programs import POLICIES, Program, random_program
from tests.policy.test_bits import bits_of

RNG = np.random.default_rng(3)
W = RNG.standard_normal((16, 16)).astype(np.float32)
X = RNG.standard_normal((16, 16)).astype(np.float32)


def attend(w: Any, x: Any) -> Any:
    q, k = (one.reshape((1, 1, 16, 16)) for one in (w, x))
    return ops.flash_attention(q, k, k, causal=True).sum()


def loop(w: Any, x: Any) -> Any:
    state, _ = ts.scan(lambda h, row: (ops.tanh(h * w[0] + row).cast(ts.f32), ()), x[0], x)
    return (state * state).sum()


def choose(w: Any, x: Any) -> Any:
    return ts.cond(w.sum() > 100.0, lambda a, b: (a * b).sum(), lambda a, b: (a @ b).sum(), w, x)


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "layer": lambda w, x: ops.cross_entropy(ops.gelu(x @ w), ts.array(np.arange(16))),
    "norms": lambda w, x: (ops.rmsnorm_safe(x @ w) * ops.layernorm_safe(w @ x)).sum(),
    "softmax": lambda w, x: (ops.softmax(x * w.cast(x.dtype)) ** 2.0).sum(),
    "attention": attend,
    "loop": loop,
    "branch": choose,
    "rows": lambda w, x: (ops.cumsum(w[np.array([0, 0, 3])], axis=0) ** 2.0).sum(),
    "uses": lambda w, x: (ops.exp(w * 0.1) + ops.tanh(w) + ops.sigmoid(w)).sum(),
}
MORE = (Policy(accumulate=ts.bf16), Policy(accumulate=ts.f64), Policy(storage=ts.bf16), Policy(storage=ts.f32))
STEP = {"bf16": 2.0**-8, "f16": 2.0**-11, "f8e4m3": 2.0**-4, "f8e5m2": 2.0**-3, "nvfp4": 2.0**-2, "tf32": 2.0**-11}


def error_bound(policy: Policy) -> float:
    """The relative error of a gradient: ten roundings in a row of the coarsest format, each by up to two half steps."""
    formats = [str(one) for one in (policy.storage, policy.compute, policy.accumulate) if one is not None]
    return 20.0 * max([2.0**-24, *(STEP.get(one, 2.0**-24) for one in formats)])


def every_loss(w: dict[str, Any], x: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Several losses in one program, each of arguments of its own."""
    values = {name: LOSSES[name](w[name], x[name]) for name in w}
    return sum(value.cast(ts.f32) for value in values.values()), values


TRIED = (*POLICIES[1:], *MORE)
QUICK = ts.Training(), ts.NVFP4()


def losses_of(policy: Policy) -> list[str]:
    """All losses under the policies that users name first; under the others every second one, in turns."""
    names = list(LOSSES)
    return names if policy in QUICK else names[TRIED.index(policy) % 2 :: 2]


def test_every_loss_meets_policies_of_every_kind() -> None:
    for name in LOSSES:
        met = [policy for policy in TRIED if name in losses_of(policy)]
        assert len(met) >= len(TRIED) // 2
        assert any(policy.rounding == "stochastic" for policy in met), name
        assert {policy.storage is None for policy in met} == {True, False}, name


@pytest.mark.parametrize(
    "policy",
    [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow, id=str(one)) for one in TRIED],
)
def test_a_gradient_is_that_without_the_policy_within_its_roundings(policy: Policy) -> None:
    names = losses_of(policy)
    given = dict.fromkeys(names, W), dict.fromkeys(names, X)
    found, values = ts.jit(ts.grad(every_loss, (0, 1), has_aux=True), policy=policy)(*given)
    wanted, _ = ts.grad(every_loss, (0, 1), has_aux=True)(*given)
    _, alone = ts.jit(every_loss, policy=policy)(*given)
    for name in names:
        assert values[name].dtype is alone[name].dtype
        assert bits_of(values[name]) == bits_of(alone[name]), f"{name}: the forward part has the bits of the function"
        for own, exact in zip((one[name] for one in found), (one[name] for one in wanted), strict=True):
            assert own.dtype is ts.f32, name
            error = np.linalg.norm(np.asarray(own) - np.asarray(exact))
            assert error <= error_bound(policy) * np.linalg.norm(np.asarray(exact)) + 1e-30, name


def total(program: Program) -> Callable[..., Any]:
    def loss(*given: Any) -> Any:
        return sum(one.cast(ts.f32).sum() for one in program(*given) if one.dtype.is_float)

    return ts.grad(loss, (0, 1, 2))


@pytest.mark.parametrize("seed", range(len(POLICIES)))
def test_gradients_of_random_programs_equal_the_reference_and_keep_their_policy(seed: int) -> None:
    """All that they consist of is defined to the last bit."""
    program = random_program(seed)
    gradient, arrays = total(program), program.arrays()
    compiled, wanted = ts.jit(gradient)(*arrays), ts.jit(gradient, backend="reference")(*arrays)
    for ours, theirs, given in zip(compiled, wanted, arrays, strict=True):
        assert str(ours.dtype) == str(given.dtype).replace("float32", "f32").replace("bfloat16", "bf16")
        np.testing.assert_array_equal(bits_of(ours), bits_of(theirs), str(program))
    lowering = lower(ts.jit(gradient).trace(*arrays).tape, Options())
    for kernel in (*lowering.kernels, *lowering.targets):
        check_kernel_policy(kernel)


@pytest.mark.parametrize("policy", [ts.Training(), ts.Inference(), POLICIES[7]], ids=str)
def test_scopes_functions_types_and_eager_calls_differentiate_alike(policy: Policy) -> None:
    loss = LOSSES["layer"]

    def inside(w: Any, x: Any) -> Any:
        with ts.policy(policy):
            return loss(w, x)

    with ts.policy(policy):
        eager = ts.grad(loss)(W, X)
    made = (ts.jit(ts.grad(loss), policy=policy)(W, X), ts.grad(ts.jit(loss, policy=policy))(W, X), eager)
    scoped = ts.grad(inside)(W, X)
    assert len({np.asarray(one).tobytes() for one in (*made, scoped)}) == 1


def test_other_transforms_run_under_a_policy_too() -> None:
    with ts.policy(ts.Training()):
        value, tangent = ts.jvp(LOSSES["layer"], (W, X), (X, W))
        again, push = ts.linearize(LOSSES["layer"], W, X)
        _, pull = ts.vjp(LOSSES["layer"], W, X)
        each = ts.vmap(ts.grad(LOSSES["uses"]), in_axes=(0, None))(np.stack([W, X]), X)
        second = ts.hvp(LOSSES["uses"], (W, X), (X, W))
    assert tangent.dtype is value.dtype is ts.bf16
    assert float(value) == float(again)
    assert float(push(X, W)) == float(tangent)
    by_w, by_x = pull(ts.array(1.0, ts.bf16))
    product = float((np.asarray(by_w) * X + np.asarray(by_x) * W).sum())
    assert math.isclose(product, float(tangent), rel_tol=20 * 2.0**-8)
    one = ts.jit(ts.grad(LOSSES["uses"]), policy=ts.Training())(X, X)
    assert np.asarray(each[1]).tobytes() == np.asarray(one).tobytes()
    assert second[0].dtype is ts.f32


@pytest.mark.parametrize("policy", [ts.Training(), ts.Inference()], ids=str)
def test_rules_of_users_compute_under_the_policy_and_give_the_dtype_of_the_value(policy: Policy) -> None:
    @ts.custom_vjp
    def cube(x: Any) -> Any:
        return x * x * x

    cube.defvjp(lambda x: (cube(x), x), lambda x, g: (3.0 * x * x * g,))
    found = ts.jit(ts.grad(lambda x: cube(x).sum()), policy=policy)(X)
    assert found.dtype is ts.f32
    np.testing.assert_allclose(np.asarray(found), 3.0 * X * X, rtol=4 * 2.0**-8)


def backward(policy: Policy, loss: Callable[..., Any] = LOSSES["layer"]) -> Tape:
    return ts.jit(ts.grad(loss), policy=policy).trace(W, X).tape


def test_backward_matmuls_have_operands_as_stored_and_the_accumulator() -> None:
    for policy, kind in ((ts.Training(), ts.bf16), (ts.Training(ts.f16), ts.f16), (ts.Inference(), ts.bf16)):
        tape = backward(policy)
        products = [record for record in tape.records if record.op == "tgraph.matmul"]
        assert len(products) == 2  # forward, and by the weights
        for record in products:
            assert record.attributes["accumulate"] is ts.f32
            assert {tape.types[value].dtype for value in record.operands} == {kind}


def test_cotangents_that_meet_are_added_in_the_accumulator_and_rounded_once() -> None:
    def loss(x: Any) -> Any:
        y = x.cast(ts.bf16)
        # Backwards, the 1 comes first; a 2**-8 that is added to it in bf16 is a tie, and lost.
        return sum((y * factor).sum().cast(ts.f32) for factor in (2.0**-8, 2.0**-8, 1.0))

    x = np.ones(4, np.float32)
    plain, wide = ts.grad(loss)(x), ts.jit(ts.grad(loss), policy=Policy(accumulate=ts.f32))(x)
    assert np.asarray(plain).tolist() == [1.0] * 4, "each sum is rounded to bf16 without a policy"
    assert np.asarray(wide).tolist() == [1.0 + 2.0**-7] * 4


def test_cotangents_of_what_a_loop_captures_are_summed_in_the_accumulator() -> None:
    """A thousand times 2**-10 in bf16 stops at 1/4, where a term is half a step."""

    def loss(w: Any, rows: Any) -> Any:
        return ts.scan(lambda c, row: (c + (w * row).cast(ts.f32), ()), ops.zeros(()), rows)[0]

    w, rows = ts.array(1.0, ts.bf16), ts.array(np.full(1024, 2.0**-10, np.float32), ts.bf16)
    plain, wide = ts.grad(loss)(w, rows), ts.jit(ts.grad(loss), policy=Policy(accumulate=ts.f32))(w, rows)
    assert plain.dtype is wide.dtype is ts.bf16
    assert (float(plain), float(wide)) == (0.25, 1.0)


# What a backward program states is checked as what a forward one states.


def changed(tape: Tape, at: int, **fields: Any) -> Tape:
    """A program with another record in the place of one."""
    records = list(tape.records)
    records[at] = replace(records[at], **fields)
    return replace(tape, records=records)


def last(tape: Tape, op: str) -> int:
    return max(at for at, record in enumerate(tape.records) if record.op == op)


def test_a_backward_matmul_with_another_accumulator_is_refused() -> None:
    tape = backward(ts.Training())
    at = last(tape, "tgraph.matmul")
    wrong = changed(tape, at, attributes={**tape.records[at].attributes, "accumulate": ts.f64})
    with pytest.raises(PolicyError, match=r"`tgraph.matmul` sums in f64, and its policy is"):
        CheckPolicy().run(from_tape(wrong))


def test_a_cotangent_that_was_never_stored_is_refused_in_a_matmul() -> None:
    tape = backward(Policy(compute=ts.tf32))
    at = last(tape, "tgraph.matmul")
    factor = tape.records[at].operands[1]
    maker = next(record for record in tape.records if factor in record.results)
    assert maker.op == "tgraph.round_to"
    operands = (tape.records[at].operands[0], maker.operands[0])
    with pytest.raises(PolicyError, match="takes operand 1 in f32, which was never computed in tf32"):
        CheckPolicy().run(from_tape(changed(tape, at, operands=operands)))


def test_a_cotangent_that_is_narrowed_by_plain_rounding_is_refused() -> None:
    tape = backward(Policy(storage=ts.bf16, rounding="toward_zero"))
    at = last(tape, "tgraph.round_to")
    plain = Record("tgraph.cast", tape.records[at].operands, {"dtype": ts.bf16}, tape.records[at].results)
    wrong = replace(tape, records=[*tape.records[:at], plain, *tape.records[at + 1 :]])
    with pytest.raises(PolicyError, match=r"`tgraph.cast` makes bf16 of f32 by plain rounding"):
        CheckPolicy().run(from_tape(wrong))


def test_a_gradient_that_claims_the_storage_of_its_function_is_refused_in_f32() -> None:
    tape = backward(ts.Training(), LOSSES["uses"])
    at = next(at for at, record in enumerate(tape.records) if tape.outputs[0] in record.results)
    assert tape.records[at].policy == Policy(accumulate=ts.f32), "a gradient in f32 says that it is not stored narrower"
    wrong = changed(tape, at, policy=ts.Training())
    assert wrong.promises[POLICY] == ts.Training().entries
    with pytest.raises(PolicyError, match="leaves as result 0 in f32, and was never stored as bf16"):
        CheckPolicy().run(from_tape(wrong))


# Stochastic rounding.


def test_roundings_of_a_gradient_have_random_bits_of_their_own() -> None:
    policy = Policy(storage=ts.bf16, rounding="stochastic")
    tape = backward(policy)
    counters = [r for r in tape.records if r.op == "tgraph.philox"]
    made = {value: record for record in tape.records for value in record.results}
    streams = [made[record.operands[2]].attributes.get("value") for record in counters]
    assert len(streams) == len(set(streams)) > 4


CHECKPOINTED: dict[str, Callable[[Any, Any], Any]] = {
    "first": lambda w, x: (ops.tanh(x @ w) * x).sum(),
    "twice": lambda w, x: (ts.checkpoint(lambda a, b: ops.tanh(a @ b))(x, w) @ w).sum(),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy"), [
    ("first", Policy(storage=ts.bf16, accumulate=ts.f32, rounding="stochastic")),
    ("twice", Policy(storage=ts.f8e4m3, compute=ts.bf16, rounding="stochastic")),
], ids=str)  # fmt: skip
def test_a_checkpoint_changes_no_bit_under_stochastic_rounding(name: str, policy: Policy) -> None:
    loss = CHECKPOINTED[name]

    def outer(w: Any, x: Any, part: Callable[[Any, Any], Any]) -> Any:
        return (part(w * x, x) * w).sum()

    def gradients(part: Callable[[Any, Any], Any]) -> list[Any]:
        return ts.jit(ts.value_and_grad(lambda w, x: outer(w, x, part), (0, 1)), policy=policy)(W, X)

    (plain, by_plain), (again, by_again) = gradients(loss), gradients(ts.checkpoint(loss))
    for one, other in zip((plain, *by_plain), (again, *by_again), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


HASHES = """
import hashlib
import numpy as np
import tessera as ts
from tests.policy.test_gradients import LOSSES, POLICIES, W, X

digest = hashlib.sha256()
for policy, names in ((ts.Policy(), ("attention", "rows")), (ts.Training(), ("layer",)), (POLICIES[7], ("uses",))):
    for name in names:
        value, gradients = ts.jit(ts.value_and_grad(LOSSES[name], (0, 1)), policy=policy)(W, X)
        for one in (value, *gradients):
            digest.update(np.asarray(one).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
def test_d7_values_and_gradients_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Cold with one thread, warm with two, and cold elsewhere with other hashes."""
    found = printed_in_processes(HASHES, tmp_path, threads=("1", "2", "2"))
    assert len(found) == 3
    assert len(set(found)) == 1


# N9.2: rows with nothing to sum and nothing to see.

HIDDEN = np.array([[True, False, True], [False] * 3, [True] * 3])
ROWS = np.where(HIDDEN, np.array([[0.5, 0.1, -1.0]], np.float32), np.float32(-np.inf))


@pytest.mark.parametrize(
    "policy", [Policy(), ts.Training(), Policy(accumulate=ts.bf16)], ids=lambda p: str(p) or "none"
)
@pytest.mark.parametrize("op", ["softmax", "softmax_safe", "logsumexp", "logsumexp_safe", "cross_entropy"])
def test_n9_2_a_row_of_nothing_but_infinities_has_the_gradient_zero(op: str, policy: Policy) -> None:
    def loss(x: Any) -> Any:
        if op == "cross_entropy":
            y = ops.cross_entropy(x, ts.array([0, 1, 2]), reduction="none")
        else:
            y = getattr(ops, op)(x, axis=-1)
        # What a row that has no finite result adds to the loss is left out, as users do.
        return ops.where(ops.isinf(y), 0.0, y * 2.0).sum()

    ways = [ts.grad(loss), ts.jit(ts.grad(loss)), lambda x: ts.vmap(ts.grad(loss), in_axes=0)(x[None])[0]]
    with ts.policy(policy):
        for way in ways:
            found = np.asarray(way(ROWS), np.float64)
            assert np.isfinite(found).all()
            assert found[1].tolist() == [0.0] * 3 or op == "cross_entropy"  # whose label has the slope -1
            assert np.abs(found[2]).sum() > 0.0 or op.startswith("softmax")


@pytest.mark.parametrize(
    "policy", [Policy(), ts.Training(), Policy(accumulate=ts.bf16)], ids=lambda p: str(p) or "none"
)
@pytest.mark.parametrize("kind", ["bool", "added", "causal", "dropped"])
def test_n9_2_attention_that_sees_nothing_has_finite_gradients(kind: str, policy: Policy) -> None:
    q, k, v = (RNG.standard_normal((1, 2, 3, 16)).astype(np.float32) for _ in range(3))

    def loss(q: Any, k: Any, v: Any) -> Any:
        if kind == "causal":
            return (ops.flash_attention(q, k[:, :, :2], v[:, :, :2], causal=True) ** 2.0).sum()
        if kind == "dropped":
            return (ops.flash_attention(q, k, v, HIDDEN, dropout=0.5, key=ts.random.key(3)) ** 2.0).sum()
        mask = HIDDEN if kind == "bool" else np.where(HIDDEN, np.float32(0), np.float32(-np.inf))
        return (ops.flash_attention(q, k, v, mask) ** 2.0).sum()

    gradient = ts.grad(loss, (0, 1, 2))
    with ts.policy(policy):
        batched = [one[0] for one in ts.vmap(gradient)(q[None], k[None], v[None])]
        for found in (gradient(q, k, v), ts.jit(gradient)(q, k, v), batched):
            by_q, by_k, by_v = (np.asarray(one, np.float64) for one in found)
            assert all(np.isfinite(one).all() for one in (by_q, by_k, by_v))
            assert not by_q[0, :, 0 if kind == "causal" else 1].any(), "a query that sees nothing changes nothing"
            assert by_v.any()


def test_a_key_is_that_of_forward_roundings_alone() -> None:
    """Bits of backward roundings are part of the program, as the guide says: the same at every call, by any key."""
    x, w = (ts.array(np.linspace(low, low + 1, 64, dtype=np.float32)).astype(ts.bf16) for low in (0.1, 0.3))

    def scaled(x: Any, w: Any, key: Any) -> Any:
        with ts.policy(storage=ts.bf16, accumulate=ts.f32, rounding="stochastic", key=key):
            return x * w * w

    forward = ts.jit(lambda x, w, key: scaled(x, w, key).astype(ts.f32))
    backward = ts.jit(lambda x, w, key: ts.grad(lambda x: scaled(x, w, key).astype(ts.f32).sum())(x).astype(ts.f32))
    values, gradients = ([np.asarray(f(x, w, ts.random.key(seed))) for seed in (0, 1)] for f in (forward, backward))
    assert values[0].tobytes() != values[1].tobytes()
    assert gradients[0].tobytes() == gradients[1].tobytes()
    exact = np.asarray(w.astype(ts.f32)) ** 2
    nearest = np.asarray(ts.array(exact).astype(ts.bf16).astype(ts.f32))
    np.testing.assert_allclose(gradients[0], exact, rtol=2.0**-7)
    assert not np.array_equal(gradients[0], nearest)  # they were rounded at random
