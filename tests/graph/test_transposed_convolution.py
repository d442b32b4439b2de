"""Convolutions backwards: phases against a naive loop, layouts bit for bit, sums for weights, and what is refused."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import ShapeError
from tessera.ir.base.arrays import Array
from tessera.ir.graph.ops.transposed_convolution import phases_of
from tessera.ir.tile.facets import Contraction
from tessera.types.dtype import f32
from tests.graph.eager import RuleError, Rules, infer, reference, registry, run_decomposition, tensor, type_of
from tests.graph.test_contraction import evaluate_maps

OPS = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


def naive(x: Array, w: Array, attributes: dict[str, Any]) -> Array:
    """Every element times every tap, added to where it goes."""
    spatial, groups = x.ndim - 2, attributes["groups"]

    def each(name: str) -> tuple[int, ...]:
        values = tuple(attributes[name])
        return values * spatial if len(values) == 1 else values

    stride, dilation, more = each("stride"), each("dilation"), each("output_padding")
    padding = tuple(attributes["padding"])
    pads = padding if len(padding) == 2 * spatial else tuple(one for one in each("padding") for _ in range(2))
    full = [(x.shape[2 + a] - 1) * stride[a] + (w.shape[2 + a] - 1) * dilation[a] + 1 + more[a] for a in range(spatial)]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *full))
    inside = x.shape[1] // groups
    for place in np.ndindex(*x.shape):
        n, c, *at = place
        for tap in np.ndindex(*w.shape[1:]):
            o, *t = tap
            target = tuple(at[a] * stride[a] + t[a] * dilation[a] for a in range(spatial))
            out[(n, (c // inside) * w.shape[1] + o, *target)] += float(x[place]) * float(w[(c, *tap)])
    cut = tuple(slice(pads[2 * a], full[a] - pads[2 * a + 1]) for a in range(spatial))
    return out[(slice(None), slice(None), *cut)]


@pytest.mark.parametrize(
    ("op", "sample"),
    [(op, sample) for op in OPS for sample in registry()[op].samples],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_transposed_convolution_equals_a_naive_loop(op: str, sample: Any) -> None:
    x, w = sample.make(np.random.default_rng(3))
    wanted = naive(x, w, dict(registry()[op].with_defaults(sample.attributes)))
    np.testing.assert_allclose(reference(op, x, w, **sample.attributes), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run_decomposition(op, x, w, **sample.attributes), wanted, rtol=1e-5, atol=1e-5)


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4), st.integers(0, 6), st.integers(1, 20))
def test_phases_name_every_tap_of_every_element_once(
    taps: int, stride: int, dilation: int, low: int, size: int
) -> None:
    wanted = {
        (element, tap, (element + low - tap * dilation) // stride)
        for element in range(size)
        for tap in range(taps)
        if (element + low - tap * dilation) % stride == 0
    }
    found = {
        (element, phase.first + (phase.count - 1 - at) * phase.step, number - phase.low + at * phase.dilation)
        for phase in phases_of(taps, stride, dilation, low)
        for number, element in enumerate(range(phase.offset, size, stride))
        for at in range(phase.count)
    }
    assert found == wanted


WINDOWS: list[dict[str, Any]] = [
    {},
    {"padding": 1, "stride": 2},
    {"padding": ((0, 2), (1, 0)), "dilation": (2, 1)},
    {"padding": 1, "groups": 2},
    {"padding": 1, "groups": 4, "stride": (1, 2)},
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_layouts_have_the_same_bits(name: str, window: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(0)
    groups = window.get("groups", 1)
    x = ts.array(rng.normal(size=(2, 4, 9, 8))).cast(dtype)
    w = ts.array(rng.normal(size=(8, 4 // groups, 3, 3) if name == "conv2d" else (4, 3, 3, 3))).cast(dtype)
    function = getattr(ts.ops, name)

    first = ts.jit(lambda x, w: function(x, w, **window))(x, w)
    last = ts.jit(lambda x, w: function(x, w, channels_last=True, **window))(ts.ops.moveaxis(x, 1, -1), w)
    np.testing.assert_array_equal(np.asarray(ts.ops.moveaxis(last, -1, 1).cast(f32)), np.asarray(first.cast(f32)))
    by_reference = ts.jit(lambda x, w: function(x, w, **window), backend="reference")(x, w)
    np.testing.assert_array_equal(np.asarray(first.cast(f32)), np.asarray(by_reference.cast(f32)))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_gradients_of_layouts_have_the_same_bits_and_are_those_of_the_reference(window: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4, 9, 8)).astype(np.float32)
    w = rng.normal(size=(8, 4 // window.get("groups", 1), 3, 3)).astype(np.float32)

    def loss(x: Any, w: Any) -> Any:
        return (ts.ops.conv2d(x, w, **window) ** 2.0).sum()

    def last(x: Any, w: Any) -> Any:
        made = ts.ops.conv2d(ts.ops.moveaxis(x, 1, -1), w, channels_last=True, **window)
        return (ts.ops.moveaxis(made, -1, 1) ** 2.0).sum()

    wanted = ts.jit(ts.grad(loss, argnums=(0, 1)), backend="reference")(x, w)
    for function in (loss, last):
        for ours, theirs in zip(ts.jit(ts.grad(function, argnums=(0, 1)))(x, w), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_a_long_sum_for_weights_has_segments() -> None:
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(2, 3, 40, 41)).astype(np.float32), rng.normal(size=(5, 3, 3, 3)).astype(np.float32)

    def by_weights(x: Any, w: Any) -> Any:
        return ts.grad(lambda w: (ts.ops.conv2d(x, w, padding=1) ** 2.0).sum())(w)

    ours, theirs = (np.asarray(ts.jit(by_weights, backend=name)(x, w)) for name in ("cpu", "reference"))
    np.testing.assert_array_equal(ours, theirs)
    free = np.asarray(ts.jit(by_weights, dynamic=True)(x, w))
    np.testing.assert_array_equal(free, theirs)


def test_the_maps_of_conv_weights_are_the_sum() -> None:
    spec = registry()["conv_weights"]
    assert isinstance(spec.lower, Contraction)
    for sample in spec.samples:
        y, x = sample.make(np.random.default_rng(0))
        attributes = spec.with_defaults(sample.attributes)
        maps = spec.lower.maps([type_of(y), type_of(x)], attributes)
        result = reference("conv_weights", y, x, **attributes)
        np.testing.assert_allclose(result, evaluate_maps(maps, y, x), rtol=1e-5, atol=1e-5)


def test_integers_are_exact() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-100, 100, shape).astype(np.int8) for shape in ((2, 5, 8, 8), (4, 5, 3, 3)))
    ours = np.asarray(ts.jit(lambda x, w: ts.ops.conv2d(x, w, dtype=ts.i32))(x, w))
    theirs = ts.jit(lambda x, w: ts.ops.conv2d(x.cast(ts.f64), w.cast(ts.f64)))(x, w)
    np.testing.assert_array_equal(ours, np.asarray(theirs))


def test_sizes_may_be_free_or_nothing() -> None:
    w = np.random.default_rng(6).normal(size=(5, 6, 3, 3)).astype(np.float32)
    free = ts.jit(lambda x: ts.ops.conv2d(x, w, padding="same", channels_last=True), dynamic=True)
    for shape in ((2, 7, 9, 6), (0, 7, 9, 6), (1, 5, 5, 6)):
        x = np.random.default_rng(7).normal(size=shape).astype(np.float32)
        wanted = ts.jit(lambda x: ts.ops.conv2d(ts.ops.moveaxis(x, -1, 1), w, padding="same"), backend="reference")(x)
        np.testing.assert_array_equal(np.asarray(free(x)), np.moveaxis(np.asarray(wanted), 1, -1))
    up = ts.jit(lambda x: ts.ops.conv_transpose2d(x, w, stride=2), dynamic=True)
    assert np.asarray(up(np.ones((0, 5, 3, 4), np.float32))).shape == (0, 6, 7, 9)


@pytest.mark.parametrize("taps", [(1, 2), (2, 2), (1, 1)], ids=str)
def test_phases_of_an_axis_that_is_cut_may_be_free(taps: tuple[int, int]) -> None:
    """Positions of a phase are `A - 3`, which only a guard keeps from being negative."""

    def up(x: ts.Tensor["N", 3, "A", "B"], w: Any):
        return ts.ops.conv_transpose2d(x, w, stride=(3, 2), padding=(4, 0))

    rng = np.random.default_rng(8)
    x, w = rng.normal(size=(2, 3, 8, 7)).astype(np.float32), rng.normal(size=(3, 4, *taps)).astype(np.float32)
    known = np.asarray(ts.jit(lambda x, w: up(x, w))(x, w))
    assert known.shape == (2, 4, 13 + taps[0], 12 + taps[1])
    assert np.asarray(ts.jit(up)(x, w)).tobytes() == known.tobytes()


def _drawn(rng: np.random.Generator, spatial: int, is_transposed: bool) -> tuple[dict[str, Any], Array, Array]:
    """A window with an image and weights, of which a sum for weights has several segments along one axis."""
    window: dict[str, Any] = {"groups": int(rng.integers(1, 4))}
    # Strides of three axes make as many phases as their product, which take long to compile.
    for name, low, high in (("stride", 1, 5 - spatial), ("dilation", 1, 3), ("padding", 0, 3)):
        window[name] = tuple(rng.integers(low, high, spatial).tolist())
    own, others = (int(one) for one in rng.integers(1, 6, 2))
    taps = rng.integers(1, 5, spatial).tolist()
    sizes = rng.integers(*((1500, 4000), (12, 60), (7, 14))[spatial - 1], spatial).tolist()
    x = rng.normal(size=(int(rng.integers(1, 5)), own * window["groups"], *sizes))
    lead = (own * window["groups"], others) if is_transposed else (others * window["groups"], own)
    return window, x.astype(np.float32), rng.normal(size=(*lead, *taps)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose", "by the image", "by the weights"])
def test_free_sizes_have_the_bits_of_known_ones(name: str, spatial: int) -> None:
    """All sizes free, and those of the image alone, beside known weights."""
    function = getattr(ts.ops, f"{name if name.startswith('conv') else 'conv'}{spatial}d")
    window, x, w = _drawn(np.random.default_rng(10 * spatial + len(name)), spatial, name == "conv_transpose")

    def loss(x: Any, w: Any) -> Any:
        return (function(x, w, **window) ** 2.0).sum()

    def run(x: Any, w: Any) -> Any:
        if name.startswith("conv"):
            return function(x, w, **window)
        return ts.grad(loss, argnums=0 if name == "by the image" else 1)(x, w)

    def free(x: Any, w: Any) -> Any:
        return run(x, w)

    free.__annotations__ = {"x": ts.Tensor["N", x.shape[1], *"ABC"[:spatial]]}
    known = np.asarray(ts.jit(run)(x, w)).tobytes()
    assert np.asarray(ts.jit(run, dynamic=True)(x, w)).tobytes() == known, (window, x.shape, w.shape)
    assert np.asarray(ts.jit(free)(x, w)).tobytes() == known, (window, x.shape, w.shape)


def test_transposed_convolutions_say_what_is_wrong() -> None:
    x, w = tensor(1, 4, 8, 8, dtype=f32), tensor(4, 2, 3, 3, dtype=f32)
    with pytest.raises(RuleError, match="the channels differ"):
        infer("conv_transpose2d", x, tensor(6, 2, 3, 3, dtype=f32))
    with pytest.raises(RuleError, match="must divide the 4 channels"):
        infer("conv_transpose2d", x, w, groups=3)
    with pytest.raises(RuleError, match="below the larger of stride 2 and dilation 1"):
        infer("conv_transpose2d", x, w, stride=(2,), output_padding=(2,))
    with pytest.raises(RuleError, match="no padding `same`"):
        infer("conv_transpose2d", x, w, padding_mode="same")
    with pytest.raises(RuleError, match="cuts more than there is of axis 2"):
        infer("conv_transpose2d", x, w, padding=(6,))
    with pytest.raises(RuleError, match="rank 4"):
        infer("conv_transpose2d", tensor(4, 8, 8, dtype=f32), w)
    with pytest.raises(ShapeError, match="channels_last"):
        ts.ops.conv2d(ts.ones((3, 8, 8)), ts.ones((1, 8, 3, 3)), channels_last=True)


def test_a_size_that_cuts_may_leave_nothing_of_is_guarded() -> None:
    rules = Rules()
    x, w = tensor("N", 3, "L", dtype=f32), tensor(3, 8, 2, dtype=f32)
    (out,) = infer("conv_transpose1d", x, w, padding=(2,), rules=rules)
    assert str(out) == "[N, 8, L - 3] f32"
    assert len(rules.guards) == 1
