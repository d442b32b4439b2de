"""The `interval` of an op holds what its reference gives: on its samples, and on those scaled to extreme numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, dtype_of
from tessera.ir.base.interval import ANYTHING, Interval, IntervalQuery, always_within, total_of
from tessera.ir.base.spec import Attributes, OpSpec
from tessera.ir.graph.ops import REGISTRY, interval_of
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tests.numerics.forms import results

SCALES = (1.0, 1e4, 1e-30, 1e18, 3e38, -1.0, -1e4)
"""What floats of a sample are multiplied by; 3e38 takes some of them to infinity, -1 others below zero."""

DECLARED = [spec for spec in REGISTRY if spec.samples and (interval_of(spec) or ANYTHING).rule is not None]


def interval_of_values(array: Array) -> Interval:
    """The smallest interval that holds an array."""
    values = array.astype(np.float64)
    numbers = values[~np.isnan(values)]
    if not numbers.size:
        return Interval(0.0, 0.0, may_be_nan=bool(values.size))
    return Interval(float(numbers.min()), float(numbers.max()), may_be_nan=bool(np.isnan(values).any()))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("spec", DECLARED, ids=lambda spec: spec.short_name)
def test_an_interval_holds_what_the_reference_gives(spec: OpSpec, scale: float) -> None:
    for sample in spec.samples:
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(5))]
        with np.errstate(all="ignore"):
            arrays = [array * array.dtype.type(scale) if array.dtype.kind == "f" else array for array in arrays]
        check_interval(spec, arrays, spec.with_defaults(sample.attributes), f"{sample.name!r} times {scale:g}")


def check_interval(spec: OpSpec, arrays: Sequence[Array], attributes: Attributes, where: str) -> None:
    facet = interval_of(spec)
    assert facet is not None
    assert spec.reference is not None
    with np.errstate(all="ignore"):
        outputs = results(spec.reference(*arrays, **attributes))
    types = tuple(TensorType.of(array.shape, dtype_of(array)) for array in arrays)
    for output in outputs:
        result = TensorType.of(output.shape, dtype_of(output))
        declared = facet.result(IntervalQuery(tuple(map(interval_of_values, arrays)), types, attributes, result))
        found = interval_of_values(output)
        text = f"`{spec.short_name}` of {where} is in {found}; its `interval` says {declared}"
        if output.size and not np.isnan(output.astype(np.float64)).all():
            assert declared.low <= found.low, text
            assert found.high <= declared.high, text
        if output.size:
            assert declared.may_be_nan or not found.may_be_nan, text


def test_a_wrong_interval_is_found() -> None:
    wrong = replace(REGISTRY["softmax"], interval=always_within(5.0, 6.0))
    with pytest.raises(AssertionError, match=r"is in \[0.*its `interval` says \[5"):
        check_interval(wrong, [np.ones((2, 40), np.float32)], wrong.with_defaults({}), "ones")


def test_a_sum_may_be_nan_where_both_infinities_may_meet() -> None:
    inf = float("inf")
    for low, high, may_be_nan in ((-inf, inf, True), (-inf, 0.0, False), (0.0, inf, False), (-1.0, 1.0, False)):
        assert total_of(Interval(low, high), 3, f32).may_be_nan == may_be_nan
    assert total_of(Interval(0.0, 1.0, may_be_nan=True), 3, f32).may_be_nan
