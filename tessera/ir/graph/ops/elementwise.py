"""Ops on one element at a time: a row of a table each, with its meaning, its dtypes and its scalar function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.ir.base.spec import Attribute, Attributes, Cost, CostRule, Fold, InferContext, OpSpec, Sample
from tessera.ir.graph import scalar_reference as scalars
from tessera.ir.graph.elementwise_folds import BINARY_FOLDS, UNARY_FOLDS
from tessera.ir.graph.rules import FLOATS, INTEGERS, traffic
from tessera.ir.graph.samples import (
    BINARY_SHAPES,
    UNARY_SHAPES,
    bools,
    extremes,
    integer_extremes,
    integers,
    normal,
    over,
    positive,
)
from tessera.ir.tile.facets import Pointwise
from tessera.types import dtype as dt
from tessera.types.frozen import frozen
from tessera.types.promotion import (
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    FLOATING,
    LOGICAL,
    PREDICATE,
    OpClass,
    float_of,
)
from tessera.types.shape import Named, broadcast
from tessera.types.tensor_type import TensorType

NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, "bool")
BITS = (*INTEGERS, "bool")
BOOL = ("bool",)


@frozen
class Row:
    """One elementwise op: `scalar` is the function tiles are computed with, `floats` and `integers` its meaning."""

    name: str
    summary: str
    group: OpClass
    dtypes: tuple[str, ...]
    floats: Callable[..., Any] | None
    integers: Callable[..., Any] | None = None
    scalar: str = ""
    flops: int = 1
    expensive: bool = False
    block: Callable[..., Any] | None = None
    samples: tuple[Sample, ...] = ()
    attributes: tuple[Attribute, ...] = ()


def check_dtype(ctx: InferContext, op: str, name: str, x: TensorType, allowed: Sequence[str]) -> None:
    """Raises unless the operand's dtype is one the op takes, saying which cast would do."""
    if x.dtype.name in allowed:
        return
    if "f32" in allowed:
        fix = "i8" if x.dtype is dt.i4 and "i8" in allowed else str(float_of(x.dtype))
    else:
        fix = "bool" if allowed == BOOL else "i32"
    raise ctx.fail_dtype(
        f"`{op}` takes {' '.join(allowed)}, got `{name}` of {x.dtype}",
        help=f"compare it, as in `{name} != 0`" if fix == "bool" else f"cast it, as in `{name}.cast({fix})`",
    )


def check_same(ctx: InferContext, op: str, names: Sequence[str], types: Sequence[TensorType]) -> None:
    """Raises unless all operands have one dtype."""
    for name, x in zip(names[1:], types[1:], strict=True):
        if x.dtype is not types[0].dtype:
            raise ctx.fail_dtype(
                f"`{op}` needs operands of one dtype, got `{names[0]}` of {types[0].dtype} and `{name}` of {x.dtype}",
                help=f"cast one of them, as in `{name}.cast({types[0].dtype})`",
            )


def pointwise_cost(flops: int) -> CostRule:
    """A fixed number of operations for each element of the result."""

    def cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
        return Cost(results[0].size * flops, traffic(operands, results))

    return cost


def _infer(row: Row, names: tuple[str, ...]) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        check_same(ctx, row.name, names, types)
        for name, x in zip(names, types, strict=True):
            check_dtype(ctx, row.name, name, x, row.dtypes)
        shape = broadcast(ctx, row.name, *(Named(name, x.shape) for name, x in zip(names, types, strict=True)))
        return [TensorType(shape, row.group.result(types[0].dtype))]

    return infer


def _block(row: Row) -> Any:
    def block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
        return builder.elementwise(row.scalar or row.name, *tiles)

    return row.block or block


def _default_samples(row: Row, arity: int) -> tuple[Sample, ...]:
    shapes: list[Any] = [(shape,) for shape in UNARY_SHAPES] if arity == 1 else list(BINARY_SHAPES)
    if row.dtypes == BOOL:
        return tuple(over(shapes, bools))
    if "f32" not in row.dtypes:
        return (*over(shapes, integers), Sample("extremes", integer_extremes(arity)))
    return (*over(shapes, normal), Sample("extremes", extremes(arity)))


def make(row: Row, names: tuple[str, ...], fold: Fold | None) -> OpSpec:
    """The declaration of one row."""
    return OpSpec(
        name=f"tgraph.{row.name}",
        summary=row.summary,
        operands=names,
        attributes=row.attributes,
        infer=_infer(row, names),
        reference=scalars.elementwise(row.floats, row.integers, to_bool=row.group.result(dt.f32) is dt.bool_),
        samples=row.samples or _default_samples(row, len(names)),
        dtypes=row.dtypes,
        cost=pointwise_cost(row.flops),
        fold=fold,
        lower=Pointwise(_block(row), row.flops, row.expensive),
    )


def _positive_samples() -> tuple[Sample, ...]:
    return (*over([(shape,) for shape in UNARY_SHAPES], positive), Sample("extremes", extremes(1)))


