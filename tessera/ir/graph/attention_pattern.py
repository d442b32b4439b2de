"""Recognizing attention in ops that spell it out: softmax(q kT * scale + mask) v, however its parts are written.

Axes are followed by labels, so that it does not matter whether a product is a matmul, an einsum or a `dot_general`, nor
which operand was transposed: a label of an axis of the scores is its number, `d` is what queries and keys share, `e`
what values alone have. Between the two products are a softmax over the axis of keys, as one op or op by op, and
before it factors and masks; each of these values is read by the next one alone, as its scores are never in memory once
it is one op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue

from tessera.ir.base.build import is_removable, tensor_value
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.attention import causal_mask
from tessera.ir.graph.ops.einsum import parse_equation
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

Label: TypeAlias = "int | str"
Labels: TypeAlias = "tuple[Label, ...]"

_CONTRACTIONS = ("tgraph.matmul", "tgraph.einsum", "tgraph.dot_general")
_LARGEST = 1 << 22
"""Elements of a mask that is evaluated, to see whether it is the causal one."""
_HIDDEN = -1e9
"""What scores that count for nothing are set to at most, where it is not minus infinity: no weight is left of it."""
_HIDDEN_HALF = -6e4


@frozen
class Attention:
    """An attention that was found: `op` gives its result, whose axes are `result`.

    `operands` are queries, keys and values, each with the labels of its axes; `groups` is how many heads of queries
    share one of keys. `mask` is added to the scores, or with `is_condition` says which count, or which do not.
    """

    op: SpecOp
    operands: tuple[tuple[SSAValue, Labels], ...]
    result: Labels
    batch: tuple[int, ...]
    query: int
    key: int
    scale: float
    causal: bool = False
    groups: int = 1
    mask: SSAValue | None = None
    is_condition: bool = False
    keeps: bool = True
    """Whether scores count where the condition holds, or where it does not."""


@dataclass
class _Scores:
    """What is peeled off scores on the way from the softmax to the product."""

    scale: float = 1.0
    causal: bool = False
    mask: SSAValue | None = None
    is_condition: bool = False
    keeps: bool = True


def find_attention(op: SpecOp) -> Attention | None:
    """The attention whose result an op gives; None where it gives none."""
    if op.name not in _CONTRACTIONS:
        return None
    labels = contraction_labels(op)
    if labels is None or _is_rounded(op):
        return None
    for at in (0, 1):
        found = _match(op, labels, at)
        if found is not None:
            return found
    return None


def _is_rounded(op: SpecOp) -> bool:
    """Whether a product gives another dtype than its operands have: attention gives theirs."""
    return any(tensor_value(value).dtype != tensor_value(op.results[0]).dtype for value in op.operands)


def _match(op: SpecOp, labels: tuple[Labels, Labels, Labels], at: int) -> Attention | None:
    """The attention in which operand `at` of a product has the weights."""
    weights, values = op.operands[at], op.operands[1 - at]
    softmax = _softmax_of(weights, op)
    if softmax is None:
        return None
    scores, key, is_safe = softmax
    if labels[at][key] in labels[2] or sum(label in labels[2] for label in labels[at]) != len(labels[at]) - 1:
        return None  # the weights are summed over another axis than the one that they are normalized along
    # Axes of the scores by the labels of the second product.
    numbers: dict[Label, Label] = {label: number for number, label in enumerate(labels[at])}
    peeled = _Scores()
    product = _peel_scores(scores, peeled, is_safe=is_safe)
    inner = None if product is None else contraction_labels(product)
    if product is None or inner is None or _is_rounded(product):
        return None
    shared = {label: number for number, label in enumerate(inner[2])}
    sides = [tuple(shared.get(label, "d") for label in side) for side in inner[:2]]
    queries = [axis for axis in range(len(inner[2])) if sum(axis in side for side in sides) == 1 and axis != key]
    if len(queries) != 1 or sum(key in side for side in sides) != 1:
        return None
    (query,) = queries
    first = 0 if query in sides[0] else 1
    if query in sides[1 - first] or key not in sides[1 - first]:
        return None
    operands = [
        (product.operands[first], sides[first]),
        (product.operands[1 - first], sides[1 - first]),
        (values, tuple(numbers.get(label, "e") for label in labels[1 - at])),
    ]
    batch = tuple(axis for axis in range(len(inner[2])) if axis not in (query, key))
    heads = max(batch, default=-1)
    made = [_peel_operand(*one, heads, takes_factor=number < 2) for number, one in enumerate(operands)]
    groups = [one[3] for one in made]
    found = Attention(
        op=op,
        operands=tuple((value, axes) for value, axes, _, _ in made),
        result=tuple(numbers.get(label, "e") for label in labels[2]),
        batch=batch,
        query=query,
        key=key,
        scale=math.prod((peeled.scale, *(one[2] for one in made))),
        causal=peeled.causal,
        groups=groups[1],
        mask=peeled.mask,
        is_condition=peeled.is_condition,
        keeps=peeled.keeps,
    )
    return found if _is_whole(found, groups) else None


def _is_whole(found: Attention, groups: Sequence[int]) -> bool:
    """Whether the axes of operands and result are those of attention, and sizes and dtypes fit."""
    wanted: list[set[Label]] = [
        {*found.batch, found.query, "d"},
        {*found.batch, found.key, "d"},
        {*found.batch, found.key, "e"},
    ]
    for (value, labels), axes in zip(found.operands, wanted, strict=True):
        if len(labels) != len(axes) or set(labels) != axes or not tensor_value(value).dtype.is_float:
            return False
    if len(found.result) != len(found.batch) + 2 or set(found.result) != {*found.batch, found.query, "e"}:
        return False
    if groups[0] != 1 or groups[1] != groups[2] or (groups[1] > 1 and not found.batch):
        return False
    # Of several batch axes all but the last become one, which no mask that has some of them broadcasts with.
    if found.mask is not None and len(found.batch) > 2 and tensor_value(found.mask).rank > 3:
        return False
    is_in_order = found.batch == tuple(range(len(found.batch))) and found.query == len(found.batch)
    return (found.mask is None and not found.causal) or (is_in_order and found.key == found.query + 1)


# Products, by the labels of their axes.


def contraction_labels(op: SpecOp) -> tuple[Labels, Labels, Labels] | None:
    """The labels of the axes of both operands and of the result of a product; None where sizes are broadcast."""
    shapes = [tensor_value(value).shape for value in op.operands]
    if len(shapes) != 2:
        return None
    found = _labels_of(op, [len(shape) for shape in shapes])
    if found is None:
        return None
    sizes: dict[Label, Any] = {}
    for labels, shape in zip(found[:2], shapes, strict=True):
        if len(set(labels)) != len(labels):
            return None
        for label, dim in zip(labels, shape, strict=True):
            if sizes.setdefault(label, dim) != dim:
                return None
    return found


def _labels_of(op: SpecOp, ranks: Sequence[int]) -> tuple[Labels, Labels, Labels] | None:
    if op.name == "tgraph.matmul":
        if min(ranks) < 2:
            return None
        batch = tuple(f"b{at}" for at in range(max(ranks) - 2, 0, -1))
        sides = [batch[len(batch) - (rank - 2) :] for rank in ranks]
        return (*sides[0], "m", "k"), (*sides[1], "k", "n"), (*batch, "m", "n")
    if op.name == "tgraph.einsum":
        equation = parse_equation(op.value("equation"), tuple(ranks))
        return equation.operands[0], equation.operands[1], equation.result
    left: list[Label] = [f"l{at}" for at in range(ranks[0])]
    right: list[Label] = [f"r{at}" for at in range(ranks[1])]
    for own, other in (("lhs_batch", "rhs_batch"), ("lhs_contract", "rhs_contract")):
        for at, pair in zip(op.value(own), op.value(other), strict=True):
            right[pair] = left[at]
    kept: list[int] = list(op.value("lhs_batch"))
    shared: set[Label] = {left[at] for at in (*kept, *op.value("lhs_contract"))}
    free = [label for label in (*left, *right) if label not in shared]
    return tuple(left), tuple(right), (*(left[at] for at in kept), *free)


# What stands between them.


def _owner(value: SSAValue, *names: str) -> SpecOp | None:
    op = value.owner if isinstance(value, OpResult) else None
    return op if isinstance(op, SpecOp) and (not names or op.name.removeprefix("tgraph.") in names) else None


def _users(value: SSAValue) -> set[Operation]:
    return {use.operation for use in value.uses}


def _number(value: SSAValue) -> float | None:
    """The number that a scalar constant is."""
    op = _owner(value, "full", "constant")
    if op is None or tensor_value(value).size.value != 1:
        return None
    found = op.value("value")
    return float(np.asarray(found).reshape(-1)[0])


def _softmax_of(weights: SSAValue, reader: Operation) -> tuple[SSAValue, int, bool] | None:
    """The scores, the axis, and whether a row of nothing but -inf gives zeros, of weights that only `reader` reads."""
    if _users(weights) != {reader}:
        return None
    op = _owner(weights, "softmax")
    if op is not None:
        axis = int(op.value("axis")) % tensor_value(weights).rank
        return (op.operands[0], axis, True) if _users(op.operands[0]) == {op} else None
    return _written_softmax(weights)


def _written_softmax(weights: SSAValue) -> tuple[SSAValue, int, bool] | None:
    """The same of exp(s - max s) / sum exp(s - max s), with a keepdims maximum and sum, or a reciprocal of the sum."""
    op = _owner(weights, "div", "mul")
    if op is None:
        return None
    exponential, total = op.operands
    if op.name == "tgraph.mul":
        inverse = _owner(total, "reciprocal")
        if inverse is None or _users(total) != {op}:
            return None
        total = inverse.operands[0]
    guarded, total = _through_guard(total, 1.0)
    power, sum_op = _owner(exponential, "exp"), _owner(total, "sum")
    shifted = None if power is None else _owner(power.operands[0], "sub")
    if power is None or sum_op is None or shifted is None or sum_op.operands[0] is not exponential:
        return None
    scores, top = shifted.operands
    safe, top = _through_guard(top, None)
    maximum = _owner(top, "max")
    if maximum is None or maximum.operands[0] is not scores or not maximum.value("keepdims"):
        return None
    axes = tuple(sum_op.value("axes"))
    if axes != tuple(maximum.value("axes")) or len(axes) != 1 or not sum_op.value("keepdims"):
        return None
    is_alone = _users(scores) == {maximum, shifted} and _users(power.operands[0]) == {power}
    if not is_alone or _users(exponential) != {sum_op, op}:
        return None
    return scores, int(axes[0]) % tensor_value(scores).rank, guarded and safe


def _through_guard(value: SSAValue, least: float | None) -> tuple[bool, SSAValue]:
    """Whether a value is kept from being too small (`maximum(x, 1.0)`, or any constant), and what it was before."""
    op = _owner(value, "maximum")
    if op is None:
        return False, value
    number = _number(op.operands[1])
    is_guard = number is not None and (number == least if least is not None else number < _HIDDEN)
    return (True, op.operands[0]) if is_guard else (False, value)


def _peel_scores(value: SSAValue, found: _Scores, *, is_safe: bool) -> SpecOp | None:
    """Take factors and masks off scores, from the softmax on; the product below, or None where there is none."""
    while True:
        op = _owner(value)
        if op is None:
            return None
        if op.name in _CONTRACTIONS:
            return op
        below = _peel(op, found, is_safe=is_safe)
        if below is None or _users(below) != {op}:
            return None
        value = below


def _peel(op: SpecOp, found: _Scores, *, is_safe: bool) -> SSAValue | None:
    """What an op does to scores, noted, and the scores before it; None for an op that attention has not."""
    name = op.name.removeprefix("tgraph.")
    if name in ("mul", "div"):
        return _peel_factor(op, found)
    if name == "add":
        return _peel_mask(op, found, is_safe=is_safe)
    if name == "where":
        return _peel_condition(op, found, is_safe=is_safe)
    return None


def _peel_factor(op: SpecOp, found: _Scores) -> SSAValue | None:
    left, right = op.operands
    number = _number(right)
    if op.name == "tgraph.mul" and number is None:
        left, number = right, _number(left)
    if number is None or number == 0 or not math.isfinite(number):
        return None
    found.scale *= number if op.name == "tgraph.mul" else 1.0 / number
    return left


def _peel_mask(op: SpecOp, found: _Scores, *, is_safe: bool) -> SSAValue | None:
    """The scores that a mask is added to; a factor behind it would be one of the mask too."""
    if found.scale != 1.0 or found.mask is not None or found.causal:
        return None
    shape = tensor_value(op.results[0]).shape
    for scores, mask in (op.operands, tuple(reversed(op.operands))):
        below = _owner(scores)
        if below is None or tensor_value(scores).shape != shape or below.name in ("tgraph.full", "tgraph.constant"):
            continue
        if not _leads_to_contraction(scores):
            continue
        array = evaluate(mask)
        if array is not None and _is_causal(array == 0, shape) and bool(np.all((array == 0) | (array <= _HIDDEN))):
            found.causal = True
            return scores
        if not is_safe:
            return None  # a row that sees nothing would be NaN, and is 0 in attention
        found.mask = mask
        return scores
    return None


def _leads_to_contraction(value: SSAValue) -> bool:
    """Whether a value is made of a product by what can be peeled off."""
    op = _owner(value)
    while op is not None and op.name not in _CONTRACTIONS:
        if op.name.removeprefix("tgraph.") not in ("mul", "div", "add", "where"):
            return False
        at = 1 if op.name == "tgraph.where" and _number(op.operands[1]) is None else 0
        at = 2 if op.name == "tgraph.where" and at == 0 else at
        op = _owner(op.operands[at])
    return op is not None


def _peel_condition(op: SpecOp, found: _Scores, *, is_safe: bool) -> SSAValue | None:
    """The scores that a condition keeps or hides: `where(c, s, -inf)` or `where(c, -inf, s)`."""
    if found.mask is not None or found.causal:
        return None
    condition, kept, hidden = op.operands
    keeps = _number(kept) is None
    scores, number = (kept, _number(hidden)) if keeps else (hidden, _number(kept))
    shape = tensor_value(op.results[0]).shape
    if number is None or tensor_value(scores).shape != shape or not _is_hidden(number * found.scale, scores):
        return None
    array = evaluate(condition)
    if array is not None and _is_causal(array == keeps, shape):
        found.causal = True
        return scores
    if number != -math.inf or not is_safe:
        return None  # a row that sees nothing would have equal weights, or none
    found.mask, found.is_condition, found.keeps = condition, True, keeps
    return scores


def _is_hidden(number: float, scores: SSAValue) -> bool:
    """Whether nothing is left of a weight whose score is a number."""
    dtype: DType = tensor_value(scores).dtype
    return number <= (_HIDDEN_HALF if dtype.name == "f16" else _HIDDEN)


def _is_causal(seen: Any, shape: Sequence[Any]) -> bool:
    """Whether an array says of each query and key what the causal mask does."""
    queries, keys = shape[-2].value, shape[-1].value
    if queries is None or keys is None or queries > keys:
        return False  # of more queries than keys the first see none
    wanted = causal_mask(queries, keys) == 0
    return seen.ndim >= 2 and seen.shape[-2:] == wanted.shape and bool(np.all(seen == wanted))


def evaluate(value: SSAValue) -> Any:
    """The array that a value is where nothing but constants makes it; None where it depends on anything else."""
    known: dict[SSAValue, Any] = {}

    def visit(one: SSAValue) -> Any:
        if one not in known:
            op = _owner(one)
            known[one] = None
            size = tensor_value(one).size.value
            if op is None or op.spec.reference is None or op.regions or not is_removable(op) or len(op.results) != 1:
                return None
            if size is None or size > _LARGEST or _has_symbols(op.values()):
                return None
            operands = [visit(operand) for operand in op.operands]
            if not any(operand is None for operand in operands):
                made = op.spec.reference(*operands, **_plain_sizes(op.values()))
                known[one] = np.asarray(made[0] if isinstance(made, tuple) else made)
        return known[one]

    return visit(value)


def _has_symbols(values: Mapping[str, Any]) -> bool:
    def find(one: Any) -> bool:
        if isinstance(one, tuple):
            return any(map(find, cast("tuple[Any]", one)))
        return isinstance(one, Dim) and not one.is_static

    return any(map(find, values.values()))


def _plain_sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    def plain(one: Any) -> Any:
        if isinstance(one, tuple):
            return tuple(map(plain, cast("tuple[Any]", one)))
        return one.value if isinstance(one, Dim) else one

    return {name: plain(value) for name, value in values.items()}


def _peel_operand(
    value: SSAValue, labels: Labels, heads: int, *, takes_factor: bool
) -> tuple[SSAValue, Labels, float, int]:
    """An operand before it was transposed, scaled or repeated: itself, its labels, the factor, how often each head."""
    factor, groups = 1.0, 1
    while (op := _owner(value, "transpose", "mul", "div", "repeat")) is not None:
        if op.name == "tgraph.transpose":
            order: Sequence[int] = op.value("axes")
            labels = tuple(labels[order.index(axis)] for axis in range(len(order)))
        elif op.name == "tgraph.repeat":
            if groups > 1 or op.value("axis") is None or labels[op.value("axis")] != heads:
                break
            groups = int(op.value("repeats"))
        else:
            scaled = _Scores()
            below = _peel_factor(op, scaled) if takes_factor else None
            if below is None or tensor_value(below).shape != tensor_value(value).shape:
                break
            factor *= scaled.scale
            value = below
            continue
        value = op.operands[0]
    return value, labels, factor, groups
