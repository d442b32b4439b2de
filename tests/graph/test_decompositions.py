"""Every op that is made of others gives, through them, what its reference says, on all its samples and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, dtype_of
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.graph.samples import retype, sample_dtype
from tessera.types.dtype import BY_NAME, DType
from tessera.types.shape import TensorType
from tests.graph.eager import Rules, reference, registry, run_decomposition


def cases() -> Iterator[Any]:
    for spec in registry():
        if spec.decompose is None or not spec.samples:
            continue
        for dtype in spec.dtypes:
            yield pytest.param(spec, BY_NAME[dtype], id=f"{spec.short_name}-{dtype}")


def retype_sample(spec: OpSpec, sample: Sample, dtype: DType) -> list[Array]:
    """A sample's arrays, those of the op's first dtype in another."""
    first = BY_NAME[sample_dtype(spec)]
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(7))]
    return [retype(array, dtype) if dtype_of(array) is first else array for array in arrays]


def tolerance(dtype: DType, inputs: list[Array]) -> float:
    """A few roundings of f32 (or f64) arithmetic for each element that can meet in one, and one of the result."""
    longest = max((array.size for array in inputs), default=1)
    compute = dtype.compute.epsilon if dtype.is_float else 0.0
    return (dtype.epsilon if dtype is not dtype.compute else 0.0) + compute * (longest + 16)


@pytest.mark.parametrize(("spec", "dtype"), list(cases()))
def test_decomposition_means_what_the_reference_says(spec: OpSpec, dtype: DType) -> None:
    for sample in spec.samples:
        arrays = retype_sample(spec, sample, dtype)
        wanted = reference(spec.short_name, *arrays, **sample.attributes)
        with np.errstate(all="ignore"):
            given = run_decomposition(spec.short_name, *arrays, **sample.attributes)
        single = hasattr(wanted, "dtype")
        pairs: list[tuple[Array, Array]] = [(given, wanted)] if single else list(zip(given, wanted, strict=True))
        for left, right in pairs:
            if not dtype_of(right).is_float:
                np.testing.assert_array_equal(left, right, err_msg=sample.name)
                continue
            bound = tolerance(dtype_of(right), arrays)
            ours, theirs = left.astype(np.float64), right.astype(np.float64)
            finite = np.abs(theirs[np.isfinite(theirs)])
            scale = float(finite.max(initial=0.0))
            np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * min(scale, 1e30), err_msg=sample.name)


class Types:
    """A `Builder` whose values are types: what a decomposition does when sizes are free."""

    def __init__(self) -> None:
        self.rules = Rules()

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        spec = registry()[name]
        filled = spec.with_defaults(attributes)
        results = list(spec.infer(self.rules, operands, filled))
        if spec.lower is None and spec.decompose is not None:
            spec.decompose(self, operands, filled)
        return results[0] if len(results) == 1 else tuple(results)

    def type_of(self, value: Any) -> TensorType:
        return value


def with_symbolic_dims(array: Array) -> TensorType:
    """An array's type with every size from 5 up as a symbol that says its value."""
    return TensorType.of([f"s{size}" if size >= 5 else size for size in array.shape], dtype_of(array))


@pytest.mark.parametrize(
    "spec", [spec for spec in registry() if spec.decompose is not None], ids=lambda s: s.short_name
)
def test_decomposition_works_on_free_sizes(spec: OpSpec) -> None:
    """The same shapes come out as with numbers, and every guard holds for the sample it was made from."""
    for sample in spec.samples:
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(7))]
        types = [with_symbolic_dims(array) for array in arrays]
        sizes = {symbol: int(symbol[1:]) for type in types for symbol in type.symbols}
        builder = Types()
        assert spec.decompose is not None
        filled = spec.with_defaults(sample.attributes)
        wanted = list(spec.infer(builder.rules, types, filled))
        result = spec.decompose(builder, types, filled)
        given: list[TensorType] = [result] if isinstance(result, TensorType) else list(result)
        for left, right in zip(given, wanted, strict=True):
            assert left.substitute(sizes) == right.substitute(sizes), sample.name
        for left, right in builder.rules.guards:
            assert left.evaluate(sizes) == right.evaluate(sizes), f"{sample.name}: {left} == {right}"
