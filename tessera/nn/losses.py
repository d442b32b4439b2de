"""Losses: scalars of predictions and targets, each computed in f32 or wider, and reduced by its mean unless told."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_number, explain_wrong_calls
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import rank_of
from tessera.nn.embedding_losses import (
    cosine_embedding_loss,
    cosine_similarity,
    hinge_embedding_loss,
    margin_ranking_loss,
    match_shapes,
    multi_margin_loss,
    reduce_loss,
    soft_margin_loss,
    triplet_margin_loss,
    widen,
)
from tessera.nn.likelihood_losses import (
    count_labels,
    ctc_loss,
    gaussian_nll_loss,
    nll_loss,
    poisson_nll_loss,
    reduce_labels,
    weigh_labels,
)


@explain_wrong_calls
def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    """Minus the log-probability of integer labels [...] under the softmax of `logits` [..., classes].

    Negative labels do not count, nor in the mean, and neither does `ignore_index`. A label beyond the classes is an
    error (T0710) where the values of labels are known: eagerly, in host memory. Inside `jit` and on a GPU it does not
    count. `weight` is a number for each class; the mean is then over the weights of labels. With `label_smoothing`,
    that share of each label is given to all classes alike.

    >>> ts.nn.cross_entropy(ts.array([[0.0, 0.0]]), ts.array([1]))
    Tensor([] f32, 0.693147)
    """
    rate = check_number("cross_entropy", "label_smoothing", label_smoothing)
    logits = widen(logits)
    if not rate and weight is None and ignore_index is None:
        return ops.cross_entropy(logits, labels, reduction=reduction)
    counts, index = count_labels("cross_entropy", logits, labels, ignore_index)
    own = ops.cross_entropy(logits, index, reduction="none")
    weights = weigh_labels("cross_entropy", logits, index, weight)
    if not rate:
        return reduce_labels("cross_entropy", own, counts, weights, reduction)
    each = ops.expand_dims(ops.logsumexp(logits, axis=-1), -1) - logits
    if weights is None:
        return reduce_labels("cross_entropy", own * (1.0 - rate) + each.mean(axis=-1) * rate, counts, None, reduction)
    smooth = (each * ops.cast_like(weight, logits)).mean(axis=-1)
    values = ops.where(counts, own * weights * (1.0 - rate) + smooth * rate, 0.0)
    if reduction != "mean":
        return reduce_loss("cross_entropy", values, reduction)
    return values.sum() / ops.where(counts, weights, 0.0).sum()


@explain_wrong_calls
def mse_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The square of the difference.

    >>> ts.nn.mse_loss(ts.array([1.0, 2.0]), ts.array([1.0, 4.0]))
    Tensor([] f32, 2)
    """
    prediction, target = match_shapes("mse_loss", prediction, target)
    return reduce_loss("mse_loss", ops.square(prediction - target), reduction)


@explain_wrong_calls
def l1_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The absolute difference.

    >>> ts.nn.l1_loss(ts.array([1.0, 2.0]), ts.array([1.0, 4.0]))
    Tensor([] f32, 1)
    """
    prediction, target = match_shapes("l1_loss", prediction, target)
    return reduce_loss("l1_loss", ops.abs(prediction - target), reduction)


@explain_wrong_calls
def huber_loss(prediction: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Half the square of the difference up to `delta`, and beyond that linear in it.

    >>> ts.nn.huber_loss(ts.array([0.0, 0.0]), ts.array([1.0, 3.0]))
    Tensor([] f32, 1.5)
    """
    width = check_number("huber_loss", "delta", delta)
    if not width > 0:
        raise ArgumentError(f"`huber_loss` takes `delta` above 0, got {delta}", fix="write `delta=1.0`")
    prediction, target = match_shapes("huber_loss", prediction, target)
    distance = ops.abs(prediction - target)
    values = ops.where(distance <= width, ops.square(distance) * 0.5, (distance - 0.5 * width) * width)
    return reduce_loss("huber_loss", values, reduction)


