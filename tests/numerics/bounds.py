"""How far a compiled result may be from its reference: computed from the format, the lengths, and declared ulps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops.attention import causal_mask
from tessera.ir.graph.ops.einsum import parse_equation
from tessera.ir.graph.ops.random import random_bits, split_words
from tessera.ir.graph.score_forms import apply_to_arrays
from tessera.types.dtype import DType
from tessera.types.numerics import LANES, LEAF
from tests.numerics.forms import results
from tests.scalar_table import APPROXIMATE_OPS, FUNCTION_OF_OP, ULP_BOUNDS

Attributes: TypeAlias = Mapping[str, Any]
Bound: TypeAlias = "Callable[[Asked], Array]"


class Asked:
    """One result: the op on operands as they are computed with, and what the reference gives in that dtype."""

    def __init__(
        self,
        spec: OpSpec,
        arrays: Sequence[Array],
        attributes: Attributes,
        exact: Array,
        place: int = 0,
        *,
        on_tensor_cores: bool = False,
        shared: dict[str, Any] | None = None,
    ) -> None:
        self.on_tensor_cores = on_tensor_cores
        self.shared: dict[str, Any] = {} if shared is None else shared
        """What was computed for another result of the same call, by name."""
        self.spec, self.attributes, self.place = spec, attributes, place
        self.arrays = list(arrays)
        self.exact = exact.astype(np.float64)
        self.compute = np.dtype(np.float64 if exact.dtype == np.float64 else np.float32)
        self.eps = float(np.finfo(self.compute).eps)
        # the reference of an f32 result is computed in f64 and has no error to speak of; that of f64 has its own
        self.sides = 2 if self.compute == np.float64 else 1

    def again(self, *arrays: Array) -> Array:
        """The reference on other operands."""
        with np.errstate(all="ignore"):
            return results(_reference(self.spec)(*arrays, **self.attributes))[self.place].astype(np.float64)


def _reference(spec: OpSpec) -> Callable[..., Any]:
    assert spec.reference is not None
    return spec.reference


def steps(length: int) -> int:
    """Additions that an element may go through in a sum of `length`: in its lane, then in both trees."""
    lane, leaves = -(-min(length, LEAF) // LANES), -(-length // LEAF)
    return lane + LANES.bit_length() - 1 + max(leaves - 1, 0).bit_length()


def _ulp(asked: Asked) -> Array:
    """The distance to the next number at each result, in the dtype of computation."""
    with np.errstate(all="ignore"):
        return np.spacing(np.abs(asked.exact.astype(asked.compute))).astype(np.float64)


def _function(name: str) -> Bound:
    """A vector function: its declared ulps, half of one for the reference, and in f64 what one ulp of input does."""

    def bound(asked: Asked) -> Array:
        if name == "gelu":
            called = "gelu_tanh" if asked.attributes["approximate"] == "tanh" else "gelu_erf"
        else:
            called = FUNCTION_OF_OP[name].name
        declared = ULP_BOUNDS[called][1 if asked.compute == np.float64 else 0]
        tolerance = (declared + 0.5) * _ulp(asked)
        if asked.sides == 2:
            tolerance = tolerance + _ulp(asked) + _conditioning(asked)
        return tolerance

    return bound


def _conditioning(asked: Asked) -> Array:
    """How far the reference moves when each operand moves by its last bit: its own error, where nothing is wider."""
    moved = np.zeros(asked.exact.shape)
    with np.errstate(all="ignore"):
        for at, array in enumerate(asked.arrays):
            ends = [
                asked.again(*asked.arrays[:at], np.nextafter(array, array.dtype.type(end)), *asked.arrays[at + 1 :])
                for end in (np.inf, -np.inf)
            ]
            moved = moved + np.maximum(np.abs(ends[0] - asked.exact), np.abs(ends[1] - asked.exact))
    return moved


def _rows_of(asked: Asked, axes: tuple[int, ...]) -> tuple[Array, int]:
    """The first operand in f64, and how many elements a row has."""
    x = asked.arrays[0].astype(np.float64)
    return x, int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))


def _finite_max(x: Array, axes: tuple[int, ...]) -> Array:
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    return finite.max(axes, keepdims=True, initial=0.0)


EXP, LOG = ULP_BOUNDS["exp"][0], ULP_BOUNDS["log"][0]


def _softmax(asked: Asked) -> Array:
    """exp's argument rounds by half an ulp of itself; then exp, the sum of such, a reciprocal, a product."""
    axis = int(asked.attributes["axis"])
    x, length = _rows_of(asked, (axis,))
    with np.errstate(all="ignore"):
        below = np.abs(x - x.max(axis, keepdims=True, initial=-np.inf))
    argument = np.where(np.isfinite(below), below, 0.0)
    # a term of the sum moves by at most t * exp(-t) <= 1 through its argument
    relative = asked.eps * asked.sides * (argument + 1 + 2 * EXP + steps(length) + 2)
    return relative * np.abs(asked.exact) + np.finfo(asked.compute).smallest_subnormal


