"""Losses: scalars of predictions and targets, each computed in f32 or wider, and reduced by its mean unless told."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import dtype_of, rank_of
from tessera.types.dtype import f32

_REDUCTIONS = ("mean", "sum", "none")


def _reduce(name: str, values: Any, reduction: str) -> Any:
    if reduction not in _REDUCTIONS:
        raise ArgumentError(
            f"`{name}` has no reduction {reduction!r}", fix=f"write one of {', '.join(map(repr, _REDUCTIONS))}"
        )
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def _widen(x: Any) -> Any:
    dtype = dtype_of(x)
    return x if dtype.is_float and dtype.bits >= 32 else ops.astype(x, f32)


def _pair(name: str, prediction: Any, target: Any) -> tuple[Any, Any]:
    """Both in a dtype that losses are computed in; they have one shape, since broadcasting here is a mistake."""
    left, right = tuple(prediction.shape), tuple(target.shape)
    is_known = all(isinstance(size, int) for size in (*left, *right))
    if len(left) != len(right) or (is_known and left != right):
        raise ShapeError(
            f"`{name}` takes a prediction and a target of one shape, got {list(left)} and {list(right)}",
            fix="reshape one of them: broadcasting would compare each with each",
        )
    return _widen(prediction), _widen(target)


def cross_entropy(logits: Any, labels: Any, *, label_smoothing: float = 0.0, reduction: str = "mean") -> Any:
    """Minus the log-probability of integer labels [...] under the softmax of `logits` [..., classes].

    Negative labels do not count, nor in the mean. With `label_smoothing`, that share of each label is given to all
    classes alike.

    >>> ts.nn.cross_entropy(ts.array([[0.0, 0.0]]), ts.array([1]))
    Tensor([] f32, 0.693147)
    """
    rate = check_number("cross_entropy", "label_smoothing", label_smoothing)
    logits = _widen(logits)
    if not rate:
        return ops.cross_entropy(logits, labels, reduction=reduction)
    own = ops.cross_entropy(logits, labels, reduction="none")
    spread = ops.logsumexp(logits, axis=-1) - logits.mean(axis=-1)
    counts = labels >= 0
    values = ops.where(counts, own * (1.0 - rate) + spread * rate, 0.0)
    if reduction != "mean":
        return _reduce("cross_entropy", values, reduction)
    return values.sum() / ops.maximum(ops.cast_like(counts, values).sum(), 1.0)


def mse_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The square of the difference.

    >>> ts.nn.mse_loss(ts.array([1.0, 2.0]), ts.array([1.0, 4.0]))
    Tensor([] f32, 2)
    """
    prediction, target = _pair("mse_loss", prediction, target)
    return _reduce("mse_loss", ops.square(prediction - target), reduction)


def l1_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The absolute difference.

    >>> ts.nn.l1_loss(ts.array([1.0, 2.0]), ts.array([1.0, 4.0]))
    Tensor([] f32, 1)
    """
    prediction, target = _pair("l1_loss", prediction, target)
    return _reduce("l1_loss", ops.abs(prediction - target), reduction)


def huber_loss(prediction: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Half the square of the difference up to `delta`, and beyond that linear in it.

    >>> ts.nn.huber_loss(ts.array([0.0, 0.0]), ts.array([1.0, 3.0]))
    Tensor([] f32, 1.5)
    """
    width = check_number("huber_loss", "delta", delta)
    if not width > 0:
        raise ArgumentError(f"`huber_loss` takes `delta` above 0, got {delta}", fix="write `delta=1.0`")
    prediction, target = _pair("huber_loss", prediction, target)
    distance = ops.abs(prediction - target)
    values = ops.where(distance <= width, ops.square(distance) * 0.5, (distance - 0.5 * width) * width)
    return _reduce("huber_loss", values, reduction)


def binary_cross_entropy(logits: Any, target: Any, *, reduction: str = "mean") -> Any:
    """Minus the log-probability of targets between 0 and 1 under the sigmoid of `logits`, without overflow.

    >>> ts.nn.binary_cross_entropy(ts.array([0.0, 100.0]), ts.array([1.0, 1.0]), reduction="sum")
    Tensor([] f32, 0.693147)
    """
    logits, target = _pair("binary_cross_entropy", logits, target)
    # Not `softplus(logits) - logits * target`, whose difference has no digits where a sure prediction is right.
    values = ops.softplus(logits) * (1.0 - target) + ops.softplus(-logits) * target
    return _reduce("binary_cross_entropy", values, reduction)


def kl_divergence(log_prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """`sum(target * (log(target) - log_prediction))` over the last axis, for probabilities `target`.

    >>> ts.nn.kl_divergence(ts.ops.log(ts.array([[0.5, 0.5]])), ts.array([[1.0, 0.0]]))
    Tensor([] f32, 0.693147)
    """
    log_prediction, target = _pair("kl_divergence", log_prediction, target)
    if not rank_of(target):
        raise ShapeError("`kl_divergence` takes probabilities [..., classes], got a scalar")
    is_zero = target <= 0.0
    logarithm = ops.log(ops.where(is_zero, 1.0, target))
    values = ops.where(is_zero, 0.0, target * (logarithm - log_prediction)).sum(axis=-1)
    return _reduce("kl_divergence", values, reduction)
