"""concat, stack and pad: pieces that cover every cell once, meaning against NumPy, rules and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.graph.ops import assembly
from tessera.ir.tile.facets import Assembly
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, bool_, f32, f64, i8
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, registry, tensor, type_of
from tests.graph.views import assemble


def assemble_op(name: str, arrays: list[Array], **attributes: Any) -> Array:
    spec = registry()[name]
    assert isinstance(spec.lower, Assembly)
    types = [type_of(array) for array in arrays]
    outs = infer(name, *types, **attributes)
    pieces = spec.lower.pieces(types, outs, spec.with_defaults(attributes))
    return assemble(arrays, pieces, [dim.value or 0 for dim in outs[0].shape])


@pytest.mark.parametrize("spec", [assembly.CONCAT, assembly.STACK, assembly.PAD], ids=lambda spec: spec.short_name)
def test_pieces_give_what_references_mean(spec: Any) -> None:
    for sample in spec.samples:
        arrays = list(sample.make(np.random.default_rng(0)))
        expected = reference(spec.short_name, *arrays, **sample.attributes)
        np.testing.assert_array_equal(assemble_op(spec.short_name, arrays, **sample.attributes), expected)


widths = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=3)


@given(widths)
def test_pads_cover_every_cell_once(sizes: list[tuple[int, int, int]]) -> None:
    shape = tuple(size for size, _, _ in sizes)
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) + 1
    attributes = {
        "low": tuple(Dim.of(low) for _, low, _ in sizes),
        "high": tuple(Dim.of(high) for _, _, high in sizes),
        "value": -1.0,
    }
    expected = np.pad(x, [(low, high) for _, low, high in sizes], constant_values=-1.0) if sizes else x
    np.testing.assert_array_equal(reference("pad", x, **attributes), expected)
    np.testing.assert_array_equal(assemble_op("pad", [x], **attributes), expected)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 2))
def test_concats(parts: list[int], axis: int) -> None:
    shape = [2, 3, 2]
    arrays: list[Array] = []
    for number, part in enumerate(parts):
        own = [part if at == axis else size for at, size in enumerate(shape)]
        arrays.append(np.full(own, number, np.int64))
    expected = np.concatenate(arrays, axis)
    np.testing.assert_array_equal(assemble_op("concat", arrays, axis=axis), expected)


def test_a_border_is_rounded_to_the_dtype() -> None:
    x = np.zeros(1, numpy_dtype(bf16))
    low, high = (Dim.of(1),), (Dim.of(0),)
    assert float(reference("pad", x, low=low, high=high, value=0.1)[0]) == float(np.float32(0.1).astype(x.dtype))


def test_rules_on_free_sizes() -> None:
    x, y = tensor("B", "S", dtype=f32), tensor("B", "T", dtype=f32)
    assert infer("concat", x, y, axis=1) == [tensor("B", "S+T", dtype=f32)]
    assert infer("stack", x, x, axis=1) == [tensor("B", 2, "S", dtype=f32)]
    assert infer("pad", x, low=(Dim.of(0), Dim.symbol("P")), high=(Dim.of(1), Dim.of(0))) == [
        tensor("B+1", "S+P", dtype=f32)
    ]
    rules = Rules()
    infer("concat", x, y, axis=0, rules=rules)
    assert rules.guards == [(Dim.symbol("S"), Dim.symbol("T"))]


def test_what_is_refused() -> None:
    x = tensor(2, 3, dtype=f32)
    pair = (Dim.of(0), Dim.of(0))
    cases: list[tuple[str, list[Any], dict[str, Any], str]] = [
        ("concat", [], {"axis": 0}, "at least one operand"),
        ("concat", [x], {"axis": 2}, "no axis 2"),
        ("concat", [x, tensor(2, dtype=f32)], {"axis": 0}, r"one rank, got \[2, 3\] and \[2\]"),
        ("concat", [x, tensor(2, 4, dtype=f32)], {"axis": 0}, r"`xs\[0\].shape\[1\] = 3` and `xs\[1\].shape\[1\] = 4`"),
        ("stack", [x, tensor(2, 4, dtype=f32)], {"axis": 0}, "differ"),
        ("stack", [x], {"axis": 3}, "cannot put an axis at 3"),
        ("pad", [x], {"low": (Dim.of(1),), "high": pair}, "each of 2 axes"),
        ("pad", [x], {"low": (Dim.of(-1), Dim.of(0)), "high": pair}, "0 or more, got -1 on axis 0"),
    ]
    for op, types, attributes, message in cases:
        with pytest.raises(RuleError, match=message):
            infer(op, *types, **attributes)
    with pytest.raises(RuleDTypeError, match=r"`xs\[1\]` of f64"):
        infer("concat", x, tensor(2, 3, dtype=f64), axis=0)
    for dtype, value in ((i8, 0.5), (i8, math.nan), (bool_, 2.0)):
        with pytest.raises(RuleDTypeError, match="cannot fill"):
            infer("pad", tensor(2, 3, dtype=dtype), low=pair, high=pair, value=value)