def _log_softmax(asked: Asked) -> Array:
    axis = int(asked.attributes["axis"])
    _, length = _rows_of(asked, (axis,))
    return asked.eps * asked.sides * (3 * np.abs(asked.exact) + steps(length) + EXP + LOG * np.log(length + 1) + 3)


def _logsumexp(asked: Asked) -> Array:
    axes = tuple(axis % asked.arrays[0].ndim for axis in asked.attributes["axes"])
    x, length = _rows_of(asked, axes)
    top = _finite_max(x, axes).reshape(asked.exact.shape)
    share = steps(length) + EXP + LOG * np.log(length + 1) + 3
    # the reference of `logsumexp` computes in f32 as well, with NumPy's exp and log of at most 4 ulps
    return asked.eps * 2 * (2 * top + np.abs(asked.exact) + share + 4)


def _norm(asked: Asked) -> Array:
    """Of most orders each power differs by the ulps of `pow`, a sum of such too, and its root by their share of it."""
    order = abs(float(asked.attributes.get("order", 2)))
    if order in (0, 1, 2, math.inf):
        return np.zeros_like(asked.exact)
    axes = tuple(axis % asked.arrays[0].ndim for axis in asked.attributes["axes"])
    _, length = _rows_of(asked, axes)
    power = ULP_BOUNDS["pow"][asked.sides - 1] + 0.5
    relative = asked.eps * ((power + steps(length)) / order + power + 1)
    return relative * np.abs(asked.exact) + np.finfo(asked.compute).smallest_subnormal


def _normalised(asked: Asked) -> Array:
    """The error of the mean moves every centred value; that, and the fold of squares, move the root."""
    x = asked.arrays[0].astype(np.float64)
    axes = tuple(range(int(asked.attributes["axis"]) % x.ndim, x.ndim))
    x, length = _rows_of(asked, axes)
    if not length:
        return np.zeros(asked.exact.shape)
    with np.errstate(all="ignore"):
        centred = x - x.mean(axes, keepdims=True) if asked.spec.short_name == "layernorm_safe" else x
        root = 1.0 / np.sqrt(np.square(centred).mean(axes, keepdims=True) + asked.attributes["eps"])
        hat = np.abs(centred * root)
        eps = asked.eps * asked.sides
        least = np.finfo(asked.compute).smallest_subnormal
        shift = (eps * _finite_max(x, axes) + least) * (steps(length) + 2) if centred is not x else least
        error = shift * root * (1 + 2 * hat) + hat * eps * (steps(length) + 4 + ULP_BOUNDS["rsqrt"][0])
        if len(asked.arrays) > 1:
            weight = np.abs(asked.arrays[1].astype(np.float64))
            error = weight * error + eps * (weight * hat + np.abs(asked.exact))
    return error


def _weight(asked: Asked) -> Array | None:
    """The relative error of a weight of a value: of its score, and of the chains over keys; None without keys."""
    score = _score(asked)
    return None if score is None else 4 * score + asked.eps * asked.sides * (asked.arrays[1].shape[2] + 2 * EXP + 16)


def _attention(asked: Asked) -> Array:
    """Scores are chains over the head dim; a score's error is a relative one of its share; then a chain over keys."""
    relative = _weight(asked)
    if relative is None:
        return np.zeros(asked.exact.shape)
    q, k, v, *rest = asked.arrays
    if asked.place == 1:
        # a relative error of the sum is one of its logarithm
        return (relative + asked.eps * asked.sides * 4)[..., 0] + asked.eps * asked.sides * 4 * np.abs(asked.exact)
    return relative * np.abs(asked.again(q, k, np.abs(v), *rest))


