"""What compiled programs make of policies: bits of products and sums, counts of conversions at every level, bounds."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.ir.base.arrays import round_as, round_to
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.graph.ops.contraction import matmul_reference
from tessera.ir.graph.ops.reduce import reduce_array
from tessera.ir.graph.passes.apply_policy import ApplyPolicy
from tessera.types.annotation import parse_policy
from tests.policy.tables import nearest
from tests.policy.test_rounding import same

RNG = np.random.default_rng(11)
A = RNG.standard_normal((33, 64)).astype(np.float32)
B = RNG.standard_normal((64, 17)).astype(np.float32)
PLAIN = A.astype(np.float64) @ B.astype(np.float64)
SIZES = np.abs(A).astype(np.float64) @ np.abs(B).astype(np.float64)


@ts.jit
def product(a: Any, b: Any) -> Any:
    return a @ b


def test_n2_training_sums_in_f32_by_the_recipe() -> None:
    with ts.policy(ts.Training()):
        given = product(A, B)
        eager = ops.matmul(A, B)
    wanted = matmul_reference(round_as(A, ts.bf16), round_as(B, ts.bf16), accumulate=ts.f32)
    assert given.dtype is ts.bf16
    same(np.asarray(given), wanted)
    same(np.asarray(eager), wanted)


def test_n2_1_inference_is_within_the_error_of_its_format() -> None:
    with ts.policy(ts.Inference()):
        given = np.asarray(product(A, B)).astype(np.float64)
    # Each factor moves by half a step of e4m3, 2**-4 of itself or 2**-10 where it is small; bf16 rounds the sum.
    small = 2.0**-10 * (np.abs(A).sum(1)[:, None] + np.abs(B).sum(0)[None])
    bound = (2 * 2.0**-4 + 2.0**-8) * SIZES + small + 2.0**-8 * np.abs(PLAIN)
    assert (np.abs(given - PLAIN) <= bound).all()
    assert np.abs(given - PLAIN).max() > 1e-3


def scale_by_hand(x: Any) -> Any:
    """The scale of a tensor: its largest number over the largest of a block, 6 times 448."""
    return np.float32(np.abs(x).max()) / np.float32(6 * 448)


def by_hand(x: Any) -> Any:
    """Blocks of 16 along the last axis of what is divided by its tensor's scale, by the tables alone."""
    made = np.zeros_like(x)
    for row, values in enumerate(x / scale_by_hand(x)):
        for start in range(0, len(values), 16):
            block = values[start : start + 16]
            scale = nearest("f8e4m3", float(np.float32(np.abs(block).max()) / np.float32(6)), saturate=True)
            for at, value in enumerate(block):
                share = float(np.float32(value) / np.float32(scale)) if scale else 0.0
                made[row, start + at] = nearest("f4e2m1", share, saturate=True) * scale
    return made


@pytest.mark.parametrize("total", [ts.f32, ts.f16], ids=str)
def test_n2_2_blocks_of_four_bits_are_those_of_the_table(total: Any) -> None:
    left, right = by_hand(A), np.ascontiguousarray(by_hand(B.T.copy()).T)
    one, other = scale_by_hand(A), scale_by_hand(B)
    same(np.asarray(ts.jit(lambda x: ops.round_blocks(x))(A)), left * one)
    with ts.policy(ts.NVFP4(total)):
        given = np.asarray(product(A, B))
    if total is ts.f32:
        wanted = round_as(matmul_reference(left, right) * (one * other), ts.bf16)
    else:
        terms = (left * one)[:, :, None] * (right * other)[None]
        wanted = round_as(reduce_array("sum", terms, (1,), accumulate=ts.f16), ts.bf16)
    same(given, wanted)
    assert np.abs(given.astype(np.float64) - PLAIN).max() < 0.3 * SIZES.max()


def test_n3_the_accumulator_decides_the_sum() -> None:
    # Each of 1024 lanes takes a one, then three terms that bf16 cannot add to it.
    x = round_as(np.where(np.arange(4096) % 1024 < 256, 1, 2**-9), ts.bf16)

    def total(dtype: Any) -> float:
        def f(x: Any) -> Any:
            return ops.sum(x)

        f.__annotations__ = {"x": ts.Tensor["N", ts.bf16 @ ts.accum(dtype)]}
        return float(np.asarray(ts.jit(f)(x).cast(ts.f32)))

    assert total(ts.f32) == float(round_as(np.float64(1024 + 3072 / 512), ts.bf16)) == 1032
    assert total(ts.bf16) == 1024


@pytest.mark.parametrize("total", [ts.bf16, ts.f32, ts.f64], ids=str)
def test_a_mean_takes_the_accumulator_too(total: Any) -> None:
    x = (RNG.standard_normal((9, 1000)) + 1).astype(np.float32)
    with ts.policy(accumulate=total):
        given = np.asarray(ts.jit(lambda x: ops.mean(x, axis=1))(x))
        same(given, np.asarray(ts.jit(lambda x: ops.mean(x, axis=1), backend="reference")(x)))
    same(given, reduce_array("sum", x, (1,), accumulate=total) / np.float32(1000))