def _tame_samples(arity: int) -> tuple[Sample, ...]:
    """Without infinities and huge numbers, where the op has no limit worth a promise."""
    shapes: list[Any] = [(shape,) for shape in UNARY_SHAPES] if arity == 1 else list(BINARY_SHAPES)
    spread = Sample("wide spread", normal(*[(211,)] * arity, scale=8.0))
    return (*over(shapes, normal), spread)


def _power_samples() -> tuple[Sample, ...]:
    def make(rng: np.random.Generator) -> Sequence[Any]:
        base = np.array([0.0, 1.0, 2.0, 0.5, -2.0, -1.0, np.inf, np.nan], np.float32)
        exponent = np.array([0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.0], np.float32)
        return [part.reshape(-1).copy() for part in np.meshgrid(base, exponent, indexing="ij")]

    return (*over(BINARY_SHAPES, positive), Sample("whole and half exponents", make))


def _gelu_infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    if attributes["approximate"] not in ("none", "tanh"):
        raise ctx.fail(
            f"`gelu` has no approximation `{attributes['approximate']}`", help='`approximate` is "none" or "tanh"'
        )
    check_dtype(ctx, "gelu", "x", types[0], FLOATS)
    return [types[0]]


def _gelu_block(builder: Any, tiles: Sequence[Any], attributes: Attributes, out: TensorType) -> Any:
    return builder.elementwise("gelu_tanh" if attributes["approximate"] == "tanh" else "gelu_erf", *tiles)


def _gelu() -> OpSpec:
    return OpSpec(
        name="tgraph.gelu",
        summary="`x` times the share of the normal distribution below `x`, exact or by the tanh formula.",
        operands=("x",),
        attributes=(Attribute("approximate", "str", "none", '"none" (by erf) or "tanh"'),),
        infer=_gelu_infer,
        reference=scalars.elementwise(scalars.gelu),
        samples=(
            *over([(shape,) for shape in UNARY_SHAPES], normal),
            *over([((5, 7),), ((0, 3),), ((211,),)], normal, {"approximate": "tanh"}),
        ),
        dtypes=FLOATS,
        cost=pointwise_cost(14),
        lower=Pointwise(_gelu_block, 14, expensive=True),
    )


UNARY = (
    Row("neg", "`-x`; unsigned integers wrap.", ARITHMETIC, NUMBERS, np.negative),
    Row("abs", "`|x|`; the smallest signed integer is its own.", ARITHMETIC, NUMBERS, np.abs),
    Row("sign", "-1, 0 or 1 by the sign of `x`; NaN stays.", ARITHMETIC, NUMBERS, scalars.sign, flops=2),
    Row("exp", "e to the power `x`.", FLOATING, FLOATS, np.exp, flops=10, expensive=True),
    Row("exp2", "2 to the power `x`.", FLOATING, FLOATS, np.exp2, flops=9, expensive=True),
    Row("expm1", "`exp(x) - 1` without cancellation.", FLOATING, FLOATS, np.expm1, flops=12, expensive=True),
    Row("log", "Natural logarithm.", FLOATING, FLOATS, np.log, flops=12, expensive=True, samples=_positive_samples()),
    Row(
        "log2", "Logarithm to base 2.", FLOATING, FLOATS, np.log2, flops=12, expensive=True, samples=_positive_samples()
    ),
    Row(
        "log1p",
        "`log(1 + x)`, exact near zero.",
        FLOATING,
        FLOATS,
        np.log1p,
        flops=14,
        expensive=True,
        samples=_positive_samples(),
    ),
    Row("sqrt", "Square root.", FLOATING, FLOATS, np.sqrt, flops=4, samples=_positive_samples()),
    Row("rsqrt", "One over the square root.", FLOATING, FLOATS, scalars.rsqrt, flops=5, samples=_positive_samples()),
    Row("reciprocal", "One over `x`.", FLOATING, FLOATS, scalars.reciprocal, flops=4),
    Row("sin", "Sine.", FLOATING, FLOATS, np.sin, flops=16, expensive=True, samples=_tame_samples(1)),
    Row("cos", "Cosine.", FLOATING, FLOATS, np.cos, flops=16, expensive=True, samples=_tame_samples(1)),
    Row("tan", "Tangent.", FLOATING, FLOATS, np.tan, flops=24, expensive=True, samples=_tame_samples(1)),
    Row("tanh", "Hyperbolic tangent.", FLOATING, FLOATS, np.tanh, flops=14, expensive=True),
    Row("sigmoid", "`1 / (1 + exp(-x))`.", FLOATING, FLOATS, scalars.sigmoid, flops=14, expensive=True),
    Row("erf", "Error function.", FLOATING, FLOATS, scalars.erf, flops=14, expensive=True),
    Row("relu", "`max(x, 0)`; NaN stays.", ARITHMETIC, NUMBERS, scalars.relu),
    Row(
        "silu", "`x * sigmoid(x)`.", FLOATING, FLOATS, scalars.silu, flops=15, expensive=True, samples=_tame_samples(1)
    ),
    Row(
        "softplus", "`log(1 + exp(x))` without overflow.", FLOATING, FLOATS, scalars.softplus, flops=24, expensive=True
    ),
    Row("floor", "Largest whole number not above `x`.", FLOATING, FLOATS, np.floor),
    Row("ceil", "Smallest whole number not below `x`.", FLOATING, FLOATS, np.ceil),
    Row("round", "Nearest whole number, halves to the even one.", FLOATING, FLOATS, np.rint),
    Row("trunc", "`x` without its fraction.", FLOATING, FLOATS, np.trunc),
    Row("isnan", "Whether `x` is not a number.", PREDICATE, FLOATS, np.isnan),
    Row("isinf", "Whether `x` is infinite.", PREDICATE, FLOATS, np.isinf),
    Row("logical_not", "Whether `x` is false.", LOGICAL, BOOL, None, np.logical_not, scalar="not"),
    Row("bitwise_not", "All bits turned; of a bool, its opposite.", BITWISE, BITS, None, np.invert, scalar="not"),
)

