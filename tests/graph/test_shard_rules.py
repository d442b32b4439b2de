"""Factor rules of every op: sharded along each factor, parts are what the whole gives; what has no rule is listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.sharding.factors import (
    FactorRule,
    Factors,
    RuleBuilder,
    check_rule,
    cut_type,
    local_attributes,
)
from tessera.ir.graph.sharding.rules import factor_rule
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.graph.eager import Rules, registry, tensor, type_of

WHOLE = [
    "attention_backward_keys",
    "attention_join",
    "attention_parts",
    "checkpoint",
    "cond",
    "custom_function",
    "custom_linear",
    "debug_print",
    "fori",
    "fresh_key",
    "io_callback",
    "kernel_call",
    "ragged_blocks",
    "ragged_outer",
    "scan",
    "scored_attention",
    "scored_attention_backward",
    "scored_attention_with_lse",
    "size_cond",
]
"""Ops without a rule: they run on whole operands."""


def as_list(found: Any) -> list[Array]:
    """One result, or several."""
    return list(found) if isinstance(found, tuple) else [found]  # pyright: ignore[reportUnknownArgumentType]


def has_lowering(spec: OpSpec) -> bool:
    return spec.lower is not None or spec.decompose is None


def rules() -> Iterator[tuple[OpSpec, list[Array], dict[str, Any], FactorRule, list[Array]]]:
    """Every sample of an op with a lowering: its arrays, attributes, rule and results."""
    for spec in registry():
        for sample in spec.samples if has_lowering(spec) else ():
            arrays = [np.asarray(one) for one in sample.make(np.random.default_rng(3))]
            types = [type_of(one) for one in arrays]
            attributes = spec.complete(sample.attributes, types)
            results = spec.infer(Rules(), types, attributes)
            rule = factor_rule(spec, types, results, attributes)
            if rule is None:
                continue
            check_rule(spec, rule, types, results)
            assert spec.reference is not None
            with np.errstate(all="ignore"):
                found: Any = spec.reference(*arrays, **attributes)
            yield spec, arrays, attributes, rule, as_list(found)


def part(array: Array, factors: Factors, factor: int, parts: int, rank: int) -> Array:
    axis = next((axis for axis, dim in enumerate(factors) if dim and dim[0] == factor), None)
    return array if axis is None else np.ascontiguousarray(np.split(array, parts, axis)[rank])


def run_part(
    spec: OpSpec,
    arrays: Sequence[Array],
    attributes: dict[str, Any],
    rule: FactorRule,
    factor: int,
    parts: int,
    rank: int,
) -> list[Array]:
    """What one rank computes."""
    own = [part(one, dims, factor, parts, rank) for one, dims in zip(arrays, rule.operands, strict=True)]
    wholes = [type_of(one) for one in arrays]
    results = spec.infer(Rules(), wholes, attributes)
    types = [type_of(one) for one in own]
    cut = [cut_type(one, dims, {factor: parts}) for one, dims in zip(results, rule.results, strict=True)]
    made = local_attributes(
        spec,
        attributes,
        {"operand": wholes[0] if wholes else None, "result": results[0]},
        {"operand": types[0] if types else None, "result": cut[0]},
    )
    assert list(spec.infer(Rules(), types, made)) == cut, spec.name
    assert spec.reference is not None
    with np.errstate(all="ignore"):
        return as_list(spec.reference(*own, **made))


JOIN = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def test_every_op_sharded_along_every_factor_gives_the_whole() -> None:
    tried: dict[str, int] = {}
    for spec, arrays, attributes, rule, wanted in rules():
        for factor, size in enumerate(rule.sizes):
            for parts in [n for n in range(2, 9) if rule.can_shard(factor, n)]:
                ranks = [run_part(spec, arrays, attributes, rule, factor, parts, rank) for rank in range(parts)]
                for at, whole in enumerate(wanted):
                    axis = rule.axis_of(rule.results[at], factor)
                    every = [one[at] for one in ranks]
                    if axis is not None:
                        np.testing.assert_array_equal(np.concatenate(every, axis), whole, err_msg=spec.name)
                        continue
                    total = every[0].astype(np.float64)
                    for other in every[1:]:
                        with np.errstate(all="ignore"):
                            total = JOIN[rule.reductions[factor]](total, other.astype(np.float64))
                    with np.errstate(all="ignore"):
                        ours, theirs = total.astype(whole.dtype).astype(np.float64), whole.astype(np.float64)
                    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
                    bound = 0.0 if not _is_float(whole) else _epsilon(whole) * (parts + (size.value or 1) + 4)
                    np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * scale, err_msg=spec.name)
                tried[spec.short_name] = tried.get(spec.short_name, 0) + 1
    assert len(tried) > 95, len(tried)


def _is_float(array: Array) -> bool:
    return type_of(array).dtype.is_float


def _epsilon(array: Array) -> float:
    return type_of(array).dtype.epsilon


def test_terms_of_a_sum_go_through_linear_ops() -> None:
    tried: set[str] = set()
    for spec, arrays, attributes, rule, wanted in rules():
        for group in rule.linear:
            if not all(_is_float(arrays[at]) for at in group) or not all(map(_is_float, wanted)):
                continue
            if not all(np.isfinite(one.astype(np.float64)).all() for one in arrays if _is_float(one)):
                continue
            assert spec.reference is not None
            terms = [
                [
                    (one.astype(np.float64) * share).astype(one.dtype) if at in group else one
                    for at, one in enumerate(arrays)
                ]
                for share in (0.25, 0.75)
            ]
            several = [as_list(spec.reference(*own, **attributes)) for own in terms]
            for at, whole in enumerate(wanted):
                total = several[0][at].astype(np.float64) + several[1][at].astype(np.float64)
                theirs = whole.astype(np.float64)
                scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
                widest = max(_epsilon(one) for one in (whole, *arrays) if _is_float(one))
                bound = widest * 64 * max(one.size for one in arrays)
                np.testing.assert_allclose(total, theirs, rtol=bound, atol=bound * scale, err_msg=spec.name)
            tried.add(spec.short_name)
    assert {"matmul", "add", "mul", "transpose", "reshape", "sum", "concat", "slice", "where"} <= tried


def test_ops_without_a_rule_are_those_that_are_listed() -> None:
    known = {spec.short_name for spec, *_ in rules()}
    missing = [spec.short_name for spec in registry() if has_lowering(spec) and spec.short_name not in known]
    without_samples = {"saved_value", "dot_windows", "unfold", "fused"}
    assert sorted(set(missing) - without_samples) == sorted(WHOLE)


RESHAPES = [
    ((6,), (2, 3), "[a b] -> [a, b]"),
    ((2, 3), (6,), "[a, b] -> [a b]"),
    ((4, 6), (6, 4), "[a b, _] -> [a c, _]"),
    ((2, 1, 8), (2, 2, 4), "[a, _, b c] -> [a, b, c]"),
    ((3, 4), (4, 3), "[_, _] -> [_, _]"),
    ((0, 4), (4, 0), "[_, _] -> [_, _]"),
]


@pytest.mark.parametrize(("shape", "out", "text"), RESHAPES)
def test_a_reshape_shares_the_factors_of_both_shapes(shape: Any, out: Any, text: str) -> None:
    types = [tensor(*shape, dtype=f32)]
    rule = factor_rule(registry()["reshape"], types, [tensor(*out, dtype=f32)], {"shape": tuple(map(Dim.of, out))})
    assert str(rule) == text


def test_a_matmul_reads_as_an_einsum() -> None:
    spec = registry()["matmul"]
    types = [tensor(8, 4, 6, dtype=f32), tensor(6, 10, dtype=f32)]
    attributes = spec.complete({}, types)
    rule = factor_rule(spec, types, spec.infer(Rules(), types, attributes), attributes)
    assert str(rule) == "[a, b, d], [d, c] -> [a, b, c] sum d"


def test_a_rule_that_does_not_fit_its_op_is_refused() -> None:
    spec, b = registry()["neg"], RuleBuilder()
    x = TensorType.of([4, 6], f32)
    wrong = b.new(Dim.constant(5))
    with pytest.raises(TypeError, match="5 for dim 0 of operand 0"):
        check_rule(spec, b.finish([((wrong,), ())], [((), ())]), [x], [x])
    with pytest.raises(TypeError, match="twice"):
        check_rule(spec, b.finish([((wrong,), (wrong,))], [((), ())]), [x], [x])
    with pytest.raises(TypeError, match="1 dims for operand 0"):
        check_rule(spec, b.finish([((),)], [((), ())]), [x], [x])
    with pytest.raises(TypeError, match="2 operands"):
        check_rule(spec, b.finish([((), ()), ((), ())], [((), ())]), [x], [x])
    whole = b.new(Dim.constant(4))
    with pytest.raises(TypeError, match="reduces factor"):
        check_rule(spec, b.finish([((whole,), ())], [((whole,), ())], reduced=((whole, "sum"),)), [x], [x])


def test_a_factor_that_is_inside_a_dim_cannot_be_cut() -> None:
    rule = factor_rule(
        registry()["reshape"], [tensor(2, 3, dtype=f32)], [tensor(6, dtype=f32)], {"shape": (Dim.constant(6),)}
    )
    assert rule is not None
    assert [rule.can_shard(at, size.value or 1) for at, size in enumerate(rule.sizes)] == [True, False]
    assert not rule.can_shard(0, 4)
