"""Losses that are minus the logarithm of a likelihood: of labels, counts, normal variables, and unaligned sequences."""

from __future__ import annotations

import math
from typing import Any

from tessera.api.autodiff import stop_gradient
from tessera.api.control import scan
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_labels, check_number, explain_wrong_calls
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import cast, dtype_of, rank_of, shape_dims
from tessera.frontend.size import size_of
from tessera.nn.embedding_losses import check_reduction, match_shapes, reduce_loss, widen
from tessera.types.dtype import i64

_NONE = -math.inf
"""The logarithm of the probability of what cannot be."""


@explain_wrong_calls
def nll_loss(
    log_probabilities: Any, labels: Any, *, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
) -> Any:
    """Minus the log-probability of integer labels [...], which `log_probabilities` [..., classes] gives.

    Negative labels do not count, nor does `ignore_index`; labels beyond the classes are treated as `cross_entropy`
    does. `weight` is a number for each class; the mean is then over the weights of labels.

    >>> ts.nn.losses.nll_loss(ts.ops.log(ts.array([[0.5, 0.5]])), ts.array([1]))
    Tensor([] f32, 0.693147)
    """
    wide = widen(log_probabilities)
    counts, index = count_labels("nll_loss", wide, labels, ignore_index)
    values = ops.neg(ops.squeeze(ops.take_along_axis(wide, ops.expand_dims(index, -1), -1), -1))
    return reduce_labels("nll_loss", values, counts, weigh_labels("nll_loss", wide, index, weight), reduction)


def count_labels(name: str, scores: Any, labels: Any, ignore_index: int | None) -> tuple[Any, Any]:
    """Which labels count, and labels with 0 in place of those that do not; `scores` are [..., classes]."""
    if not dtype_of(labels).is_integer:
        raise ArgumentError(
            f"`{name}` takes labels as integers, got {dtype_of(labels)}", fix="write `labels.cast(i64)`"
        )
    ignored = None if ignore_index is None else check_int(name, "ignore_index", ignore_index)
    check_labels(name, scores, labels, ignored)
    index = cast(labels, i64)
    counts = ops.logical_and(ops.ge(index, 0), ops.lt(index, scores.shape[-1]))
    if ignored is not None:
        counts = ops.logical_and(counts, ops.ne(index, ignored))
    return counts, ops.where(counts, index, 0)


def weigh_labels(name: str, wide: Any, index: Any, weight: Any) -> Any:
    """The weight of the class of each label; None where none are given."""
    if weight is None:
        return None
    if rank_of(weight) != 1:
        raise ShapeError(f"`{name}` takes `weight` as one number for each class, got {list(weight.shape)}")
    return ops.take(ops.cast_like(weight, wide), index)


def reduce_labels(name: str, values: Any, counts: Any, weights: Any, reduction: str) -> Any:
    """The losses of labels reduced; the mean is over those that count, by their weights."""
    shares = ops.cast_like(counts, values) if weights is None else ops.where(counts, weights, 0.0)
    values = ops.where(counts, values if weights is None else ops.mul(values, weights), 0.0)
    if check_reduction(name, reduction) != "mean":
        return reduce_loss(name, values, reduction)
    total = shares.sum()
    return ops.div(values.sum(), ops.where(ops.eq(total, 0.0), 1.0, total) if weights is None else total)