BINARY = (
    Row("add", "`x + y`.", ARITHMETIC, NUMBERS, np.add),
    Row("sub", "`x - y`.", ARITHMETIC, NUMBERS, np.subtract),
    Row("mul", "`x * y`.", ARITHMETIC, NUMBERS, np.multiply),
    Row("div", "`x / y`.", FLOATING, FLOATS, np.divide, flops=4),
    Row(
        "floordiv",
        "`x / y` rounded down; integers by zero give 0.",
        ARITHMETIC,
        NUMBERS,
        scalars.floordiv,
        np.floor_divide,
        flops=12,
        samples=_tame_samples(2),
    ),
    Row(
        "mod",
        "What `x // y` leaves, with the sign of `y`; integers by zero give 0.",
        ARITHMETIC,
        NUMBERS,
        np.mod,
        flops=12,
        samples=_tame_samples(2),
    ),
    Row(
        "pow",
        "`x` to the power `y`; integers wrap.",
        ARITHMETIC,
        NUMBERS,
        np.power,
        scalars.integer_pow,
        flops=30,
        expensive=True,
        samples=_power_samples(),
    ),
    Row(
        "atan2",
        "Angle of the point (y, x), from -pi to pi: `x` is the ordinate.",
        FLOATING,
        FLOATS,
        np.arctan2,
        flops=24,
        expensive=True,
    ),
    Row("maximum", "The larger; NaN wins.", ARITHMETIC, NUMBERS, scalars.maximum, scalar="max"),
    Row("minimum", "The smaller; NaN wins.", ARITHMETIC, NUMBERS, scalars.minimum, scalar="min"),
    Row("eq", "`x == y`.", COMPARISON, ANY, np.equal),
    Row("ne", "`x != y`.", COMPARISON, ANY, np.not_equal),
    Row("lt", "`x < y`.", COMPARISON, ANY, np.less),
    Row("le", "`x <= y`.", COMPARISON, ANY, np.less_equal),
    Row("gt", "`x > y`.", COMPARISON, ANY, np.greater),
    Row("ge", "`x >= y`.", COMPARISON, ANY, np.greater_equal),
    Row("logical_and", "Both.", LOGICAL, BOOL, None, np.logical_and, scalar="and"),
    Row("logical_or", "At least one.", LOGICAL, BOOL, None, np.logical_or, scalar="or"),
    Row("logical_xor", "Exactly one.", LOGICAL, BOOL, None, np.logical_xor, scalar="xor"),
    Row("bitwise_and", "Bits set in both.", BITWISE, BITS, None, np.bitwise_and, scalar="and"),
    Row("bitwise_or", "Bits set in either.", BITWISE, BITS, None, np.bitwise_or, scalar="or"),
    Row("bitwise_xor", "Bits set in exactly one.", BITWISE, BITS, None, np.bitwise_xor, scalar="xor"),
    Row(
        "shift_left",
        "`x << y`; counts outside the width give 0.",
        BITWISE,
        INTEGERS,
        None,
        np.left_shift,
        scalar="shl",
        flops=3,
    ),
    Row(
        "shift_right",
        "`x >> y`, filled with the sign; counts outside the width shift everything out.",
        BITWISE,
        INTEGERS,
        None,
        np.right_shift,
        scalar="shr",
        flops=3,
    ),
)

OP_CLASSES: dict[str, OpClass] = {row.name: row.group for row in (*UNARY, *BINARY)} | {"gelu": FLOATING}
"""What the front end casts operands to before each op."""

SPECS: tuple[OpSpec, ...] = (
    *(make(row, ("x",), UNARY_FOLDS.get(row.name)) for row in UNARY),
    _gelu(),
    *(make(row, ("x", "y"), BINARY_FOLDS.get(row.name)) for row in BINARY),
)
