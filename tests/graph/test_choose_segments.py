"""Segments of K are a choice that gives other bits: refused unless those are allowed, and reported where they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import OverrideError
from tessera.ir.base.compilation import KNOBS, NUMERIC, knob_class


def tall(a: ts.Tensor[8, 16384, ts.f32], b: ts.Tensor[16384, 8, ts.f32]) -> Any:
    return a @ b


def _inputs() -> list[Any]:
    draw = np.random.default_rng(1)
    return [ts.array(draw.normal(size=shape).astype(np.float32)) for shape in ((8, 16384), (16384, 8))]


def _segmented(length: int | str, **options: Any) -> Any:
    return ts.jit(tall, overrides={"contraction.segment": length}, **options)


def test_it_is_numeric_and_declared() -> None:
    assert knob_class("contraction.segment@3") == "numeric"
    assert knob_class("contraction.block") == "bit_neutral"
    assert NUMERIC.keys() <= KNOBS.keys()


def test_without_fast_math_it_is_refused() -> None:
    with pytest.raises(OverrideError, match=r"`contraction.segment` is numeric: other segments of K give other bits"):
        _segmented(1024)(*_inputs())
    with pytest.raises(OverrideError, match="cannot be 1000"):
        _segmented(1000, fast_math=True)(*_inputs())


@pytest.mark.parametrize(("length", "count"), [(1024, 16), (4096, 4), (16384, 1), ("whole", 1)])
def test_the_contraction_has_segments_of_the_length(length: int | str, count: int) -> None:
    graph = _segmented(length, fast_math=True).lower(*_inputs()).graph
    partial = re.search(r"tgraph\.matmul .*-> !tgraph\.tensor<\[(\d+), 8, 8\]", graph)
    assert (int(partial[1]) if partial else 1) == count


def test_results_are_near_and_the_choice_is_reported() -> None:
    inputs = _inputs()
    wanted = np.asarray(ts.jit(tall)(*inputs))
    function = _segmented(2048, fast_math=True)
    np.testing.assert_allclose(np.asarray(function(*inputs)), wanted, rtol=1e-4, atol=1e-3)
    (line,) = function.explain(*inputs).report["changes bits"]
    assert line.startswith("contraction.segment@0 is 2048 (override)")
    assert "changes bits" not in ts.jit(tall).explain(*inputs).report


@pytest.mark.parametrize("tile", [16, 64])
def test_what_is_neutral_changes_no_bit_beside_it(tile: int) -> None:
    inputs = _inputs()
    usual = _segmented(2048, fast_math=True)
    other = ts.jit(tall, overrides={"contraction.segment": 2048, "map.tile": tile}, fast_math=True)
    assert np.asarray(other(*inputs)).tobytes() == np.asarray(usual(*inputs)).tobytes()