def _parts(asked: Asked) -> Array:
    """As of attention; a maximum is an integer, which is found exactly but for scores within their error of one."""
    relative = _weight(asked)
    if relative is None or asked.place == 1:
        return np.zeros(asked.exact.shape)
    q, k, v, *rest = asked.arrays
    return (relative if asked.place == 0 else relative[..., 0]) * np.abs(asked.again(q, k, np.abs(v), *rest))


def _join(asked: Asked) -> Array:
    """Factors are exp2; then chains over the parts, of accumulators and of sums, and a quotient."""
    acc, top, total = (array.astype(np.float64) for array in asked.arrays[:3])
    count = acc.shape[2]
    if not count:
        return np.zeros(asked.exact.shape)
    most = _finite_max(np.abs(top), (2,))[..., np.newaxis]
    share = 2 * asked.eps * asked.sides * (2 * count * (most + EXP + 2) + 4)
    return share * np.abs(asked.again(np.abs(acc), top, total, *asked.arrays[3:]))


def _score(asked: Asked) -> Array | None:
    """How far the scores of a row may be off; None where there are none."""
    q, k, _, *rest = asked.arrays
    size, keys = q.shape[3], k.shape[2]
    if not asked.exact.size or not keys:
        return None
    groups = q.shape[1] // k.shape[1]
    scale = asked.attributes["scale"] or 1.0 / np.sqrt(max(size, 1))
    wide = np.repeat(np.abs(k.astype(np.float64)), groups, axis=1)
    reach = np.abs(q.astype(np.float64)) @ np.swapaxes(wide, 2, 3) * abs(scale)
    score = asked.eps * asked.sides * (size + 4) * reach.max(3, keepdims=True)
    if rest and rest[0].dtype.kind == "f":
        score = score + asked.eps * float(_finite_max(rest[0].astype(np.float64), (0, 1)).max())
    return score


class _Scores:
    """Scores of attention, in f64 and a head of keys for each of queries: shares of rows, and their relative errors."""

    @staticmethod
    def of(asked: Asked, masks: Sequence[Array], lse: Array | None) -> _Scores:
        """Those of a call, which are the same for all its results."""
        name = f"scores in {asked.compute}"
        if name not in asked.shared:
            asked.shared[name] = _Scores(asked, masks, lse)
        return asked.shared[name]

    def __init__(self, asked: Asked, masks: Sequence[Array], lse: Array | None) -> None:
        self.asked, (q, k, v) = asked, (one.astype(np.float64) for one in asked.arrays[:3])
        self.group = q.shape[1] // max(k.shape[1], 1)
        self.q, self.k, self.v = np.abs(q), *(np.abs(np.repeat(one, self.group, axis=1)) for one in (k, v))
        self.scale = abs(asked.attributes["scale"] or 1.0 / np.sqrt(max(q.shape[3], 1)))
        sign = np.sign(asked.attributes["scale"] or 1.0)
        raw: Array = sign * self.scale * q @ np.swapaxes(np.repeat(k, self.group, axis=1), 2, 3)
        scores, added = self._change(raw, masks)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(top == -np.inf, 0.0, top)
        total = np.exp(scores - top).sum(-1, keepdims=True)
        base = (
            top + np.log(np.where(total == 0, 1.0, total)) if lse is None else lse.astype(np.float64)[..., np.newaxis]
        )
        self.shares = np.exp(scores - base)
        reach = self.scale * (self.q @ np.swapaxes(self.k, 2, 3)) * (q.shape[3] + 8)
        finite = np.where(np.isfinite(added), np.abs(added), 0.0) + np.abs(base)
        keys = 0 if lse is not None else k.shape[2]
        if lse is None:
            reach = reach + reach.max(-1, keepdims=True, initial=0.0)
        self.relative = asked.eps * asked.sides * (reach + 4 * finite + keys + 2 * EXP + 16)

    def _change(self, raw: Array, masks: Sequence[Array]) -> tuple[Array, Array]:
        """Scores with what is added to them, or as functions make them: those of samples have slopes of at most 1."""
        given = self.asked.attributes
        if "score" in given:
            scores = apply_to_arrays(raw, given["score"], given["mask"], masks)
            return scores, 8 * (np.abs(np.where(np.isfinite(scores), scores, 0.0)) + np.abs(raw))
        added = causal_mask(raw.shape[2], raw.shape[3]) if given.get("causal") else np.zeros(())
        for mask in masks:
            added = added + mask.astype(np.float64)
        return raw + added, added

    def join(self, x: Array) -> Array:
        """The sum over heads that share one."""
        return x.reshape(x.shape[0], -1, self.group, *x.shape[2:]).sum(2)


