"""How far each op can take its operands: a rule by op name; an op without one may give anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.interval import INF, UNKNOWN, Interval, combined, monotone, point, products, range_of, rounded
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.tile.facets import Assembly, Gather, View
from tessera.types.dim import product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.number_format import FORMATS
from tessera.types.tensor_type import TensorType


@frozen
class Asked:
    """One op: intervals and types of its operands, the type of its result."""

    operands: tuple[Interval, ...]
    types: tuple[TensorType, ...]
    attributes: Mapping[str, Any]
    result: TensorType

    @property
    def x(self) -> Interval:
        return self.operands[0]

    @property
    def y(self) -> Interval:
        return self.operands[1]


Rule: TypeAlias = Callable[[Asked], Interval]


def _unary(function: Callable[[float], float], *, falls: bool = False) -> Rule:
    return lambda asked: monotone(function, asked.x, falls=falls)


def _domain(function: Callable[[float], float], least: float, at_least: float) -> Rule:
    """A function that rises from `at_least` at `least`, and is NaN below it."""

    def rule(asked: Asked) -> Interval:
        x = asked.x
        low = at_least if x.low <= least else function(x.low)
        high = at_least if x.high <= least else INF if math.isinf(x.high) else function(x.high)
        nan = x.may_be_nan or x.low < least
        return Interval(low, max(low, high), nan, x.is_reached, x.sources)

    return rule


def _fixed(low: float, high: float) -> Rule:
    """A function whose values lie in a range, whatever it is given."""

    def rule(asked: Asked) -> Interval:
        nan = any(one.may_be_nan or math.isinf(one.magnitude) for one in asked.operands)
        sources = frozenset[int]().union(*(one.sources for one in asked.operands))
        return Interval(low, high, nan, False, sources)

    return rule


def _abs(asked: Asked) -> Interval:
    x = asked.x
    low = 0.0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return Interval(low, x.magnitude, x.may_be_nan, x.is_reached, x.sources)


def _add(asked: Asked) -> Interval:
    return combined(asked.x, asked.y, asked.x.low + asked.y.low, asked.x.high + asked.y.high)


def _sub(asked: Asked) -> Interval:
    return combined(asked.x, asked.y, asked.x.low - asked.y.high, asked.x.high - asked.y.low)


def _inverse(y: Interval) -> Interval:
    if y.low <= 0 <= y.high:
        return Interval(
            -INF if y.low < 0 else 1 / y.high if y.high else INF, INF, y.may_be_nan, y.is_reached, y.sources
        )
    return Interval(1 / y.high, 1 / y.low, y.may_be_nan, y.is_reached, y.sources)


def _div(asked: Asked) -> Interval:
    x, y = asked.x, asked.y
    if y.low <= 0 <= y.high:
        # Zero over zero is NaN; anything else over zero is infinite.
        nan = x.low <= 0 <= x.high
        made = Interval(-INF, INF, nan or x.may_be_nan or y.may_be_nan, False, x.sources | y.sources)
        return made if nan else combined(x, y, -INF, INF)
    return products(x, _inverse(y))


def _reciprocal(asked: Asked) -> Interval:
    return _inverse(asked.x)


def _rsqrt(asked: Asked) -> Interval:
    x = asked.x
    low = 0.0 if math.isinf(x.high) else 1 / math.sqrt(x.high) if x.high > 0 else 0.0
    high = INF if x.low <= 0 else 1 / math.sqrt(x.low)
    return Interval(low, high, x.may_be_nan or x.low < 0, x.is_reached, x.sources)


def _mul(asked: Asked) -> Interval:
    return products(asked.x, asked.y)


def _square(x: Interval) -> Interval:
    top = x.magnitude * x.magnitude
    low = 0.0 if x.low <= 0 <= x.high else min(x.low * x.low, x.high * x.high)
    return Interval(low, top, x.may_be_nan, x.is_reached, x.sources)


def _maximum(asked: Asked) -> Interval:
    x, y = asked.x, asked.y
    return combined(x, y, max(x.low, y.low), max(x.high, y.high))


def _minimum(asked: Asked) -> Interval:
    x, y = asked.x, asked.y
    return combined(x, y, min(x.low, y.low), min(x.high, y.high))


def _clamp(asked: Asked) -> Interval:
    x, low, high = asked.operands
    bottom = min(max(x.low, low.low), high.low)
    top = min(max(x.high, low.high), high.high)
    nan = any(one.may_be_nan for one in asked.operands)
    constant = low.low == low.high and high.low == high.high
    return Interval(bottom, top, nan, x.is_reached and constant, x.sources | low.sources | high.sources)


def _hull(asked: Asked) -> Interval:
    made = asked.operands[0]
    for other in asked.operands[1:]:
        made = made.hull(other)
    return made


def _where(asked: Asked) -> Interval:
    return asked.operands[1].hull(asked.operands[2]).guessed()


def _pad(asked: Asked) -> Interval:
    return asked.x.hull(point(float(asked.attributes.get("value", 0.0) or 0.0)))


def _same(asked: Asked) -> Interval:
    return asked.x


def _count(asked: Asked, axes: Sequence[int]) -> float:
    """How many elements meet, or infinity where that is not known."""
    count = product(asked.types[0].shape[axis] for axis in axes).value
    return INF if count is None else float(count)


def _times(x: Interval, count: float, dtype: DType) -> Interval:
    """The sum of so many elements, each of which may have rounded it."""
    grown = count * (1.0 + min(count, 2.0**40) * dtype.compute.epsilon) if math.isfinite(count) else count
    low, high = (0.0 if end == 0 else end * grown for end in (x.low, x.high))
    if count == 0:
        low = high = 0.0
    if math.isinf(count):
        low, high = min(low, 0.0), max(high, 0.0)
    return Interval(low, high, x.may_be_nan or (math.isinf(low) and math.isinf(high)), x.is_reached, x.sources)


def _sum(asked: Asked) -> Interval:
    return _times(asked.x, _count(asked, asked.attributes["axes"]), asked.result.dtype)


def _mean(asked: Asked) -> Interval:
    """The range of the elements, and what as many roundings may add: a share of 2**-6 where nobody knows how many."""
    x, count = asked.x, _count(asked, asked.attributes["axes"])
    slack = min(count * asked.result.dtype.compute.epsilon, 2.0**-6)
    low, high = x.low - abs(x.low) * slack, x.high + abs(x.high) * slack
    return Interval(low, high, x.may_be_nan or math.isinf(x.magnitude) or count == 0, x.is_reached, x.sources)


def _matmul(asked: Asked) -> Interval:
    count = asked.types[0].shape[-1].value if asked.types[0].rank else 1
    return _times(products(asked.x, asked.y), INF if count is None else float(count), asked.result.dtype)


def _dot_general(asked: Asked) -> Interval:
    count = _count(asked, asked.attributes["lhs_contract"])
    return _times(products(asked.x, asked.y), count, asked.result.dtype)


def _normalized(asked: Asked) -> Interval:
    """A row divided by its root mean square: no element exceeds the root of the row's length."""
    axis = asked.attributes.get("axis", -1)
    rank = asked.types[0].rank
    count = _count(asked, range(axis % rank if rank else 0, rank))
    made = Interval(-math.sqrt(count), math.sqrt(count), asked.x.may_be_nan, False, asked.x.sources)
    for position, other in enumerate(asked.operands[1:]):
        made = products(made, other) if position == 0 else _add(Asked((made, other), (), {}, asked.result))
    return made.guessed()