def test_l6_1_tf32_is_asked_for_and_shown() -> None:
    def f(a: ts.Tensor["M", "K", ts.f32 @ ts.compute(ts.tf32)], b: Any) -> Any:
        assert "compute(tf32)" in repr(a)
        return a @ b

    asked = np.asarray(ts.jit(f)(A, B))
    same(asked, matmul_reference(round_to(A, format="tf32"), round_to(B, format="tf32")))
    assert "compute(tf32)" in repr(ts.jit(f))
    plain = np.asarray(product(A, B))
    bound = (64 + 1) * 2.0**-24 * SIZES
    assert (np.abs(plain - PLAIN) <= bound).all()
    assert not (np.abs(asked - PLAIN) <= bound).all()


def test_n1_1_the_product_of_the_smallest_numbers_is_as_promised() -> None:
    x, y = np.array([1e-45, 1e-30, -1e-30, 2.0], np.float32), np.array([1.0, 1e-10, 1e-10, 1e-39], np.float32)
    keep = np.asarray(ts.jit(lambda x, y: x * y, policy=ts.keep_denormals)(x, y))
    flush = np.asarray(ts.jit(lambda x, y: x * y, policy=ts.flush_denormals)(x, y))
    same(keep, x * y)
    same(flush, np.array([0.0, 0.0, -0.0, 0.0], np.float32))


def test_n7_every_narrowing_edge_says_how_it_rounds_at_every_level() -> None:
    @ts.jit(policy=ts.Policy(storage=ts.bf16, rounding="toward_zero", saturation="saturate"))
    def f(x: Any) -> Any:
        return ops.exp(x @ x) + 1.0

    text = f.lower(np.ones((64, 64), np.float32))
    edges = 4  # the operand of the product, which is one value, its result, exp, and the sum
    pattern = r'round(?:_to)? .*format = "bf16".*rounding = "toward_zero".*saturation = "saturate"'
    assert len(re.findall(rf"tgraph\.{pattern}", text.graph)) == edges
    tile, target = (
        len(re.findall(rf"{room}\.{pattern}", part)) for room, part in (("ttile", text.tile), ("ttarget", text.target))
    )
    assert tile == target == edges


STOCHASTIC = ts.Policy(rounding="stochastic")


def test_a_scope_with_a_key_draws_from_it() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", ts.f32], key: ts.Tensor[2, ts.u64]) -> Any:
        with ts.policy(STOCHASTIC, storage=ts.bf16, key=key):
            return ops.exp(x), ops.exp(x)

    x = np.full(2000, 0.1, np.float32)
    first, second = (np.asarray(out).astype(np.float32) for out in f(x, ts.random.key(1)))
    again, _ = (np.asarray(out).astype(np.float32) for out in f(x, ts.random.key(1)))
    other, _ = (np.asarray(out).astype(np.float32) for out in f(x, ts.random.key(2)))
    assert (first == again).all()
    assert (first != second).any()
    assert (first != other).any()
    assert len(np.unique(first)) == 2


PROGRAMS = ("tgraph.exp %0", "tgraph.neg %0", "tgraph.add %0, %x", "tgraph.mul %0, %0", "tgraph.flip %0 {axes = [0]}")
POLICIES = ("round_toward_zero", "saturate", "flush_denormals", "round_toward_zero @ saturate", "accum(f32)")


@settings(max_examples=30)
@given(st.lists(st.sampled_from(PROGRAMS), min_size=1, max_size=4), st.sampled_from(POLICIES))
def test_the_pass_and_the_trace_mean_the_same(steps: list[str], policy: str) -> None:
    kind = "!tgraph.tensor<[9], bf16>"
    lines, last = list[str](), "%x"
    for number, step in enumerate(steps):
        count = 2 if "," in step.split("{")[0] else 1
        made = step.replace("%0", last)
        lines.append(f"  %v{number} = {made} : ({', '.join([kind] * count)}) -> {kind}")
        last = f"%v{number}"
    body = "\n".join(lines)
    module = parse_module(
        f'tgraph.func @main(%x: {kind}) -> {kind} attributes {{numerics.policy = "{policy}"}} {{\n{body}\n'
        f"  tgraph.return {last} : ({kind}) -> ()\n}}"
    )
    ApplyPolicy().run(module)
    module.verify()
    x = round_as(np.random.default_rng(2).standard_normal(9) * 50, ts.bf16)
    (function,) = module.ops
    assert isinstance(function, SpecOp)
    (passed,) = interpret(function, x)

    @ts.jit(backend="reference")
    def f(x: Any) -> Any:
        value = x
        for step in steps:
            name = step.split()[0].removeprefix("tgraph.")
            if name == "flip":
                value = ops.flip(value, 0)
            else:
                value = getattr(ops, name)(*[value if part.startswith("%0") else x for part in step.split()[1:]])
        return value

    with ts.policy(parse_policy(policy)):
        same(passed, np.asarray(f(x)))


def test_n7_2_roundings_move_before_views_and_only_where_bits_stay() -> None:
    def gram(x: Any) -> Any:
        return x @ x.T

    with ts.policy(ts.Training()):
        text, given = ts.jit(gram).lower(A).graph, np.asarray(ts.jit(gram)(A))
        reference = np.asarray(ts.jit(gram, backend="reference")(A))
    assert len(re.findall(r'round_to .*format = "bf16"', text)) == 2  # x once, and the product
    same(given, reference)
    with ts.policy(ts.Training(), rounding="stochastic"):
        text, given = ts.jit(gram).lower(A).graph, np.asarray(ts.jit(gram)(A))
        reference = np.asarray(ts.jit(gram, backend="reference")(A))
    assert len(re.findall(r'round_stochastic .*format = "bf16"', text)) == 3
    same(given, reference)
