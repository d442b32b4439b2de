"""The derivative of every op, from its samples, in f64: against central differences, backwards, and once more."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.linearize import linearize
from tessera.ir.graph.transforms.reverse import vjp_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types.shape import TensorType
from tests.transforms.programs import (
    Array,
    active_inputs,
    cotangents_of,
    differences,
    in_f64,
    program_of,
    run,
    tangents_of,
)

WITHOUT = {
    "attention_parts": "made of `attention` behind all transforms",
    "attention_join": "made of `attention` behind all transforms",
    "attention_backward_keys": "made of `attention_backward` behind all transforms",
    **dict.fromkeys(
        (f"scored_attention{name}" for name in ("", "_with_lse", "_tangent", "_backward")),
        "programs of its samples compute in f32; tried by `tests/api/test_attention_functions.py`",
    ),
    "size_cond": "made of contractions behind all transforms",
    "join_segments": "made of contractions behind all transforms",
    "unfold": "made of contractions behind all transforms",
    "dot_windows": "made of contractions behind all transforms",
    "fma_chain": "made of contractions behind all transforms",
    "bitcast": "bits have no derivative",
    "cast": "tried by `tests/transforms/test_grad.py`: its samples are in f32 and at edges of dtypes",
    "dequantize": "works in f32 alone; tried by `tests/transforms/test_grad.py`",
    "quantize": "works in f32 alone, and gives what is rounded",
    "ragged_blocks": "made of `ragged_dot` behind all transforms",
    "round_blocks": "rounds f32 alone, and counts as the identity",
    "round_stochastic": "rounds f32 alone, and counts as the identity",
    "round_to": "rounds f32 alone, and counts as the identity",
    "stop_gradient": "constant by intent",
}
EDGES = {
    "special values": "where an op is not smooth, or overflows",
    "ties and NaN": "where a change of the values changes their order",
    "descending, ties and NaN": "where a change of the values changes their order",
    "integer and half exponents": "where an op is not smooth",
}
SMOOTH = (
    "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "silu", "softplus", "gelu", "mul",
    "div", "pow", "atan2", "matmul", "dot_general", "einsum", "conv2d", "softmax", "log_softmax", "logsumexp",
    "cross_entropy", "layernorm_safe", "rmsnorm_safe", "attention", "var", "norm", "prod", "cumulative",
)  # fmt: skip
"""Ops with second derivatives to speak of."""


def _cases(spec: OpSpec) -> list[tuple[Sample, Tape, list[Array]]]:
    """The samples that have floats in and out, small enough for a table of differences."""
    found: list[tuple[Sample, Tape, list[Array]]] = []
    for sample in spec.samples:
        arrays = in_f64(sample)
        if sample.name in EDGES or sum(array.size for array in arrays) > 1200:
            continue
        tape = program_of(spec, sample, arrays)
        has_result = any(tape.types[output].dtype.is_float for output in tape.outputs)
        if active_inputs(tape) and has_result and not _has_ties(spec, arrays):
            found.append((sample, tape, arrays))
    return found


def _has_ties(spec: OpSpec, arrays: list[Array]) -> bool:
    """Whether an op that orders its elements has equal ones, or NaN."""
    if spec.short_name not in ("sort_rows", "sort", "topk"):
        return False
    return arrays[0].size != np.unique(arrays[0]).size


SPECS = [
    spec for spec in REGISTRY if spec.short_name not in WITHOUT and spec.samples and spec.operands
    and spec.dtypes and any(name in spec.dtypes for name in ("f32", "f64"))
]  # fmt: skip


IN_OTHER_OPS = {"attention_tangent"}
"""Differentiated as the ops that it decomposes into, which add in another order than its reference."""


def _close(found: Array, expected: Array, bound: float) -> bool:
    """Equal up to a relative error wherever the expected number is finite."""
    is_known = np.isfinite(expected)
    return bool(np.all(np.abs(found - expected)[is_known] <= bound * (1 + np.abs(expected[is_known]))))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_tangents_are_central_differences(spec: OpSpec) -> None:
    for sample, tape, arrays in _cases(spec):
        rng = np.random.default_rng(1)
        directions: list[Array] = [rng.standard_normal(arrays[at].shape) for at in active_inputs(tape)]
        outputs, tangents = tangents_of(tape, arrays, directions)
        again = run(tape, arrays)
        if spec.short_name in IN_OTHER_OPS:
            assert all(_close(one, other, 1e-12) for one, other in zip(outputs, again, strict=True))
        else:
            assert [array.tobytes() for array in outputs] == [array.tobytes() for array in again]
        if spec.short_name == "std" and not outputs[0].all():
            continue  # not differentiable at 0, as the root is not
        for found, expected in zip(tangents, differences(tape, arrays, directions), strict=True):
            assert _close(found, expected, 1e-5), f"{spec.name}, {sample.name}"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_cotangents_are_the_transpose(spec: OpSpec) -> None:
    """`<v, J u> == <Jᵀ v, u>`."""
    for sample, tape, arrays in _cases(spec):
        rng = np.random.default_rng(2)
        directions: list[Array] = [rng.standard_normal(arrays[at].shape) for at in active_inputs(tape)]
        outputs, tangents = tangents_of(tape, arrays, directions)
        is_float = [dtype_of(output).is_float for output in outputs]
        seeds: list[Array] = [
            rng.standard_normal(one.shape) for one, given in zip(outputs, is_float, strict=True) if given
        ]
        forward = [tangent for tangent, given in zip(tangents, is_float, strict=True) if given]
        back = cotangents_of(tape, arrays, seeds)
        terms = [float((a * b).sum()) for a, b in zip(forward, seeds, strict=True)]
        size = sum(float(np.abs(a * b).sum()) for a, b in zip(forward, seeds, strict=True))
        other = sum(float((a * b).sum()) for a, b in zip(back, directions, strict=True))
        if np.isfinite(size):
            assert abs(sum(terms) - other) <= 1e-9 * (1 + size), f"{spec.name}, {sample.name}"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_each_operand_may_change_alone(spec: OpSpec) -> None:
    """Its derivative is the part that it has in that of all, forwards and backwards; the others are constants."""
    for sample, tape, arrays in _cases(spec):
        active, rng = active_inputs(tape), np.random.default_rng(3)
        if len(active) == 1:
            continue
        seeds: list[Array] = [rng.standard_normal(one.shape) for one in run(tape, arrays) if dtype_of(one).is_float]
        together = cotangents_of(tape, arrays, seeds)
        for number, at in enumerate(active):
            direction: Array = np.asarray(rng.standard_normal(arrays[at].shape), np.float64)
            directions: list[Array] = [direction if other == at else np.zeros(arrays[other].shape) for other in active]
            _, expected = tangents_of(tape, arrays, directions)
            found = run(linearize(tape, [at]).jvp_tape(), [*arrays, direction])[len(tape.outputs) :]
            for one, other in zip(found, expected, strict=True):
                assert _close(one, other, 1e-9), f"{spec.name}, {sample.name}, operand {at}"
            (back,) = run(vjp_tape(linearize(tape, [at])), [*arrays, *seeds])[len(tape.outputs) :]
            assert _close(back, together[number], 1e-9), f"{spec.name}, {sample.name}, operand {at}"


@pytest.mark.parametrize("name", ["round_to", "round_stochastic", "round_blocks"])
def test_rounding_counts_as_the_identity(name: str) -> None:
    """Tangents and cotangents pass it, in the dtype of the other side; to integers there are none."""
    spec, rng = REGISTRY[name], np.random.default_rng(4)
    for sample in spec.samples:
        builder = TapeBuilder()
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        types = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
        operands = add_inputs(builder.tape, types, ["x", "bits"][: len(types)])
        builder.tape.outputs = list(builder.append(spec, operands, spec.with_defaults(sample.attributes)))
        out = builder.tape.types[builder.tape.outputs[0]].dtype
        if not out.is_float:
            continue
        direction = rng.integers(-4, 5, arrays[0].shape).astype(arrays[0].dtype)
        outputs, tangents = tangents_of(builder.tape, arrays, [direction])
        assert dtype_of(tangents[0]) is dtype_of(outputs[0]) is out, sample.name
        assert (tangents[0].astype(np.float32) == direction).all(), sample.name
        back = cotangents_of(builder.tape, arrays, [direction.astype(outputs[0].dtype)])
        assert dtype_of(back[0]) is dtype_of(arrays[0])
        assert (back[0] == direction).all(), sample.name


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_are_differences_of_first_ones(name: str) -> None:
    """Forward over reverse: the tangents of a program of cotangents; reverse over reverse is their transpose."""
    spec = REGISTRY[name]
    for sample, tape, arrays in _cases(spec)[:3]:
        rng = np.random.default_rng(3)
        count, active = len(tape.outputs), active_inputs(tape)
        back = vjp_tape(linearize(tape, active))
        del back.outputs[:count]
        seeds = [rng.standard_normal(tuple(dim.value or 0 for dim in tape.types[v].shape)) for v in tape.outputs]
        given = [*arrays, *seeds]
        directions = [rng.standard_normal(given[at].shape) for at in active_inputs(back)]
        _, found = tangents_of(back, given, directions)
        for mine, expected in zip(found, differences(back, given, directions), strict=True):
            assert _close(mine, expected, 2e-4), f"{name}, {sample.name}"
        weights: list[Array] = [rng.standard_normal(tangent.shape) for tangent in found]
        again = cotangents_of(back, given, weights)
        terms = [float((a * b).sum()) for a, b in zip(found, weights, strict=True)]
        size = sum(float(np.abs(a * b).sum()) for a, b in zip(found, weights, strict=True))
        other = sum(float((a * b).sum()) for a, b in zip(again, directions, strict=True))
        assert abs(sum(terms) - other) <= 1e-9 * (1 + size), f"{name}, {sample.name}"


def test_every_op_of_floats_has_a_rule_or_a_reason() -> None:
    """An op is differentiated by its rule or through its parts; the others are named, each with a reason."""
    missing = [
        spec.short_name for spec in REGISTRY
        if spec.jvp is None and spec.decompose is None and spec.operands and spec.short_name not in WITHOUT
        and any(name in spec.dtypes for name in ("f32", "f64")) and _gives_floats(spec)
    ]  # fmt: skip
    assert missing == []


def _gives_floats(spec: OpSpec) -> bool:
    for sample in spec.samples[:1]:
        arrays = in_f64(sample)
        tape = program_of(spec, sample, arrays)
        return any(tape.types[output].dtype.is_float for output in tape.outputs)
    return False
