"""einsum: the equation parsed and taken apart into diagonals, sums, products over two operands and a transpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, exact, round_as
from tessera.ir.base.index_maps import IndexMap
from tessera.ir.base.index_maps import coordinate as at
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import ANY, NUMBERS, Attribute, Attributes, Builder, InferContext, OpSpec, PolicyRule, Sample
from tessera.ir.graph.building import Types, cast, cost_of, restate, same_dim
from tessera.ir.graph.ops.contraction import accumulator
from tessera.ir.graph.samples import normal
from tessera.ir.tile.facets import View
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import promote_all
from tessera.types.shape import TensorType, normalize_axis, text

Labels: TypeAlias = tuple[str, ...]


@frozen
class Equation:
    """The axes of each operand and of the result, by label; axes under `...` are labelled `.0`, `.1` from the right."""

    operands: tuple[Labels, ...]
    result: Labels


@lru_cache(maxsize=512)
def parse_equation(equation: str, ranks: tuple[int, ...]) -> Equation:
    """The labels of an einsum over operands of these ranks; raises ValueError with what is wrong.

    Without `->` the result is, as in NumPy, `...` and then the labels that occur once, in alphabetical order.

    >>> parse_equation("ij,jk", (2, 2)).result
    ('i', 'k')
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ValueError(f"`{equation}` names {len(parts)} operands, got {len(ranks)}")
    operands = tuple(_labels(part, rank, equation) for part, rank in zip(parts, ranks, strict=True))
    dotted = max((sum(label[0] == "." for label in labels) for labels in operands), default=0)
    stretched = tuple(f".{index}" for index in reversed(range(dotted)))
    if arrow:
        result = _expand_ellipsis(right, stretched, equation)
    else:
        flat = [label for labels in operands for label in labels]
        result = (*stretched, *sorted({label for label in flat if label[0] != "." and flat.count(label) == 1}))
    known = {label for labels in operands for label in labels}
    if len(set(result)) != len(result):
        raise ValueError(f"`{equation}` repeats a label in its result")
    unknown = [label for label in result if label not in known]
    if unknown:
        raise ValueError(f"`{equation}` has `{unknown[0]}` in its result and in no operand")
    if dotted and not set(stretched) <= set(result):
        raise ValueError(f"`{equation}` drops the axes of `...`: write `...` in its result too")
    return Equation(operands, result)


def _labels(part: str, rank: int, equation: str) -> Labels:
    """The labels of one operand, `...` taking the axes that letters leave over."""
    letters = len(part.replace("...", ""))
    hidden = rank - letters
    if hidden < 0 or (hidden and "..." not in part):
        raise ValueError(f"`{equation}` gives `{part}` {letters} axes, the operand has {rank}")
    return _expand_ellipsis(part, tuple(f".{index}" for index in reversed(range(hidden))), equation)


def _expand_ellipsis(part: str, stretched: Labels, equation: str) -> Labels:
    head, dots, tail = part.partition("...")
    bad = [letter for letter in head + tail if not letter.isalpha()]
    if bad:
        raise ValueError(f"`{equation}` has `{bad[0]}` where a letter belongs")
    return (*head, *(stretched if dots else ()), *tail)