def _log_softmax(asked: Asked) -> Interval:
    x, axis = asked.x, int(asked.attributes["axis"])
    count = asked.types[0].shape[axis].value
    spread = x.low - x.high - (INF if count is None else math.log(max(count, 1)))
    return Interval(-INF if math.isnan(spread) else spread, 0.0, x.may_be_nan, False, x.sources)


def _full(asked: Asked) -> Interval:
    value = asked.attributes["value"]
    return point(float(value)) if isinstance(value, bool | int | float) else UNKNOWN


def _constant(asked: Asked) -> Interval:
    value = asked.attributes["value"]
    if not value.size:
        return point(0.0)
    wide = value.astype("f8")
    return Interval(float(wide.min()), float(wide.max()), bool((wide != wide).any()))


def _iota(asked: Asked) -> Interval:
    size = asked.attributes["shape"][asked.attributes["axis"]].value
    return Interval(0.0, INF if size is None else float(max(size - 1, 0)))


def _uniform(asked: Asked) -> Interval:
    return Interval(float(asked.attributes["low"]), float(asked.attributes["high"]))


def _normal(asked: Asked) -> Interval:
    # Box and Muller's radius is largest for the least share, half a step of 2**-32.
    reach = math.sqrt(-2.0 * math.log(0.5 * 2.0**-32)) * abs(asked.attributes["std"])
    return Interval(asked.attributes["mean"] - reach, asked.attributes["mean"] + reach)