def _attention_backward_keys(asked: Asked) -> Array:
    """The same without the last chain, for the gradients of scores."""
    if asked.place or not asked.exact.size:
        return _attention_backward(asked)
    cotangent, _, delta = (np.abs(one.astype(np.float64)) for one in asked.arrays[3:6])
    with np.errstate(all="ignore"):
        of = _Scores(asked, (), asked.arrays[4])
        reach = cotangent @ np.swapaxes(of.v, 2, 3) + delta[..., np.newaxis]
        relative = of.relative + asked.eps * asked.sides * (of.v.shape[3] + 8)
        return np.swapaxes(of.shares * reach * relative, 2, 3)


def _attention_backward(asked: Asked) -> Array:
    """An error of a score is a relative one of its share; then chains over a head, over rows and over heads."""
    cotangent, _, delta = (np.abs(one.astype(np.float64)) for one in asked.arrays[3:6])
    if not asked.exact.size:
        return np.zeros(asked.exact.shape)
    with np.errstate(all="ignore"):
        of = _Scores.of(asked, asked.arrays[6:], asked.arrays[4])
        length = of.k.shape[2] if asked.place == 0 else of.q.shape[2] * of.group
        relative = of.relative + asked.eps * asked.sides * (length + 8)
        if asked.place == 2:
            return of.join(np.swapaxes(of.shares * relative, 2, 3) @ cotangent)
        reach = cotangent @ np.swapaxes(of.v, 2, 3) + delta[..., np.newaxis]
        change = of.scale * of.shares * reach * (relative + asked.eps * asked.sides * of.v.shape[3])
        return change @ of.k if asked.place == 0 else of.join(np.swapaxes(change, 2, 3) @ of.q)


def _attention_tangent(asked: Asked) -> Array:
    """As of attention, with changes of scores beside shares."""
    by = asked.attributes["by"]
    first = len(asked.arrays) - len(by)
    given = {at: np.abs(one.astype(np.float64)) for at, one in zip(by, asked.arrays[first:], strict=True)}
    if not asked.exact.size:
        return np.zeros(asked.exact.shape)
    with np.errstate(all="ignore"):
        of = _Scores.of(asked, asked.arrays[5:first], None)
        reach = np.zeros(of.shares.shape)
        if 0 in given:
            reach = reach + of.scale * given[0] @ np.swapaxes(of.k, 2, 3)
        if 1 in given:
            reach = reach + of.scale * of.q @ np.swapaxes(np.repeat(given[1], of.group, axis=1), 2, 3)
        reach = reach + given.get(3, np.zeros(()))
        steps_of = asked.eps * asked.sides * (of.q.shape[3] + of.k.shape[2] + 16)
        error = 2 * of.relative + steps_of
        weighted = of.shares * error * reach
        mean = weighted.sum(-1, keepdims=True)
        if asked.place == 1:
            return mean[..., 0]
        made = (weighted + of.shares * mean + of.shares * error * (of.shares * reach).sum(-1, keepdims=True)) @ of.v
        return made + (of.shares * error) @ np.repeat(given[2], of.group, axis=1) if 2 in given else made


def _scored(bound: Bound) -> Bound:
    """The same with a function, whose slope has the error of its score once more."""
    return lambda asked: 2 * bound(asked)


def _cross_entropy(asked: Asked) -> Array:
    logits = asked.arrays[0].astype(np.float64)
    length = logits.shape[-1]
    top = _finite_max(logits, (logits.ndim - 1,))[..., 0]
    each = asked.eps * asked.sides * (4 * top + steps(length) + EXP + LOG * np.log(length + 1) + 4)
    reduction = asked.attributes["reduction"]
    if reduction == "none":
        return each
    labels = asked.arrays[1]
    counted = max(int(((labels >= 0) & (labels < length)).sum()), 1) if reduction == "mean" else 1
    rows = int(np.prod(logits.shape[:-1], dtype=np.int64))
    return np.sum(each) / counted + asked.eps * asked.sides * (steps(rows) + 1) * np.abs(asked.exact)