def _sizes(equation: Equation, shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
    """The size of each label, where `infer` found them equal; a 1 under `...` gives way."""
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(equation.operands, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            if label not in sizes or sizes[label].value == 1:
                sizes[label] = dim
    return sizes


def _infer_einsum(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    if not types:
        raise ctx.fail("`einsum` needs at least one operand")
    try:
        equation = parse_equation(attributes["equation"], tuple(operand.rank for operand in types))
    except ValueError as error:
        raise ctx.fail(str(error)) from None
    dtype = promote_all([operand.dtype for operand in types])
    if dtype is None or dtype.is_bool:
        kinds = ", ".join(str(operand.dtype) for operand in types)
        raise ctx.fail_dtype(f"`einsum` cannot multiply {kinds}", help="cast them to one numeric dtype")
    sizes: dict[str, Dim] = {}
    for labels, operand in zip(equation.operands, types, strict=True):
        for label, dim in zip(labels, operand.shape, strict=True):
            seen = sizes.get(label, dim)
            if label[0] == "." and 1 in (seen.value, dim.value):
                sizes[label] = dim if seen.value == 1 else seen
                continue
            what = "an axis under `...`" if label[0] == "." else f"`{label}`"
            shapes = ", ".join(text(other.shape) for other in types)
            sizes[label] = same_dim(ctx, seen, dim, f"`einsum` of {shapes}: {what} has two sizes")
    return [TensorType(tuple(sizes[label] for label in equation.result), attributes["dtype"] or dtype)]


@frozen
class _Term:
    """A value on its way through the equation, and what its axes are called."""

    value: Any
    labels: Labels


def _take_diagonals(b: Builder, term: _Term) -> _Term:
    value, labels = term.value, list(term.labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            value = b.emit("diagonal", value, axis1=first, axis2=second)
            del labels[second]
    return _Term(value, tuple(labels))


def _drop_ones(b: Builder, term: _Term, sizes: Mapping[str, Dim]) -> _Term:
    """Drops axes of 1 that stretch, so that every label left has its one size."""
    shape = b.type_of(term.value).shape
    kept = [axis for axis, label in enumerate(term.labels) if shape[axis].value != 1 or sizes[label].value == 1]
    if len(kept) == len(shape):
        return term
    value = b.emit("reshape", term.value, shape=tuple(shape[axis] for axis in kept))
    return _Term(value, tuple(term.labels[axis] for axis in kept))


def _sum_unneeded(b: Builder, term: _Term, needed: set[str], compute: DType) -> _Term:
    """Sums the axes nothing else needs, without rounding to a narrow dtype on the way."""
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    total = b.emit("sum", cast(b, term.value, compute), axes=axes, keepdims=False)
    value = cast(b, total, compute)  # integer sums are 64 bits wide
    return _Term(value, tuple(label for label in term.labels if label in needed))


def _align(b: Builder, term: _Term, labels: Labels) -> Any:
    """The term's value with axes in the order of `labels`, those it lacks as 1."""
    order = tuple(term.labels.index(label) for label in labels if label in term.labels)
    value = term.value if order == tuple(range(len(order))) else b.emit("transpose", term.value, axes=order)
    if len(order) == len(labels):
        return value
    dims = iter(b.type_of(value).shape)
    shape = tuple(next(dims) if label in term.labels else Dim.constant(1) for label in labels)
    return b.emit("reshape", value, shape=shape)


def _multiply(
    b: Builder, left: _Term, right: _Term, needed: set[str], result: Labels, dtype: DType, compute: DType
) -> _Term:
    """Two terms multiplied, with every shared axis that nothing else needs contracted.

    They are swapped where that gives the order of `result`, which a transpose of what they give would take else:
    factors commute, and the order of the sum stays.
    """
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in needed]
    contract = [label for label in shared if label not in needed]
    if not contract:
        labels = (*left.labels, *(label for label in right.labels if label not in left.labels))
        factors = (cast(b, _align(b, term, labels), compute) for term in (left, right))
        return _Term(cast(b, b.emit("mul", *factors), dtype), labels)
    free = [[label for label in term.labels if label not in shared] for term in (left, right)]
    if all(free) and (*batch, *free[1], *free[0]) == result:
        left, right, free = right, left, free[::-1]
    x, y = left.value, right.value
    if b.type_of(x).dtype is not b.type_of(y).dtype:  # a partial result beside an operand
        x, y = (cast(b, value, compute) for value in (x, y))
    value = b.emit(
        "dot_general",
        x,
        y,
        lhs_batch=tuple(left.labels.index(label) for label in batch),
        rhs_batch=tuple(right.labels.index(label) for label in batch),
        lhs_contract=tuple(left.labels.index(label) for label in contract),
        rhs_contract=tuple(right.labels.index(label) for label in contract),
        dtype=dtype,
    )
    return _Term(value, (*batch, *free[0], *free[1]))


def _decompose_einsum(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
    types = [b.type_of(operand) for operand in operands]
    equation = parse_equation(attributes["equation"], tuple(operand.rank for operand in types))
    joined = promote_all([operand.dtype for operand in types])
    dtype: DType | None = attributes["dtype"] or joined
    assert dtype is not None, "`infer` refuses operands that do not promote"
    compute = accumulator(dtype)
    sizes = _sizes(equation, [operand.shape for operand in types])
    terms = [
        _drop_ones(b, _take_diagonals(b, _Term(value, labels)), sizes)
        for value, labels in zip(operands, equation.operands, strict=True)
    ]
    # Left to right, always: the order of operations is the user's, whatever the sizes.
    current = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        later = set(equation.result).union(*(other.labels for other in terms[index + 1 :]))
        current = _sum_unneeded(b, current, later | set(term.labels), compute)
        term = _sum_unneeded(b, term, later | set(current.labels), compute)
        last = index == len(terms) - 1
        current = _multiply(b, current, term, later, equation.result, dtype if last else compute, compute)
    current = _sum_unneeded(b, current, set(equation.result), compute)
    value = _align(b, current, equation.result)
    return cast(b, restate(b, value, tuple(sizes[label] for label in equation.result)), dtype)


def einsum_reference(*operands: Array, equation: str, dtype: DType | None = None) -> Array:
    """NumPy's einsum in the widest dtype, rounded once."""
    result = dtype or promote_all([dtype_of(operand) for operand in operands])
    assert result is not None, "`infer` refuses operands that do not promote"
    with np.errstate(over="ignore", invalid="ignore"):
        return round_as(np.einsum(equation, *(exact(operand) for operand in operands), optimize=False), result)


def _einsum_operations(operands: Types, results: Types, attributes: Attributes) -> Dim:
    equation = parse_equation(attributes["equation"], tuple(operand.rank for operand in operands))
    sizes = _sizes(equation, [operand.shape for operand in operands])
    return product(sizes.values()) * len(operands)


def _infer_diagonal(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    (x,) = types
    axis1 = normalize_axis(ctx, "diagonal", attributes["axis1"], x.rank)
    axis2 = normalize_axis(ctx, "diagonal", attributes["axis2"], x.rank)
    if axis1 == axis2:
        raise ctx.fail(f"`diagonal` needs two different axes, got {axis1} twice")
    size = same_dim(ctx, x.shape[axis1], x.shape[axis2], f"`diagonal` of {text(x.shape)} needs equal sizes")
    first, second = min(axis1, axis2), max(axis1, axis2)
    shape = [size if axis == first else dim for axis, dim in enumerate(x.shape) if axis != second]
    return [TensorType(tuple(shape), x.dtype)]


def _diagonal_maps(x: TensorType, outs: Types, attributes: Attributes) -> Sequence[IndexMap]:
    first, second = sorted((attributes["axis1"] % x.rank, attributes["axis2"] % x.rank))
    return [tuple(at(first) if axis == second else at(axis - (axis > second)) for axis in range(x.rank))]


def diagonal_reference(x: Array, *, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements where two axes have one index; the kept axis stands where the first of them stood."""
    first = min(axis1 % x.ndim, axis2 % x.ndim)
    return np.ascontiguousarray(np.moveaxis(np.diagonal(x, 0, axis1, axis2), -1, first))


DIAGONAL = OpSpec(
    name="tgraph.diagonal",
    summary="The elements whose indices along two axes are equal; the first of the two axes stays.",
    operands=("x",),
    attributes=(Attribute("axis1", "int", 0), Attribute("axis2", "int", 1)),
    infer=_infer_diagonal,
    jvp="linear",
    transpose="movement:diagonal",
    reference=diagonal_reference,
    dtypes=(*ANY, "i4"),
    lower=View(_diagonal_maps),
    samples=(
        Sample("square", normal((5, 5))),
        Sample("outer axes", normal((3, 2, 3)), {"axis1": 0, "axis2": 2}),
        Sample("reversed", normal((2, 4, 4)), {"axis1": -1, "axis2": 1}),
    ),
)

EINSUM = OpSpec(
    name="tgraph.einsum",
    summary="Sum of products by an equation of axis labels, as in NumPy; operands are contracted from left to right.",
    operands=("operands*",),
    attributes=(
        Attribute("equation", "str", doc="such as `bij,bjk->bik`; `...` stands for axes that broadcast"),
        Attribute("dtype", "dtype", None, "dtype of the result; default the promoted dtype of the operands"),
    ),
    infer=_infer_einsum,
    reference=einsum_reference,
    cost=cost_of(_einsum_operations),
    dtypes=NUMBERS,
    decompose=_decompose_einsum,
    samples=(
        Sample("matrix", normal((3, 4), (4, 5)), {"equation": "ij,jk->ik"}),
        Sample("implicit result", normal((3, 4), (4, 5)), {"equation": "ba,ac"}),
        Sample("transposed", normal((3, 4), (5, 4)), {"equation": "ij,kj->ki"}),
        Sample("batch and dots", normal((2, 1, 3, 4), (5, 4, 6)), {"equation": "...ij,...jk->...ik"}),
        Sample("heads", normal((2, 5, 3, 4), (2, 7, 3, 4)), {"equation": "bqhd,bkhd->bhqk"}),
        Sample("trace", normal((4, 4)), {"equation": "ii"}),
        Sample("diagonal times", normal((4, 4), (4, 3)), {"equation": "ii,ij->ij"}),
        Sample("row sums", normal((3, 4)), {"equation": "ij->i"}),
        Sample("outer", normal((3,), (4,)), {"equation": "i,j->ij"}),
        Sample("chain of three", normal((3, 4), (4, 5), (5, 2)), {"equation": "ij,jk,kl->il"}),
        Sample("bilinear", normal((6, 3), (3, 5, 4), (6, 4)), {"equation": "ni,ioj,nj->no"}),
        Sample("free sums", normal((3, 4), (5, 2)), {"equation": "ij,kl->ik"}),
    ),
    policy=PolicyRule("contract", by_parts=True),
    interval=ANYTHING,
)

SPECS: tuple[OpSpec, ...] = (DIAGONAL, EINSUM)
