"""The conversions that a policy writes around an op: each that it needs, and none beside it."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import DTypeError, PolicyError
from tessera.ir.base.arrays import round_as
from tessera.ir.graph.policy_casts import STREAM, keyed_bits, static_bits
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.policy import Policy
from tessera.types.shape import TensorType

WIDE = np.ones((4, 4), np.float32)
HALF, DOUBLE, SMALL, WORDS = (WIDE.astype(kind) for kind in (np.float16, np.float64, np.int8, np.uint32))
LINE = re.compile(r"= tgraph\.(\w+)[^{:]*(?:{(.*?)})? :.*, (\w+)>$")


def written(function: Any, *given: Any, **policy: Any) -> list[str]:
    """What a function becomes under a policy: ops, what they say of numbers, and the dtypes of results."""
    jitted: Any = ts.jit(function, policy=Policy(**policy))
    text = jitted.lower(*given).graph
    found = [match.groups() for line in text.splitlines() if (match := LINE.search(line.strip()))]
    kept = r"(?:format|rounding|saturation|denormals|accumulate) = [^,]+"
    return [" ".join([op, *re.findall(kept, said or ""), dtype]).replace('"', "") for op, said, dtype in found]


CASTS = {
    "silent": (WIDE, ts.f16, {}, ["cast f16"]),
    "accumulate": (WIDE, ts.f16, {"accumulate": ts.f16}, ["cast f16"]),
    "rounding": (WIDE, ts.f16, {"rounding": "toward_zero"}, ["round_to format = f16 rounding = toward_zero f16"]),
    "to_integers": (WIDE, ts.i8, {"denormals": "flush"}, ["round_to format = i8 rounding = toward_zero i8"]),
    "wrap": (WIDE, ts.i8, {"saturation": "wrap"}, ["round_to format = i8 rounding = toward_zero saturation = wrap i8"]),
    "floats_do_not_wrap": (WIDE, ts.f16, {"saturation": "wrap"}, ["round_to format = f16 f16"]),
    "saturate": (WIDE, ts.f16, {"saturation": "saturate"}, ["round_to format = f16 saturation = saturate f16"]),
    "flush": (WIDE, ts.f16, {"denormals": "flush"}, ["round_to format = f16 denormals = flush f16"]),
    "to_integers_saturate": (
        WIDE,
        ts.i8,
        {"saturation": "saturate"},
        ["round_to format = i8 rounding = toward_zero saturation = saturate i8"],
    ),
    "no_format": (WIDE, ts.i64, {"saturation": "saturate"}, ["cast i64"]),
    "of_f64": (DOUBLE, ts.f16, {"rounding": "toward_zero"}, ["cast f16"]),
    "wider": (HALF, ts.f32, {"rounding": "toward_zero"}, ["cast f32"]),
    "of_integers": (SMALL, ts.f16, {"rounding": "toward_zero", "saturation": "saturate"}, ["cast f16"]),
    "of_bools": (WIDE > 0, ts.i8, {"saturation": "saturate"}, ["cast i8"]),
    "wider_integers": (SMALL, ts.i32, {"saturation": "saturate"}, ["cast i32"]),
    "no_sign": (SMALL, ts.u8, {"saturation": "saturate"}, ["full i8", "maximum i8", "cast u8"]),
    "narrower": (WORDS, ts.i8, {"saturation": "saturate"}, ["full u32", "minimum u32", "cast i8"]),
    "wrapping_integers": (WORDS, ts.i8, {"saturation": "wrap"}, ["cast i8"]),
}


@pytest.mark.parametrize(("given", "target", "policy", "wanted"), CASTS.values(), ids=CASTS)
def test_casts(given: Any, target: Any, policy: dict[str, Any], wanted: list[str]) -> None:
    assert written(lambda x: x.cast(target), given, **policy) == wanted


def test_stochastic_casts_draw_where_something_is_lost() -> None:
    assert written(lambda x: x.cast(ts.f16), WIDE, rounding="stochastic")[-1] == "round_stochastic format = f16 f16"
    assert written(lambda x: x.cast(ts.i8), WIDE, rounding="stochastic")[-1] == "round_stochastic format = i8 i8"
    assert written(lambda x: x * x, WIDE, rounding="stochastic", saturation="saturate") == [
        "mul f32",
        "round_to format = f32 saturation = saturate f32",
    ]


ARITHMETIC = {
    "silent": (lambda x: x * x, HALF, {}, ["mul f16"]),
    "f32": (lambda x: x * x, WIDE, {"rounding": "toward_zero"}, ["mul f32"]),
    "f32_saturates": (
        lambda x: x * x,
        WIDE,
        {"saturation": "saturate"},
        ["mul f32", "round_to format = f32 saturation = saturate f32"],
    ),
    "f16": (
        lambda x: x * x,
        HALF,
        {"rounding": "toward_zero"},
        ["cast f32", "mul f32", "round_to format = f16 rounding = toward_zero f16"],
    ),
    "storage": (lambda x: x * x, WIDE, {"storage": ts.bf16}, ["mul f32", "round_to format = bf16 bf16"]),
    "compute": (
        lambda x: x * x,
        WIDE,
        {"storage": ts.f8e4m3, "compute": ts.f16},
        ["mul f32", "round_to format = f16 f16"],
    ),
    "moved": (lambda x: x.T, HALF, {"rounding": "toward_zero", "denormals": "flush"}, ["transpose f16"]),
    "f64": (lambda x: x * x, DOUBLE, {"storage": ts.bf16, "denormals": "flush"}, ["mul f64"]),
    "integers": (lambda x: x * x, SMALL, {"storage": ts.bf16, "denormals": "flush"}, ["mul i8"]),
    "sums_of_integers": (lambda x: ops.sum(x, axis=0), SMALL, {"accumulate": ts.f16}, ["sum accumulate = i64 i64"]),
    "sums": (lambda x: ops.sum(x, axis=0), WIDE, {"accumulate": ts.f16}, ["sum accumulate = f16 f32"]),
    "largest": (lambda x: ops.cummax(x, axis=0), WIDE, {"accumulate": ts.f16}, ["cumulative f32"]),
    "folds": (lambda x: ops.cumsum(x, axis=0), WIDE, {"accumulate": ts.f64}, ["cumulative accumulate = f64 f32"]),
    "products_of_integers": (
        lambda x: ops.matmul(x, x, dtype=ts.f32),
        SMALL,
        {"storage": ts.bf16},
        ["matmul accumulate = i32 f32"],
    ),
    "asked_products": (
        lambda x: ops.matmul(x, x, dtype=ts.f16),
        WIDE,
        {"rounding": "toward_zero"},
        ["matmul accumulate = f32 f32", "round_to format = f16 rounding = toward_zero f16"],
    ),
}


@pytest.mark.parametrize(("function", "given", "policy", "wanted"), ARITHMETIC.values(), ids=ARITHMETIC)
def test_arithmetic(function: Any, given: Any, policy: dict[str, Any], wanted: list[str]) -> None:
    assert written(function, given, **policy) == wanted


def test_integers_saturate_in_the_narrowest_dtype_that_holds_their_results() -> None:
    for kind, op, wide in (
        (np.int8, "mul", "i32"),
        (np.uint8, "sub", "i32"),
        (np.int16, "mul", "i64"),
        (np.int32, "mul", "i64"),
        (np.uint32, "mul", "u64"),
        (np.uint32, "sub", "i64"),
        (np.uint64, "mul", "u64"),
    ):
        given = WIDE.astype(kind)
        lines = written(lambda x, op=op: getattr(ops, op)(x, x), given, saturation="saturate")
        assert f"{op} {wide}" in lines, (kind, op)
        assert (len(lines) == 1) is (kind is np.uint64), "64 bits have no wider dtype"
    assert "bitwise_xor i8" in written(lambda x: x ^ x.T, SMALL, saturation="saturate")
    assert "mul f32" in written(lambda x: x * x.T, WIDE, saturation="saturate")


def test_blocks_that_are_computed_in_f32_are_rounded_once() -> None:
    x = np.ones((4, 16), np.float32)
    plain, stated = (written(lambda x: x @ x.T, x, storage=ts.nvfp4, **said) for said in ({}, {"compute": ts.f32}))
    assert plain == stated
    narrow = written(lambda x: x @ x.T, x, storage=ts.nvfp4, compute=ts.bf16)
    assert [line for line in narrow if line not in plain and "bf16" in line]


def test_softmax_of_halves_in_another_accumulator_gives_halves() -> None:
    lines = written(lambda x: ops.softmax(x), HALF, accumulate=ts.f64)
    assert lines[0] == "cast f32"
    assert "sum accumulate = f64 f32" in lines
    assert lines[-1] == "round_to format = f16 f16"


IMAGE, HEADS = np.ones((1, 2, 5, 5), np.float32), np.ones((1, 1, 16, 16), np.float32)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x: ops.softmax(x), HALF),
        (lambda x: x @ x, HALF),
        (lambda x: ops.conv2d(x, x[:, :, :3, :3]), IMAGE),
        (lambda x: ops.attention(x, x, x), HEADS),
        (lambda x: ops.einsum("ij,kj->ik", x, x), HALF),
    ],
)
def test_sums_in_f32_are_what_they_are_without_a_policy(function: Any, given: Any) -> None:
    assert written(function, given, accumulate=ts.f32) == written(function, given)


def test_attention_stores_its_first_result_alone() -> None:
    q = np.random.default_rng(0).standard_normal((1, 1, 16, 16)).astype(np.float32)
    both = ts.jit(lambda q: ops.attention(q, q, q, return_lse=True), policy=ts.Training())
    plain = ts.jit(lambda q: ops.attention(q, q, q, return_lse=True))
    (out, total), (wanted, sums) = both(q), plain(round_as(q, ts.bf16).astype(np.float32))
    assert (out.dtype, total.dtype) == (ts.bf16, ts.f32)
    np.testing.assert_allclose(np.asarray(out).astype(np.float32), np.asarray(wanted), rtol=2.0**-7)
    np.testing.assert_allclose(np.asarray(total), np.asarray(sums), rtol=1e-5)


def test_products_of_integers_in_floats_are_exact_before_they_round() -> None:
    whole = np.full((2, 300), 127, np.int8)
    for dtype in (ts.f32, ts.f64, ts.bf16):
        given = np.asarray(ts.jit(lambda x, dtype=dtype: ops.matmul(x, x.T, dtype=dtype))(whole))
        assert (given == round_as(np.full((2, 2), 300.0 * 127**2), dtype)).all()


def test_refusals_name_the_policy_and_a_way_out() -> None:
    with pytest.raises(PolicyError, match="operands of `matmul` of f32 cannot be stored as i8") as caught:
        written(lambda x: x @ x, WIDE, storage=ts.i8)
    assert "the policy is `storage(i8)`" in str(caught.value)
    assert "store a float, or `quantize` its operands" in str(caught.value)
    with pytest.raises(DTypeError, match="cannot mix"):
        written(lambda x, y: x @ y, WIDE, WORDS, accumulate=ts.f16)


class Recorder:
    """A builder that notes what is emitted, and gives a number for each."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.folded: list[Any] = []

    def emit(self, name: str, *operands: Any, **attributes: Any) -> int:
        if name == "full" and attributes["dtype"] is dt.u64:
            self.values.append(attributes["value"])
        if name == "fold_key":
            self.folded.append(operands[0])
        return len(self.values)

    def type_of(self, value: Any) -> Any:
        return TensorType((Dim.of(4),), dt.u64)


def test_each_rounding_at_random_has_a_stream_of_its_own() -> None:
    recorder = Recorder()
    bits = static_bits(7)
    for _ in range(2):
        bits(recorder, (Dim.of(4),))  # pyright: ignore[reportArgumentType]
    assert [value for value in recorder.values if value == 7 or value >= STREAM] == [7, STREAM | 1, 7, STREAM | 2]
    recorder = Recorder()
    bits = keyed_bits("key")
    for _ in range(2):
        bits(recorder, (Dim.of(4),))  # pyright: ignore[reportArgumentType]
    assert recorder.folded == ["key", "key"]
    assert [value for value in recorder.values if value >= STREAM] == [STREAM | 1, STREAM | 2]