@explain_wrong_calls
def poisson_nll_loss(
    prediction: Any,
    target: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Any:
    """Minus the log-probability of counts of the Poisson distribution, whose mean is `exp(prediction)`.

    Without `log_input` the prediction is the mean itself, of which `log(prediction + eps)` is taken. `log(target!)`,
    which no prediction changes, is left out; with `full` it is there by Stirling's formula for targets above 1.

    >>> ts.nn.losses.poisson_nll_loss(ts.array([0.0]), ts.array([2.0]))
    Tensor([] f32, 1)
    """
    name = "poisson_nll_loss"
    small = check_number(name, "eps", eps)
    is_log, is_full = check_bool(name, "log_input", log_input), check_bool(name, "full", full)
    prediction, target = match_shapes(name, prediction, target)
    if is_log:
        values = ops.sub(ops.exp(prediction), ops.mul(target, prediction))
    else:
        values = ops.sub(prediction, ops.mul(target, ops.log(ops.add(prediction, small))))
    if is_full:
        many = ops.gt(target, 1.0)
        safe = ops.where(many, target, 2.0)
        stirling = ops.add(ops.sub(ops.mul(safe, ops.log(safe)), safe), ops.mul(ops.log(safe * (2 * math.pi)), 0.5))
        values = ops.add(values, ops.where(many, stirling, 0.0))
    return reduce_loss(name, values, reduction)


@explain_wrong_calls
def gaussian_nll_loss(
    prediction: Any, target: Any, var: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """Minus the log-density of targets of normal distributions with these means and variances.

    `var` broadcasts to the prediction; below `eps` it counts as `eps`, and keeps its derivative. `full` adds the
    constant `log(2 pi) / 2`.

    >>> ts.nn.losses.gaussian_nll_loss(ts.array([0.0]), ts.array([2.0]), ts.array([1.0]))
    Tensor([] f32, 2)
    """
    small = check_number("gaussian_nll_loss", "eps", eps)
    is_full = check_bool("gaussian_nll_loss", "full", full)
    prediction, target = match_shapes("gaussian_nll_loss", prediction, target)
    spread = ops.cast_like(var, prediction)
    spread = ops.add(spread, stop_gradient(ops.sub(ops.maximum(spread, small), spread)))
    values = ops.mul(ops.add(ops.log(spread), ops.div(ops.square(ops.sub(prediction, target)), spread)), 0.5)
    values = ops.add(values, 0.5 * math.log(2 * math.pi)) if is_full else values
    return reduce_loss("gaussian_nll_loss", values, reduction)


# Connectionist temporal classification.


@explain_wrong_calls
def ctc_loss(
    log_probabilities: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Minus the log-probability of label sequences under all their alignments with frames (Graves and others, 2006).

    `log_probabilities` are [frames, batch, classes], as `log_softmax` gives them, `targets` integers [batch, labels]
    without `blank`, and the lengths [batch] say how many frames and labels of each count. A sequence that does not fit
    its frames, where each repeated label needs a blank before it, has the loss inf and no gradient; `zero_infinity`
    makes it 0. The mean is that of losses over their numbers of labels.

    The forward recursion over frames is one `scan` in logarithms, in f32 or wider, and is what is differentiated:
    memory is that of frames times labels. Sizes may be symbolic.

    >>> x = ts.ops.log(ts.ones((2, 1, 2)) / 2.0)
    >>> ts.nn.losses.ctc_loss(x, ts.array([[1]]), ts.array([2]), ts.array([1]))
    Tensor([] f32, 0.287682)
    """
    lost = check_bool("ctc_loss", "zero_infinity", zero_infinity)
    check_reduction("ctc_loss", reduction)
    wide, labels = widen(log_probabilities), cast(targets, i64)
    _check_sequences(wide, targets, input_lengths, target_lengths, blank)
    frames, counts = cast(input_lengths, i64), cast(target_lengths, i64)
    values = ops.neg(_align(wide, _with_blanks(labels, blank), frames, counts))
    values = ops.where(ops.isinf(values), 0.0, values) if lost else values
    if reduction != "mean":
        return reduce_loss("ctc_loss", values, reduction)
    return ops.mean(ops.div(values, ops.cast_like(ops.maximum(counts, 1), values)))


def _check_sequences(wide: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> None:
    ranks = [rank_of(one) for one in (wide, targets, input_lengths, target_lengths)]
    if ranks != [3, 2, 1, 1]:
        raise ShapeError(
            "`ctc_loss` takes log-probabilities [frames, batch, classes], targets [batch, labels] and lengths [batch],"
            f" got tensors of {ranks} dims",
            fix="pad targets to one length, and add an axis of 1 for one sequence",
        )
    for name, one in (("targets", targets), ("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if not dtype_of(one).is_integer:
            raise ArgumentError(f"`ctc_loss` takes `{name}` as integers, got {dtype_of(one)}")
    classes, number = shape_dims(wide)[2].value, check_int("ctc_loss", "blank", blank)
    if number < 0 or (classes is not None and number >= classes):
        raise ArgumentError(f"`ctc_loss` takes `blank` as one of {classes} classes, got {number}")


def _with_blanks(labels: Any, blank: int) -> Any:
    """Labels [batch, labels] with a blank before, between and after them."""
    pairs = ops.reshape(ops.stack([ops.full_like(labels, blank), labels], 2), (labels.shape[0], labels.shape[1] * 2))
    return ops.concat([pairs, ops.full((labels.shape[0], 1), blank, i64)], 1)


def _align(wide: Any, states: Any, frames: Any, counts: Any) -> Any:
    """The log-probability of all alignments of each sequence: a scan over frames of those that end in each state."""
    total, batch, _ = wide.shape
    width = states.shape[1]
    at = ops.iota((1, width), 1)
    # A label may follow another one without a blank between them, unless both are the same.
    before = ops.pad(states, [(0, 0), (2, 0)], -1)[:, :width]
    may_skip = ops.logical_and(ops.eq(ops.mod(at, 2), 1), ops.ne(states, before))
    legal = ops.clamp(states, 0, size_of(shape_dims(wide)[2]) - 1)
    emitted = ops.take_along_axis(wide, ops.broadcast_to(ops.expand_dims(legal, 0), (total, batch, width)), 2)

    def step(alpha: Any, frame: tuple[Any, Any]) -> tuple[Any, None]:
        row, number = frame
        one, two = (ops.pad(alpha, [(0, 0), (by, 0)], _NONE)[:, :width] for by in (1, 2))
        moved = ops.add(_log_of_sum(alpha, one, ops.where(may_skip, two, _NONE)), row)
        return ops.where(ops.lt(number, ops.expand_dims(frames, 1)), moved, alpha), None

    # Before the first frame an alignment is in the first blank, so that it is there or in the first label after it.
    begin = ops.where(ops.eq(at, 0), 0.0, ops.full((batch, width), _NONE, dtype_of(wide)))
    alpha, _ = scan(step, begin, (emitted, ops.iota((total,))))
    last = ops.expand_dims(ops.mul(counts, 2), 1)
    in_blank, in_label = (
        ops.squeeze(ops.take_along_axis(alpha, one, 1), 1) for one in (last, ops.maximum(ops.sub(last, 1), 0))
    )
    return _log_of_sum(in_blank, ops.where(ops.gt(counts, 0), in_label, _NONE))


def _log_of_sum(*parts: Any) -> Any:
    """The logarithm of a sum of exponentials, of which all may be -inf: then it is too, and has no derivative."""
    largest = parts[0]
    for one in parts[1:]:
        largest = ops.maximum(largest, one)
    has_none = ops.eq(largest, _NONE)
    shift = stop_gradient(ops.where(has_none, 0.0, largest))
    total: Any = None
    for one in parts:
        share = ops.exp(ops.sub(one, shift))
        total = share if total is None else ops.add(total, share)
    return ops.where(has_none, _NONE, ops.add(ops.log(ops.where(has_none, 1.0, total)), shift))
