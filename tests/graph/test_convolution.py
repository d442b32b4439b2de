"""Convolutions: against a naive loop, through their decomposition and through the maps they lower by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.ir.base.arrays import Array
from tessera.ir.tile.facets import Contraction
from tessera.types.dtype import bf16, f32
from tests.graph.eager import RuleError, Rules, infer, reference, registry, run_decomposition, tensor, type_of
from tests.graph.test_contraction import evaluate_maps


def naive(
    x: Array, w: Array, stride: tuple[int, ...], pads: list[tuple[int, int]], dilation: tuple[int, ...], groups: int
) -> Array:
    """A loop over every output element and every tap."""
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *pads])
    spatial = x.ndim - 2
    extents = [(padded.shape[a + 2] - (w.shape[a + 2] - 1) * dilation[a] - 1) // stride[a] + 1 for a in range(spatial)]
    out = np.zeros((x.shape[0], w.shape[0], *extents))
    inside, outside = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*out.shape):
        n, o, *at = place
        for tap in np.ndindex(*w.shape[1:]):
            c, *t = tap
            source = tuple(at[a] * stride[a] + t[a] * dilation[a] for a in range(spatial))
            out[place] += padded[(n, (o // outside) * inside + c, *source)] * w[(o, *tap)]
    return out


def repeat_per_axis(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values * count if len(values) == 1 else values


def convolve(x: Array, w: Array, attributes: dict[str, Any]) -> Array:
    count = x.ndim - 2
    stride, dilation = repeat_per_axis(attributes["stride"], count), repeat_per_axis(attributes["dilation"], count)
    if attributes["padding_mode"] == "same":
        pads: list[tuple[int, int]] = []
        for a in range(count):
            size, taps = x.shape[a + 2], w.shape[a + 2]
            total = max((-(-size // stride[a]) - 1) * stride[a] + (taps - 1) * dilation[a] + 1 - size, 0)
            pads.append((total // 2, total - total // 2))
    else:
        given = attributes["padding"]
        if len(given) != 2 * count:
            given = tuple(value for value in repeat_per_axis(given, count) for _ in range(2))
        pads = [(given[2 * a], given[2 * a + 1]) for a in range(count)]
    return naive(x, w, stride, pads, dilation, attributes["groups"])


CASES = [(op, sample) for op in ("conv1d", "conv2d") for sample in registry()[op].samples]


@pytest.mark.parametrize(("op", "sample"), CASES, ids=lambda part: getattr(part, "name", part))
def test_convolution_equals_a_naive_loop(op: str, sample: Any) -> None:
    x, w = sample.make(np.random.default_rng(3))
    attributes = registry()[op].with_defaults(sample.attributes)
    wanted = convolve(x, w, attributes)
    np.testing.assert_allclose(reference(op, x, w, **sample.attributes), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run_decomposition(op, x, w, **sample.attributes), wanted, rtol=1e-5, atol=1e-5)


def test_the_maps_of_conv_windows_are_the_convolution() -> None:
    spec = registry()["conv_windows"]
    assert isinstance(spec.lower, Contraction)
    for sample in spec.samples:
        w, x = sample.make(np.random.default_rng(0))
        attributes = spec.with_defaults(sample.attributes)
        maps = spec.lower.maps([type_of(w), type_of(x)], attributes)
        result = reference("conv_windows", w, x, **attributes)
        np.testing.assert_allclose(result, evaluate_maps(maps, w, x), rtol=1e-5, atol=1e-5)


def test_same_padding_keeps_a_free_size() -> None:
    rules = Rules()
    x, w = tensor("N", 3, "H", "W", dtype=bf16), tensor(8, 3, 3, 3, dtype=bf16)
    (out,) = infer("conv2d", x, w, padding_mode="same", rules=rules)
    assert str(out) == "[N, 8, H, W] bf16"
    assert not rules.guards


def test_a_free_size_that_may_be_too_small_is_guarded() -> None:
    rules = Rules()
    (out,) = infer("conv1d", tensor("N", 3, "L", dtype=f32), tensor(8, 3, 5, dtype=f32), rules=rules)
    assert str(out) == "[N, 8, L - 4] f32"
    assert len(rules.guards) == 1


def test_convolution_says_what_is_wrong() -> None:
    x, w = tensor(1, 4, 8, 8, dtype=f32), tensor(6, 2, 3, 3, dtype=f32)
    with pytest.raises(RuleError, match="the channels differ"):
        infer("conv2d", x, w)
    with pytest.raises(RuleError, match="must divide"):
        infer("conv2d", x, w, groups=3)
    with pytest.raises(RuleError, match="does not fit"):
        infer("conv2d", x, tensor(6, 4, 9, 3, dtype=f32))
    with pytest.raises(RuleError, match="rank 4"):
        infer("conv2d", tensor(4, 8, 8, dtype=f32), w)
    with pytest.raises(RuleError, match="stride"):
        infer("conv2d", x, tensor(6, 4, 3, 3, dtype=f32), stride=(0,))
    with pytest.raises(RuleError, match="padding modes"):
        infer("conv2d", x, tensor(6, 4, 3, 3, dtype=f32), padding_mode="full")