def _product(inner: Callable[[Asked], int]) -> Bound:
    """A chain of `inner` products: an ulp of the sum of magnitudes for each link."""

    def bound(asked: Asked) -> Array:
        if asked.exact.dtype.kind != "f" or any(array.dtype.kind != "f" for array in asked.arrays[:2]):
            return np.zeros(asked.exact.shape)
        # Floats are multiplied; integers behind them say which rows are.
        magnitude = asked.again(*(np.abs(array) if array.dtype.kind == "f" else array for array in asked.arrays))
        return asked.eps * asked.sides * (inner(asked) + 1) * magnitude

    return bound


def _is_chain(asked: Asked) -> bool:
    """Whether the reference follows the recipe of contractions, to the last bit: where f64 is wider than the sum.

    Tensor cores add in an order of their own.
    """
    return asked.compute == np.float32 and not asked.on_tensor_cores


def _chain(inner: Callable[[Asked], int]) -> Bound:
    other = _product(inner)
    return lambda asked: np.zeros(asked.exact.shape) if _is_chain(asked) else other(asked)


def _windows_summed(asked: Asked) -> int:
    """K of a contraction over windows: elements of weights, or positions of images."""
    form = asked.attributes["positions"]
    other = asked.arrays[1 if form == "rows" else 0].shape
    return math.prod(other[:-1] if form == "k" else other[1:])


def _terms(asked: Asked) -> int:
    """The terms that meet in one element of an einsum, at most: those of all operands together."""
    sizes: dict[str, int] = {}
    ranks = tuple(array.ndim for array in asked.arrays)
    for labels, array in zip(parse_equation(asked.attributes["equation"], ranks).operands, asked.arrays, strict=True):
        for label, size in zip(labels, array.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 0))
    return int(np.prod(list(sizes.values()), dtype=np.int64))


def _normal(asked: Asked) -> Array:
    """Box and Muller: a share off by two roundings moves the logarithm by as much, and the root where it is near 0."""
    first, _ = split_words(random_bits(asked.arrays[0], asked.exact.shape))
    radius = np.sqrt(-2.0 * np.log((first.astype(np.float64) + 0.5) * 2.0**-32))
    moved = asked.eps * (2 + LOG * radius**2)
    of_radius = np.minimum(np.sqrt(2 * moved), moved / np.maximum(radius, 1e-300)) + 2 * asked.eps * radius
    # the angle is below 2 pi and rounds twice; cos adds its ulps
    of_turn = asked.eps * (2 * 2 * np.pi + ULP_BOUNDS["cos"][1])
    std, mean = abs(asked.attributes["std"]), abs(asked.attributes["mean"])
    return asked.sides * (std * (of_radius + radius * of_turn) + 2 * asked.eps * (mean + std * radius))


BOUNDS: dict[str, Bound] = {
    **{name: _function(name) for name in (*APPROXIMATE_OPS, "gelu")},
    "softmax": _softmax,
    "softmax_safe": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "logsumexp_safe": _logsumexp,
    "norm": _norm,
    "layernorm_safe": _normalised,
    "rmsnorm_safe": _normalised,
    "attention": _attention,
    **dict.fromkeys(("cached_attention", "attention_with_lse"), _attention),
    "attention_parts": _parts,
    "attention_join": _join,
    "attention_tangent": _attention_tangent,
    "attention_backward": _attention_backward,
    "attention_backward_keys": _attention_backward_keys,
    **dict.fromkeys(("scored_attention", "scored_attention_with_lse"), _attention),
    "scored_attention_tangent": _scored(_attention_tangent),
    "scored_attention_backward": _scored(_attention_backward),
    "cross_entropy": _cross_entropy,
    "matmul": _chain(lambda asked: asked.arrays[0].shape[-1]),
    **dict.fromkeys(("ragged_dot", "ragged_blocks"), _chain(lambda asked: asked.arrays[0].shape[-1])),
    "ragged_outer": _chain(lambda asked: asked.arrays[0].shape[0]),
    "dot_general": _chain(lambda asked: asked.arrays[0].size),
    "conv1d": _chain(lambda asked: math.prod(asked.arrays[1].shape[1:])),
    "conv2d": _chain(lambda asked: math.prod(asked.arrays[1].shape[1:])),
    "conv3d": _chain(lambda asked: math.prod(asked.arrays[1].shape[1:])),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _chain(lambda asked: asked.arrays[1].shape[0] * math.prod(asked.arrays[1].shape[2:])),
    ),
    "conv_windows": _chain(lambda asked: math.prod(asked.arrays[0].shape[1:])),
    "conv_weights": _chain(lambda asked: asked.arrays[0].size),
    "dot_windows": _chain(_windows_summed),
    "einsum": _product(_terms),
    "normal": _normal,
}  # fmt: skip
"""Ops whose compiled results may differ from their reference; all others must be equal to the last bit."""


