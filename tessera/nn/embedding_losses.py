"""Losses of embeddings: cosines, margins and triplets of distances; and how the values of any loss are reduced."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_bool, check_int, check_labels, check_number, explain_wrong_calls
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import axis_of, check_tensors, dtype_of, promote_operands, rank_of, shape_dims
from tessera.types.dtype import f32
from tessera.types.promotion import FLOATING

_REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: Any) -> str:
    """A reduction that losses have; raises ArgumentError (T0202) for another."""
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ArgumentError(
            f"`{name}` has no reduction {reduction!r}", fix=f"write one of {', '.join(map(repr, _REDUCTIONS))}"
        )
    return reduction


def reduce_loss(name: str, values: Any, reduction: str) -> Any:
    """The mean or the sum of a loss of many elements, or each of them."""
    if check_reduction(name, reduction) == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def widen(x: Any) -> Any:
    """A tensor in a dtype that losses are computed in."""
    dtype = dtype_of(x)
    return x if dtype.is_float and dtype.bits >= 32 else ops.astype(x, f32)


def match_shapes(name: str, prediction: Any, target: Any) -> tuple[Any, Any]:
    """Both in a dtype that losses are computed in; they have one shape, since broadcasting here is a mistake."""
    check_tensors(prediction, target)
    prediction, target = widen(prediction), widen(target)
    left, right = shape_dims(prediction), shape_dims(target)
    is_other = len(left) != len(right) or any(
        one.value != other.value for one, other in zip(left, right, strict=True) if None not in (one.value, other.value)
    )
    if is_other:
        raise ShapeError(
            f"`{name}` takes a prediction and a target of one shape, got {list(left)} and {list(right)}",
            fix="reshape one of them: broadcasting would compare each with each",
        )
    prediction, target = promote_operands(name, (prediction, target), FLOATING)
    return prediction, target


# Distances.


@explain_wrong_calls
def cosine_similarity(x: Any, y: Any, axis: int = -1, *, eps: float = 1e-8) -> Any:
    """The cosine of the angle between vectors along `axis`; others broadcast, and lengths below `eps` count as `eps`.

    >>> ts.nn.losses.cosine_similarity(ts.array([1.0, 0.0]), ts.array([3.0, 4.0]))
    Tensor([] f32, 0.6)
    """
    least = check_number("cosine_similarity", "eps", eps)
    at = check_int("cosine_similarity", "axis", axis)
    x, y = promote_operands("cosine_similarity", (widen(x), widen(y)), FLOATING)
    at = axis_of("cosine_similarity", at, max(rank_of(x), rank_of(y))) - max(rank_of(x), rank_of(y))
    x, y = (_unit_vectors(one, at, least) for one in ops.broadcast_arrays(x, y))
    return ops.sum(ops.mul(x, y), at)


def _unit_vectors(x: Any, axis: int, eps: float) -> Any:
    """Vectors over their lengths, of which one of 0 has no slope."""
    squares = ops.sum(ops.mul(x, x), axis, keepdims=True)
    is_short = ops.le(squares, eps * eps)
    return ops.div(x, ops.where(is_short, eps, ops.sqrt(ops.where(is_short, 1.0, squares))))


def _distances(x: Any, y: Any, order: float, eps: float) -> Any:
    """Distances of vectors along the last axis, by a norm of differences that are moved away from 0 by `eps`."""
    return ops.norm(ops.add(ops.sub(x, y), eps), -1, order=order)


# Losses.


@explain_wrong_calls
def cosine_embedding_loss(x: Any, y: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """`1 - cos(x, y)` where `target` is 1, and what the cosine is above `margin` where it is -1.

    `x` and `y` are vectors along their last axis, and `target` has a number for each pair.

    >>> x, y = ts.array([[1.0, 0.0], [1.0, 0.0]]), ts.array([[3.0, 4.0], [3.0, 4.0]])
    >>> ts.nn.losses.cosine_embedding_loss(x, y, ts.array([1, -1]), reduction="none")
    Tensor([2] f32, [0.4, 0.6])
    """
    by = check_number("cosine_embedding_loss", "margin", margin)
    cosines = cosine_similarity(x, y)
    cosines, signs = match_shapes("cosine_embedding_loss", cosines, target)
    apart = ops.maximum(ops.sub(cosines, by), 0.0)
    values = ops.where(ops.gt(signs, 0.0), ops.sub(1.0, cosines), apart)
    return reduce_loss("cosine_embedding_loss", values, reduction)


@explain_wrong_calls
def margin_ranking_loss(x: Any, y: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """What `target * (x - y)` is below `margin`: with a target of 1 `x` should rank above `y`, with -1 below.

    >>> ts.nn.losses.margin_ranking_loss(ts.array([1.0, 2.0]), ts.array([3.0, 1.0]), ts.array([1, 1]))
    Tensor([] f32, 1)
    """
    by = check_number("margin_ranking_loss", "margin", margin)
    x, y = match_shapes("margin_ranking_loss", x, y)
    x, signs = match_shapes("margin_ranking_loss", x, target)
    values = ops.relu(ops.add(ops.mul(ops.neg(signs), ops.sub(x, y)), by))
    return reduce_loss("margin_ranking_loss", values, reduction)


@explain_wrong_calls
def hinge_embedding_loss(distance: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """The distance where `target` is 1, and what it is below `margin` where it is -1.

    >>> ts.nn.losses.hinge_embedding_loss(ts.array([0.5, 0.25]), ts.array([1, -1]), reduction="none")
    Tensor([2] f32, [0.5, 0.75])
    """
    by = check_number("hinge_embedding_loss", "margin", margin)
    distance, signs = match_shapes("hinge_embedding_loss", distance, target)
    values = ops.where(ops.gt(signs, 0.0), distance, ops.relu(ops.sub(by, distance)))
    return reduce_loss("hinge_embedding_loss", values, reduction)


@explain_wrong_calls
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """How much nearer than by `margin` the negative is to the anchor than the positive is, by the `p`-norm.

    All three are vectors along their last axis. With `swap` the negative is as near as it is to the nearer of anchor
    and positive.

    >>> anchor, positive, negative = ts.array([[0.0, 0.0]]), ts.array([[3.0, 4.0]]), ts.array([[0.0, 5.5]])
    >>> ts.nn.losses.triplet_margin_loss(anchor, positive, negative)
    Tensor([] f32, 0.5)
    """
    name = "triplet_margin_loss"
    by, order, small = (check_number(name, key, one) for key, one in (("margin", margin), ("p", p), ("eps", eps)))
    if not by > 0:
        raise ArgumentError(f"`{name}` takes `margin` above 0, got {by}", fix="write `margin=1.0`")
    anchor, positive = match_shapes(name, anchor, positive)
    anchor, negative = match_shapes(name, anchor, negative)
    near, far = _distances(anchor, positive, order, small), _distances(anchor, negative, order, small)
    if check_bool(name, "swap", swap):
        far = ops.minimum(far, _distances(positive, negative, order, small))
    return reduce_loss(name, ops.relu(ops.add(ops.sub(near, far), by)), reduction)


@explain_wrong_calls
def soft_margin_loss(prediction: Any, target: Any, *, reduction: str = "mean") -> Any:
    """`log(1 + exp(-target * prediction))` of targets that are 1 or -1, without overflow.

    >>> ts.nn.losses.soft_margin_loss(ts.array([0.0, 100.0]), ts.array([1, 1]), reduction="sum")
    Tensor([] f32, 0.693147)
    """
    prediction, target = match_shapes("soft_margin_loss", prediction, target)
    return reduce_loss("soft_margin_loss", ops.softplus(ops.neg(ops.mul(target, prediction))), reduction)


@explain_wrong_calls
def multi_margin_loss(
    scores: Any, labels: Any, *, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    """The mean over classes of what the score of each other one is above that of the label less `margin`, to `p`.

    `scores` are [..., classes] and `labels` integers [...]; `weight` is a number for each class. A label beyond the
    classes is an error (T0710) where the values of labels are known; else it is taken for the nearest class.

    >>> ts.nn.losses.multi_margin_loss(ts.array([[0.5, 0.0]]), ts.array([0]))
    Tensor([] f32, 0.25)
    """
    by, order = check_number("multi_margin_loss", "margin", margin), check_int("multi_margin_loss", "p", p)
    if order not in (1, 2):
        raise ArgumentError(f"`multi_margin_loss` takes `p` as 1 or 2, got {order}", fix="write `p=1`")
    scores = widen(scores)
    check_labels("multi_margin_loss", scores, labels)
    own = ops.take_along_axis(scores, ops.expand_dims(labels, -1), -1)
    above = ops.relu(ops.add(ops.sub(scores, own), by))
    above = ops.mul(above, above) if order == 2 else above
    if weight is not None:
        above = ops.mul(above, ops.expand_dims(ops.take(ops.cast_like(weight, scores), labels), -1))
    is_other = ops.ne(ops.iota((scores.shape[-1],)), ops.expand_dims(labels, -1))
    return reduce_loss("multi_margin_loss", ops.mean(ops.where(is_other, above, 0.0), -1), reduction)