def _pow(asked: Asked) -> Interval:
    x, y = asked.x, asked.y
    if y.low == y.high == 2.0:
        return _square(x)
    if x.low >= 0 and y.low >= 0 and math.isfinite(x.high) and math.isfinite(y.high):
        return combined(x, y, 0.0, max(1.0, x.high) ** y.high).guessed()
    return Interval(-INF, INF, True, False, x.sources | y.sources)


def _round_to(asked: Asked) -> Interval:
    kind, x = FORMATS[asked.attributes["format"]], asked.x
    if asked.attributes["saturation"] or not kind.is_float:
        low = kind.lowest if not kind.is_float else -kind.largest
        nan = x.may_be_nan and kind.is_float
        return Interval(max(x.low, low), min(x.high, kind.largest), nan, False, x.sources).guessed()
    step = 2.0**-kind.mantissa
    low, high = (end + side * (abs(end) * step + kind.smallest) for end, side in ((x.low, -1), (x.high, 1)))
    beyond = x.magnitude > kind.largest * (1 + step / 4)
    reach = INF if beyond else kind.largest
    nan = x.may_be_nan or (beyond and not kind.has_infinity)
    return Interval(max(low, -reach), min(high, reach), nan, x.is_reached, x.sources)


def _cast(asked: Asked) -> Interval:
    x, target = asked.x, asked.result.dtype
    if target.is_bool:
        return Interval(0.0, 1.0)
    if target.is_float:
        nan = x.may_be_nan or (target.name == "f8e4m3" and x.magnitude > 464.0)
        return Interval(x.low, x.high, nan, x.is_reached, x.sources)
    limits = range_of(target)
    if not asked.types[0].dtype.is_float and not (limits.low <= x.low and x.high <= limits.high):
        return limits.guessed()
    return Interval(max(x.low, limits.low), min(x.high, limits.high), False, x.is_reached, x.sources)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else (math.exp(x) / (1 + math.exp(x)))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _gated(least: float) -> Rule:
    """`x` times a share that rises from 0 to 1: a little below zero, and never above `x`."""
    return lambda asked: Interval(
        max(least, min(asked.x.low, 0.0)), max(asked.x.high, 0.0), asked.x.may_be_nan, False, asked.x.sources
    )


def _erf_end(x: float) -> float:
    return math.erf(x)