def assert_close(
    spec: OpSpec,
    arrays: Sequence[Array],
    attributes: Attributes,
    given: Sequence[Array],
    where: str,
    *,
    on_tensor_cores: bool = False,
) -> None:
    """Raises unless each result is within its bound, or equal where the op is exact."""
    with np.errstate(all="ignore"):
        outcome = _reference(spec)(*arrays, **attributes)
    expected, shared = results(outcome), dict[str, Any]()
    assert len(given) == len(expected), f"{where}: {len(given)} results, not {len(expected)}"
    for place, (ours, theirs) in enumerate(zip(given, expected, strict=True)):
        assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, not {theirs.shape}"
        assert ours.dtype == theirs.dtype, f"{where}: {ours.dtype}, not {theirs.dtype}"
        bound = BOUNDS.get(spec.short_name)
        if bound is None or not dtype_of(theirs).is_float:
            _assert_between(ours, theirs, theirs, where)
            continue
        asked_by = partial(Asked, place=place, on_tensor_cores=on_tensor_cores, shared=shared)
        low, high = _interval(spec, arrays, attributes, bound, dtype_of(theirs), asked_by)
        _assert_between(ours, low, high, where)


def _interval(
    spec: OpSpec,
    arrays: Sequence[Array],
    attributes: Attributes,
    bound: Bound,
    dtype: DType,
    asked_by: partial[Asked],
) -> tuple[Array, Array]:
    """The least and the largest result allowed: the exact one in the dtype of computation, moved, and then rounded."""
    wide = [array.astype(numpy_dtype(_compute_of(array))) for array in arrays]
    asked_for = {**attributes, "dtype": dtype.compute} if attributes.get("dtype") is not None else attributes
    place: int = asked_by.keywords["place"]
    shared: dict[str, Any] = asked_by.keywords["shared"]
    by = f"exact in {asked_for.get('dtype')}"
    with np.errstate(all="ignore"):
        if by not in shared:
            shared[by] = results(_reference(spec)(*wide, **asked_for))
        asked = asked_by(spec, wide, asked_for, shared[by][place])
        moved = bound(asked)
        moved = np.where(np.isfinite(asked.exact) & np.isfinite(moved), moved, 0.0)
        ends = [asked.exact + side * moved for side in (-1.0, 1.0)]
        low, high = (round_as(round_as(end, dtype.compute), dtype) for end in ends)
    return low, high


def _compute_of(array: Array) -> DType:
    own = dtype_of(array)
    return own.compute if own.is_float else own


def _assert_between(ours: Array, low: Array, high: Array, where: str) -> None:
    if ours.dtype.kind in "iub":
        wrong = ours != low
    else:
        a, b, x = (array.astype(np.float64) for array in (low, high, ours))
        with np.errstate(all="ignore"):
            inside = (x >= a) & (x <= b)
            # an interval that reaches over the largest number of a format without infinities ends in NaN
            inside |= np.isnan(x) & (np.isnan(a) | np.isnan(b))
            inside |= ~np.isnan(x) & (np.isnan(a) ^ np.isnan(b))
        wrong = ~inside
    if wrong.any():
        at = tuple(int(index) for index in np.unravel_index(int(wrong.argmax()), wrong.shape))
        raise AssertionError(
            f"{where}: {int(wrong.sum())} of {ours.size} are wrong, the first at {at}: "
            f"{ours[at]!r}, allowed {low[at]!r} to {high[at]!r}"
        )
