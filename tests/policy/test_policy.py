"""Policies as values: fields, text, joining, scopes, hashes that hold across processes, and the cache key."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import PolicyError
from tessera.types.annotation import parse_policy
from tessera.types.policy import SILENT, Policy
from tests.policy.test_rounding import same

FIELDS: dict[str, tuple[Any, ...]] = {
    "storage": (ts.bf16, ts.f8e4m3, ts.f16, ts.nvfp4),
    "compute": (ts.bf16, ts.f16),
    "accumulate": (ts.f32, ts.f64),
    "rounding": ("nearest_even", "toward_zero", "stochastic"),
    "saturation": ("saturate",),
    "denormals": ("keep", "flush"),
}
policies = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in FIELDS.items()}).map(
    lambda said: Policy(**said)
)


@pytest.mark.parametrize("name", FIELDS)
def test_n1_each_field_is_set_by_itself(name: str) -> None:
    for value in FIELDS[name]:
        made = Policy(**{name: value})
        assert getattr(made, name) == value
        assert all(getattr(made, other) == getattr(SILENT, other) for other in FIELDS if other != name)


@given(policies)
def test_a_policy_is_read_from_its_text(policy: Policy) -> None:
    assert parse_policy(str(policy)) == policy
    assert hash(parse_policy(str(policy))) == hash(policy)


@given(policies, policies)
def test_the_inner_of_two_policies_has_its_way(outer: Policy, inner: Policy) -> None:
    both = outer.overridden(inner)
    for name in FIELDS:
        said = getattr(inner, name)
        assert getattr(both, name) == (said if said != getattr(SILENT, name) else getattr(outer, name))


@given(policies, policies)
def test_equal_policies_have_equal_hashes_and_others_others(left: Policy, right: Policy) -> None:
    assert (hash(left) == hash(right)) == (left == right)


def test_n1_hashes_are_the_same_in_every_process() -> None:
    text = "import tessera as ts; print(hash(ts.Training()), hash(ts.NVFP4()), hash(ts.Inference()))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", text], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{hash(ts.Training())} {hash(ts.NVFP4())} {hash(ts.Inference())}\n"}


def test_chains_say_each_thing_once() -> None:
    chain = ts.bf16 @ ts.accum(ts.f32) @ ts.stochastic_round @ ts.saturate @ ts.loss_scale(1024)
    assert str(chain) == "bf16 @ accum(f32) @ stochastic_round @ saturate @ loss_scale(1024)"
    with pytest.raises(PolicyError, match="`rounding` is set twice, to `stochastic` and `toward_zero`"):
        chain @ ts.round_toward_zero  # pyright: ignore[reportUnusedExpression]
    with pytest.raises(PolicyError, match="no rounding to make stochastic"):
        ts.i8 @ ts.stochastic_round  # pyright: ignore[reportUnusedExpression]
    with pytest.raises(PolicyError, match="has nothing left to round"):
        ts.f32 @ ts.round_toward_zero  # pyright: ignore[reportUnusedExpression]


def test_predefined_policies_say_what_they_are() -> None:
    assert str(ts.Training()) == "storage(bf16) @ accum(f32)"
    assert str(ts.Inference()) == "storage(f8e4m3) @ compute(bf16) @ accum(f32) @ saturate"
    assert str(ts.NVFP4(ts.f16)) == "storage(nvfp4) @ compute(bf16) @ accum(f16) @ saturate"


@ts.jit
def scaled(x: Any) -> Any:
    return ops.exp(x) * x


def test_scopes_nest_and_end() -> None:
    x = np.array([0.3, 1.7], np.float32)
    plain = np.asarray(scaled(x))
    with ts.policy(ts.Training()) as outer:
        assert scaled(x).dtype is ts.bf16
        with ts.policy(storage=ts.f16) as inner:
            assert (outer.accumulate, inner.accumulate, inner.storage) == (ts.f32, ts.f32, ts.f16)
            assert scaled(x).dtype is ts.f16
            assert ops.exp(x).dtype is ts.f16
        assert ops.exp(x).dtype is ts.bf16
        assert "round_to" in scaled.lower(x).graph
    same(np.asarray(scaled(x)), plain)
    assert scaled(x).dtype is ts.f32


def test_a_scope_in_a_function_and_a_policy_of_the_function() -> None:
    @ts.jit(policy=ts.Policy(storage=ts.f16))
    def whole(x: Any) -> Any:
        first = ops.exp(x)
        with ts.policy(ts.Training()):
            second = ops.exp(x)
        return first, second, ops.log(first)

    @ts.jit
    def around(x: Any) -> Any:
        return whole(x)[0], ops.exp(x)

    x = np.array([0.3, 1.7], np.float32)
    assert [out.dtype for out in whole(x)] == [ts.f16, ts.bf16, ts.f16]
    assert [out.dtype for out in around(x)] == [ts.f16, ts.f32]


def test_control_flow_and_scopes_work_together() -> None:
    @ts.jit
    def f(x: Any) -> Any:
        with ts.policy(ts.Training()):
            return ts.fori_loop(0, 3, lambda _, y: y * y, x.cast(ts.bf16))

    x = np.array([1.1, 0.9], np.float32)
    wanted = ts.array(x).cast(ts.bf16)
    for _ in range(3):
        wanted = wanted * wanted
    same(np.asarray(f(x)), np.asarray(wanted))
    with ts.policy(ts.Training()):
        assert ts.cond(ts.array(True), lambda y: y * 2, lambda y: y, ts.array(x).cast(ts.bf16)).dtype is ts.bf16


def test_a_policy_is_part_of_the_signature_and_of_the_key() -> None:
    x = np.array([0.3, 1.7], np.float32)
    plain, under = scaled.bind(x).signature, scaled.under(ts.Training()).bind(x).signature
    assert plain != under
    assert under.policy == ts.Training()
    with ts.policy(ts.Training()):
        key = scaled.explain(x).key
    assert key != scaled.explain(x).key


def test_a_policy_is_shown_and_written_down() -> None:
    f = scaled.under(ts.Training())
    x = np.array([0.3, 1.7], np.float32)
    assert "under storage(bf16) @ accum(f32)" in repr(f)
    assert "under storage(bf16) @ accum(f32)" in f.explain(x).signature
    assert "tessera.numerics.policy = {storage = bf16, accumulate = f32}" in f.lower(x).graph
    assert "numerics.policy" not in scaled.lower(x).graph


def test_the_policy_of_a_type_goes_through_loops() -> None:
    @ts.jit
    def f(x: ts.Tensor["N", ts.bf16 @ ts.round_toward_zero]) -> Any:
        inside = ts.fori_loop(0, 1, lambda _, y: y * 3, x)
        assert "round_toward_zero" in repr(inside)
        return inside, inside * 1.0078125, x * 3

    x = ts.array([1.0078125], ts.bf16)
    inside, after, outside = (float(np.asarray(out.cast(ts.f32))[0]) for out in f(x))
    assert (inside, outside) == (3.015625, 3.015625)
    assert after == 3.03125


def test_what_a_tensor_says_comes_before_the_scope() -> None:
    def f(x: ts.Tensor["N", ts.bf16 @ ts.round_toward_zero]) -> Any:
        with ts.policy(rounding="nearest_even"):
            return x * 3

    x = ts.array([1.0078125], ts.bf16)
    assert float(np.asarray(ts.jit(f)(x).cast(ts.f32))[0]) == 3.015625
    assert float(np.asarray((x * 3).cast(ts.f32))[0]) == 3.03125


@pytest.mark.parametrize(
    ("saturation", "target", "expected"),
    [
        ("saturate", "i8", [127, -128, 5]),
        ("saturate", "u8", [255, 0, 5]),
        ("saturate", "i64", [300, -300, 5]),
        ("saturate", "f32", [300.0, -300.0, 5.0]),
        ("wrap", "i8", [44, -44, 5]),
        (None, "i8", [44, -44, 5]),
    ],
)
def test_integers_are_cast_to_the_ends_of_their_range_where_a_policy_saturates(
    saturation: Any, target: str, expected: list[float]
) -> None:
    def cast(x: Any) -> Any:
        return x.astype(target)

    jitted: Any = ts.jit(cast, policy=Policy(saturation=saturation) if saturation else SILENT, backend="reference")
    assert np.asarray(jitted(np.array([300, -300, 5], np.int32))).tolist() == expected


@pytest.mark.parametrize("entries", [{"storage": {1}}, {"rounding": bytearray(b"down")}])
def test_entries_that_cannot_be_hashed_are_refused_as_others_are(entries: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        Policy.of(entries)