_RULES: dict[str, Rule] = {
    "neg": _unary(lambda x: -x, falls=True),
    "abs": _abs,
    "sign": _fixed(-1.0, 1.0),
    "exp": _unary(math.exp),
    "exp2": _unary(lambda x: 2.0**x),
    "expm1": _unary(math.expm1),
    "log": _domain(math.log, 0.0, -INF),
    "log2": _domain(math.log2, 0.0, -INF),
    "log1p": _domain(math.log1p, -1.0, -INF),
    "sqrt": _domain(math.sqrt, 0.0, 0.0),
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "sin": _fixed(-1.0, 1.0),
    "cos": _fixed(-1.0, 1.0),
    "tanh": _unary(math.tanh),
    "sigmoid": _unary(_logistic),
    "erf": _unary(_erf_end),
    "relu": _unary(lambda x: max(x, 0.0)),
    "softplus": _unary(_softplus),
    "silu": _gated(-0.2785),
    "gelu": _gated(-0.17),
    **{name: _unary(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
    "round": _unary(round),
    **dict.fromkeys(("isnan", "isinf", "logical_not", "eq", "ne", "lt", "le", "gt", "ge"), _fixed(0.0, 1.0)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "any", "all", "bernoulli"), _fixed(0.0, 1.0)),
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "maximum": _maximum,
    "minimum": _minimum,
    "clamp": _clamp,
    "where": _where,
    "sum": _sum,
    "mean": _mean,
    **dict.fromkeys(("max", "min", "max_pool", "sort", "replicated"), _same),
    "matmul": _matmul,
    "dot_general": _dot_general,
    **dict.fromkeys(("softmax", "softmax_safe"), _fixed(0.0, 1.0)),
    "log_softmax": _log_softmax,
    **dict.fromkeys(("layernorm_safe", "rmsnorm_safe"), _normalized),
    **dict.fromkeys(("attention", "cached_attention"), lambda asked: asked.operands[2].hull(point(0.0)).guessed()),
    "kv_write": lambda asked: asked.operands[0].hull(asked.operands[2]),
    "pad": _pad,
    "full": _full,
    "constant": _constant,
    "iota": _iota,
    "uniform": _uniform,
    "normal": _normal,
    "one_hot": _fixed(0.0, 1.0),
    **dict.fromkeys(("tril", "triu"), lambda asked: asked.x.hull(point(0.0))),
    **dict.fromkeys(("round_to", "round_stochastic"), _round_to),
    "cast": _cast,
    **dict.fromkeys(("take", "embedding", "gather", "index_get", "take_along_axis"), _same),
}


def _rule_of(op: str) -> Rule | None:
    short = REGISTRY[op].short_name
    if short in _RULES:
        return _RULES[short]
    lower = REGISTRY[op].lower
    if isinstance(lower, View | Gather):
        return _same
    return _hull if isinstance(lower, Assembly) else None


def interval_of(record: Record, tape: Tape, known: Mapping[int, Interval]) -> list[Interval]:
    """The intervals of an op's results, from those of its operands; an op that nobody speaks for may give anything."""
    rule = _rule_of(record.op)
    types = tuple(tape.types[value] for value in record.operands)
    operands = tuple(known[value] for value in record.operands)
    found: list[Interval] = []
    for value in record.results:
        result = tape.types[value]
        if rule is None:
            sources = frozenset[int]().union(*(one.sources for one in operands))
            found.append(Interval(-INF, INF, True, False, sources) if result.dtype.is_float else range_of(result.dtype))
            continue
        asked = Asked(operands, types, record.attributes, result)
        made = _without_infinity(_square(operands[0]) if _is_square(record) else rule(asked), operands)
        found.append(made if is_exact(record.op) else rounded(made, result.dtype))
    return found


EXACT = frozenset(
    {"neg", "abs", "sign", "relu", "maximum", "minimum", "clamp", "where", "max", "min", "max_pool", "sort", "tril"}
    | {
        "triu",
        "softmax",
        "softmax_safe",
        "kv_write",
        "one_hot",
        "full",
        "constant",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sin",
        "cos",
    }
)
"""Ops whose results are their operands', or lie in their range to the last bit."""


def is_exact(op: str) -> bool:
    """Whether an op rounds nothing."""
    spec = REGISTRY[op]
    return spec.short_name in EXACT or isinstance(spec.lower, View | Gather | Assembly)


def _is_square(record: Record) -> bool:
    return REGISTRY[record.op].short_name == "mul" and len(set(record.operands)) == 1


def _without_infinity(made: Interval, operands: Sequence[Interval]) -> Interval:
    """What meets an infinity may be NaN next: inf - inf, 0 * inf, inf / inf."""
    if made.may_be_nan or len(operands) < 2:
        return made
    infinite = sum(math.isinf(one.magnitude) for one in operands)
    spans_zero = any(one.low <= 0 <= one.high for one in operands)
    if infinite > 1 or (infinite and spans_zero):
        return Interval(made.low, made.high, True, False, made.sources)
    return made


def intervals(tape: Tape, inputs: Mapping[int, Interval]) -> dict[int, Interval]:
    """The interval of every value of a tape; inputs that are not given lie anywhere in their type."""
    known: dict[int, Interval] = {}
    for value in tape.inputs:
        # Nobody says that inputs go to the ends of their type: only what is given counts as reached.
        own = inputs.get(value) or range_of(tape.types[value].dtype).guessed()
        known[value] = Interval(own.low, own.high, own.may_be_nan, own.is_reached, frozenset((value,)))
    for record in tape.records:
        known.update(zip(record.results, interval_of(record, tape, known), strict=True))
    return known