@explain_wrong_calls
def smooth_l1_loss(prediction: Any, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Any:
    """Half the square of the difference over `beta` up to it, and beyond that the difference less half of `beta`.

    >>> ts.nn.losses.smooth_l1_loss(ts.array([0.0, 0.0]), ts.array([1.0, 3.0]))
    Tensor([] f32, 1.5)
    """
    width = check_number("smooth_l1_loss", "beta", beta)
    if not width >= 0:
        raise ArgumentError(f"`smooth_l1_loss` takes `beta` of at least 0, got {beta}", fix="write `beta=1.0`")
    prediction, target = match_shapes("smooth_l1_loss", prediction, target)
    distance = ops.abs(prediction - target)
    if not width:
        return reduce_loss("smooth_l1_loss", distance, reduction)
    values = ops.where(distance < width, ops.square(distance) * (0.5 / width), distance - 0.5 * width)
    return reduce_loss("smooth_l1_loss", values, reduction)


@explain_wrong_calls
def binary_cross_entropy_with_logits(
    logits: Any, target: Any, *, weight: Any = None, pos_weight: Any = None, reduction: str = "mean"
) -> Any:
    """Minus the log-probability of targets between 0 and 1 under the sigmoid of `logits`, without overflow.

    `weight` scales the loss of each element, and `pos_weight` that of its share with a target of 1; both broadcast.

    >>> x, y = ts.array([0.0, 100.0]), ts.array([1.0, 1.0])
    >>> ts.nn.losses.binary_cross_entropy_with_logits(x, y, pos_weight=2.0, reduction="sum")
    Tensor([] f32, 1.38629)
    """
    logits, target = match_shapes("binary_cross_entropy_with_logits", logits, target)
    # Not `softplus(logits) - logits * target`, whose difference has no digits where a sure prediction is right.
    hits = ops.softplus(-logits) * target
    hits = hits if pos_weight is None else ops.mul(hits, pos_weight)
    values = ops.softplus(logits) * (1.0 - target) + hits
    values = values if weight is None else ops.mul(values, weight)
    return reduce_loss("binary_cross_entropy_with_logits", values, reduction)


@explain_wrong_calls
def binary_cross_entropy(logits: Any, target: Any, *, reduction: str = "mean") -> Any:
    """Minus the log-probability of targets between 0 and 1 under the sigmoid of `logits`, without overflow.

    It takes logits, not probabilities: `ts.ops.logit(p)` makes those of probabilities.

    >>> ts.nn.binary_cross_entropy(ts.array([0.0, 100.0]), ts.array([1.0, 1.0]), reduction="sum")
    Tensor([] f32, 0.693147)
    """
    logits, target = match_shapes("binary_cross_entropy", logits, target)
    return binary_cross_entropy_with_logits(logits, target, reduction=reduction)


@explain_wrong_calls
def focal_loss(
    logits: Any, target: Any, *, alpha: float | None = 0.25, gamma: float = 2.0, reduction: str = "mean"
) -> Any:
    """`binary_cross_entropy` times the probability of being wrong to the power `gamma` (Lin and others, 2017).

    A target of 1 is weighed with `alpha` and one of 0 with `1 - alpha`; None weighs both alike.

    >>> ts.nn.losses.focal_loss(ts.array([0.0]), ts.array([1.0]), alpha=None)
    Tensor([] f32, 0.173287)
    """
    power = check_number("focal_loss", "gamma", gamma)
    logits, target = match_shapes("focal_loss", logits, target)
    wrong = ops.sigmoid(-logits) * target + ops.sigmoid(logits) * (1.0 - target)
    values = binary_cross_entropy_with_logits(logits, target, reduction="none") * ops.pow(wrong, power)
    if alpha is not None:
        share = check_number("focal_loss", "alpha", alpha)
        values = values * (target * share + (1.0 - target) * (1.0 - share))
    return reduce_loss("focal_loss", values, reduction)


@explain_wrong_calls
def kl_divergence(log_prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """`sum(target * (log(target) - log_prediction))` over the last axis, for probabilities `target`.

    >>> ts.nn.kl_divergence(ts.ops.log(ts.array([[0.5, 0.5]])), ts.array([[1.0, 0.0]]))
    Tensor([] f32, 0.693147)
    """
    log_prediction, target = match_shapes("kl_divergence", log_prediction, target)
    if not rank_of(target):
        raise ShapeError("`kl_divergence` takes probabilities [..., classes], got a scalar")
    is_zero = target <= 0.0
    logarithm = ops.log(ops.where(is_zero, 1.0, target))
    values = ops.where(is_zero, 0.0, target * (logarithm - log_prediction)).sum(axis=-1)
    return reduce_loss("kl_divergence", values, reduction)


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "focal_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_divergence",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
]
