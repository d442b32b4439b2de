"""How a random call of each op is drawn, and what NumPy says it gives."""

# Calls are lambdas here, and NumPy's results have no types to give.
# pyright: basic, reportGeneralTypeIssues=false, reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera import ops
from tests.scalar_table import FUNCTION_OF_OP
from tests.trials.op_calls import EPS, FLOATS, INTEGERS, NUMPY, Array, Call, Draw, result_slack, wide

Family = Callable[[Draw], Call]
FAMILIES: dict[str, Family] = {}


def op_named(name: str) -> Any:
    """The public function of that name."""
    return getattr(ops, name)


def float_result(dtype: str) -> str:
    """What functions of floats make of a dtype: f64 of 64 bits, f32 of other integers."""
    return dtype if dtype in EPS else "f64" if dtype in ("i64", "u64") else "f32"


def sum_result(dtype: str) -> str:
    return dtype if dtype in EPS else "u64" if dtype[0] == "u" else "i64"


def ulps(name: str, dtype: str) -> float:
    bound = FUNCTION_OF_OP[name].ulp if name in FUNCTION_OF_OP else None
    return 0.5 if bound is None else bound[dtype == "f64"]


# Functions of one number.

_erf, _erfc = (np.vectorize(function, otypes=[np.float64]) for function in (math.erf, math.erfc))
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    "exp": (np.exp, np.exp),
    "exp2": (np.exp2, lambda x: np.exp2(x) * 0.7),
    "expm1": (np.expm1, np.exp),
    "log": (np.log, lambda x: 1 / x),
    "log2": (np.log2, lambda x: 1.5 / x),
    "log1p": (np.log1p, lambda x: 1 / (1 + x)),
    "log10": (np.log10, lambda x: 0.5 / x),
    "asin": (np.arcsin, lambda x: 1 / np.sqrt(1 - x * x)),
    "acos": (np.arccos, lambda x: 1 / np.sqrt(1 - x * x)),
    "atan": (np.arctan, None),
    "sinh": (np.sinh, np.cosh),
    "cosh": (np.cosh, np.sinh),
    "asinh": (np.arcsinh, None),
    "acosh": (np.arccosh, lambda x: 1 / np.sqrt(x * x - 1)),
    "atanh": (np.arctanh, lambda x: 1 / (1 - x * x)),
    "sin": (np.sin, np.cos),
    "cos": (np.cos, np.sin),
    "tan": (np.tan, lambda x: 1 + np.tan(x) ** 2),
    "tanh": (np.tanh, None),
    "sqrt": (np.sqrt, None),
    "rsqrt": (lambda x: 1 / np.sqrt(x), None),
    "reciprocal": (lambda x: 1 / x, None),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), None),
    "silu": (lambda x: x / (1 + np.exp(-x)), None),
    "softplus": (lambda x: np.logaddexp(x, 0), None),
    "erf": (lambda x: _erf(x) if x.size else x, None),
    "erfc": (lambda x: _erfc(x) if x.size else x, lambda x: np.exp(-x * x)),
    "gelu": (lambda x: x * 0.5 * (1 + (_erf(x / math.sqrt(2)) if x.size else x)), None),
}


def _unary(name: str) -> Family:
    function, slope = UNARY[name]

    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS)
        x = draw.array(draw.shape(), dtype, special=name not in ("gelu", "silu", "softplus"), scale=1.5)
        if name in ("log", "log2", "sqrt", "rsqrt", "log1p") and draw.chance(0.7):
            x = np.abs(x)
        result = float_result(dtype)
        value = wide(x).astype(np.float64)
        if result == "f32" and dtype not in EPS:
            value = value.astype(np.float32).astype(np.float64)
        exact = function(value)
        # NumPy's own functions in f64 are off by some ulps as well
        off = ulps(name, result) + 1 + (6 if result == "f64" else 0)
        bent = np.abs(np.nan_to_num(slope(value) * value, posinf=0, neginf=0)) if slope is not None else 0.0
        absolute = bent * (result == "f64") + (2 * np.abs(value) if name in ("gelu", "silu") else 0.0)
        slack = result_slack(result, exact, off, np.where(np.isfinite(absolute), absolute, 0.0))
        return Call(op_named(name), [x], [exact], [result], [slack])

    return family


FAMILIES.update({name: _unary(name) for name in UNARY})

SAME: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": np.sign,
    "square": np.square,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
}


def _same(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*(FLOATS if name in ("floor", "ceil", "round", "trunc") else (*FLOATS, *INTEGERS)))
        x = draw.array(draw.shape(), dtype, special=True)
        exact = SAME[name](wide(x))
        return Call(op_named(name), [x], [exact], [dtype], [result_slack(dtype, exact, 1)])

    return family


FAMILIES.update({name: _same(name) for name in SAME})


def _predicate(name: str) -> Family:
    def family(draw: Draw) -> Call:
        x = draw.array(draw.shape(), draw.dtype(*FLOATS), special=True)
        return Call(op_named(name), [x], [getattr(np, name)(wide(x))], ["bool"])

    return family


FAMILIES.update({name: _predicate(name) for name in ("isnan", "isinf", "isfinite", "signbit")})


# Functions of two numbers, which broadcast.


def two(draw: Draw, dtype: str, *, special: bool = True) -> tuple[list[Array], Callable[[Any], Any], Any, Any]:
    """Two operands that broadcast, one of them sometimes a Python number: tensors, how to call, and both as NumPy."""
    shape = draw.shape()
    parts = [list(shape), list(shape)]
    for part in parts:
        for axis in range(len(part)):
            if draw.chance(0.2):
                part[axis] = 1
    keep = draw.number(0, len(shape)) if draw.chance(0.2) else 0
    x, y = draw.array(parts[0], dtype, special=special), draw.array(parts[1][keep:], dtype, special=special)
    if draw.chance(0.25):
        number = draw.pick((0, 1, 2, 3)) if dtype in (*INTEGERS, "bool") else draw.pick((0.5, -2.0, 3, 0.0))
        number = bool(number) if dtype == "bool" else number
        as_array = np.asarray(number).astype(x.dtype)
        if draw.chance(0.5):
            return [x], lambda f: lambda a: f(a, number), x, as_array
        return [x], lambda f: lambda a: f(number, a), as_array, x
    return [x, y], lambda f: f, x, y


def _dynamic(operands: Sequence[Array]) -> bool:
    """Whether each dim may be taken for any size: one that stretches may not."""
    if len(operands) < 2:
        return True
    rank = max(x.ndim for x in operands)
    padded = [(None,) * (rank - x.ndim) + x.shape for x in operands]
    return all(len({size for size in sizes if size is not None}) <= 1 for sizes in zip(*padded, strict=True))


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def _arithmetic(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS, *(("bool",) if name in ("add", "mul", "maximum", "minimum") else ()))
        operands, call, x, y = two(draw, dtype)
        exact = ARITHMETIC[name](wide(x), wide(y))
        slack = result_slack(dtype, exact, 1)
        return Call(call(op_named(name)), operands, [exact], [dtype], [slack], dynamic=_dynamic(operands))

    return family


FAMILIES.update({name: _arithmetic(name) for name in ARITHMETIC})


def _divide(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS)
        operands, call, x, y = two(draw, dtype)
        if name == "div":
            result = float_result(dtype)
            exact = wide(x).astype(np.float64) / wide(y).astype(np.float64)
            return Call(
                call(op_named(name)),
                operands,
                [exact],
                [result],
                [result_slack(result, exact, 3)],
                dynamic=_dynamic(operands),
            )
        a, b = np.broadcast_arrays(wide(x), wide(y))
        function = np.floor_divide if name == "floordiv" else np.mod
        exact = function(a, b)
        if dtype in INTEGERS:
            exact = np.where(b == 0, 0, exact)
        # of a quotient near an integer NumPy's own may be off by one
        slack = result_slack(dtype, exact, 4, 0.0)
        return Call(call(op_named(name)), operands, [exact], [dtype], [slack], dynamic=_dynamic(operands))

    return family


FAMILIES.update({name: _divide(name) for name in ("div", "floordiv", "mod")})


def _power(draw: Draw) -> Call:
    dtype = draw.dtype(*FLOATS)
    operands, call, x, y = two(draw, dtype, special=False)
    exact = np.power(wide(x), wide(y))
    with np.errstate(all="ignore"):
        bent = np.nan_to_num(np.abs(wide(y) * np.log(np.abs(wide(x)))) + np.abs(wide(y)), posinf=0)
    slack = result_slack(dtype, exact, ulps("pow", dtype) + 2 + (8 + bent if dtype == "f64" else 0))
    return Call(call(ops.pow), operands, [exact], [dtype], [slack], dynamic=_dynamic(operands))


FLOAT_PAIRS = {"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign}


def _float_pair(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS)
        operands, call, x, y = two(draw, dtype)
        exact = FLOAT_PAIRS[name](wide(x), wide(y))
        slack = result_slack(dtype, exact, ulps(name, dtype) + 8)
        return Call(call(op_named(name)), operands, [exact], [dtype], [slack], dynamic=_dynamic(operands))

    return family


FAMILIES.update({"pow": _power, **{name: _float_pair(name) for name in FLOAT_PAIRS}})

COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
LOGIC = {name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_xor")}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}


def _to_bool(name: str, function: Any) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS, *(("bool",) if name in (*LOGIC, "eq", "ne") else ()))
        operands, call, x, y = two(draw, dtype)
        return Call(call(op_named(name)), operands, [function(wide(x), wide(y))], ["bool"], dynamic=_dynamic(operands))

    return family


def _bitwise(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*INTEGERS, "bool")
        operands, call, x, y = two(draw, dtype)
        return Call(call(op_named(name)), operands, [BITS[name](x, y)], [dtype], dynamic=_dynamic(operands))

    return family


def _shift(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*INTEGERS)
        x = draw.array(draw.shape(), dtype, special=True)
        y = draw.rng.integers(0, x.dtype.itemsize * 8, x.shape).astype(x.dtype)
        exact = np.left_shift(x, y) if name == "shift_left" else np.right_shift(x, y)
        return Call(op_named(name), [x, y], [exact], [dtype])

    return family


FAMILIES.update({name: _to_bool(name, function) for name, function in (COMPARE | LOGIC).items()})
FAMILIES.update({name: _bitwise(name) for name in BITS})
FAMILIES.update({name: _shift(name) for name in ("shift_left", "shift_right")})


def _not(draw: Draw) -> Call:
    x = draw.array(draw.shape(), draw.dtype(*FLOATS, *INTEGERS, "bool"), special=True)
    return Call(ops.logical_not, [x], [np.logical_not(wide(x))], ["bool"])


def _invert(draw: Draw) -> Call:
    dtype = draw.dtype(*INTEGERS, "bool")
    x = draw.array(draw.shape(), dtype, special=True)
    return Call(ops.bitwise_not, [x], [np.invert(x)], [dtype])


def _where(draw: Draw) -> Call:
    dtype = draw.dtype(*FLOATS, *INTEGERS, "bool")
    operands, call, x, y = two(draw, dtype)
    shape = np.broadcast_shapes(x.shape, y.shape)
    condition = draw.array(shape, draw.dtype("bool", "i32", "f32"), special=True)
    exact = np.where(wide(condition), wide(x), wide(y))
    function = call(lambda a, b: (a, b))
    return Call(
        lambda c, *rest: ops.where(c, *function(*rest)), [condition, *operands], [exact], [dtype],
        dynamic=_dynamic([condition, *operands]),
    )  # fmt: skip


def _clamp(draw: Draw) -> Call:
    dtype = draw.dtype(*FLOATS, *INTEGERS)
    x = draw.array(draw.shape(), dtype, special=True)
    low, high = draw.pick((0, 1, None)), draw.pick((2, 5, None))
    exact = wide(x)
    exact = exact if low is None else np.maximum(exact, exact.dtype.type(low))
    exact = exact if high is None else np.minimum(exact, exact.dtype.type(high))
    return Call(lambda a: ops.clamp(a, low, high), [x], [exact], [dtype])


def _convert(draw: Draw) -> Call:
    source, target = draw.dtype(*FLOATS, *INTEGERS, "bool"), draw.dtype(*FLOATS, *INTEGERS, "bool")
    x = draw.array(draw.shape(), source, special=source not in FLOATS or target in (*FLOATS, "bool"))
    value = wide(x)
    if target in INTEGERS and source in FLOATS:
        limits = np.iinfo(NUMPY[target])
        exact: Any = np.clip(np.trunc(value), float(limits.min), float(limits.max)).astype(NUMPY[target])
        exact = np.where(np.trunc(value) <= float(limits.min), limits.min, exact) if limits.min == 0 else exact
    elif target == "bool":
        exact = value != 0
    elif target in FLOATS:
        exact = value.astype(np.float64)
        slack = result_slack(target, exact, 1)
        return Call(lambda a: ops.astype(a, target), [x], [exact], [target], [slack])
    else:
        exact = value.astype(NUMPY[target])
    return Call(lambda a: ops.cast(a, target), [x], [exact], [target])


FAMILIES.update({"logical_not": _not, "bitwise_not": _invert, "where": _where, "clamp": _clamp})
FAMILIES.update({"cast": _convert, "astype": _convert})


# Reductions, scans and orders.


def _reduce(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS, *(("bool",) if name in ("any", "all", "sum", "max", "min") else ()))
        needs = name in ("max", "min", "argmax", "argmin")
        shape = draw.shape(empty=not needs)
        x = draw.array(shape, dtype, special=name in ("max", "min", "any", "all"), scale=1.0)
        axes, keepdims = draw.axes(len(shape)), draw.chance(0.4)
        if name in ("argmax", "argmin") and not (axes is None or isinstance(axes, int)):
            axes = None
        value = wide(x)
        own = axes if len(shape) or axes is None else ()
        if name in ("argmax", "argmin"):
            own = None if not len(shape) else axes
        exact = getattr(np, name)(value, axis=own, keepdims=keepdims)
        result = {"any": "bool", "all": "bool", "argmax": "i64", "argmin": "i64"}.get(name, dtype)
        slack: Any = 0.0
        if name in ("sum", "prod"):
            result = sum_result(dtype)
            if result not in EPS:
                exact = getattr(np, name)(value.astype(NUMPY[result]), axis=own, keepdims=keepdims)
            count = x.size + 8
            sizes = np.abs(value.astype(np.float64))
            total = getattr(np, name)(sizes, axis=own, keepdims=keepdims)
            slack = result_slack(result, exact, 1, count * total)
        return Call(
            lambda a: op_named(name)(a, axes, keepdims=keepdims), [x], [exact], [result], [slack], f"{axes} {keepdims} "
        )

    return family


FAMILIES.update({name: _reduce(name) for name in ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]})


def _statistic(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS)
        shape = draw.shape(empty=False)
        x = draw.array(shape, dtype)
        axes, keepdims = draw.axes(len(shape)), draw.chance(0.4)
        own = axes if len(shape) or axes is None else ()
        result = float_result(dtype)
        value = wide(x).astype(np.float64)
        count = x.size if own is None else math.prod(shape[axis] for axis in np.atleast_1d(np.asarray(own, int)))
        extra: dict[str, Any] = {}
        top = np.abs(value).max() if x.size else 0.0
        absolute = (count + 16) * top
        if name == "mean":
            exact = value.mean(axis=own, keepdims=keepdims)
        elif name in ("var", "std"):
            extra = {"correction": draw.pick((0, 1)) if count > 1 else 0}
            exact = getattr(np, name)(value, axis=own, keepdims=keepdims, ddof=extra["correction"])
            absolute = (count + 16) * 4 * top * (top if name == "var" else math.sqrt(count + 1))
            if name == "std":  # the root of a variance that is off is off by more where it is small
                absolute = absolute + np.sqrt((count + 16) * 4 * top * top / EPS["f64" if result == "f64" else "f32"])
        elif name == "norm":
            extra = {"order": draw.pick((1, 2, 3, 0.5, math.inf, -math.inf, 0, -1))}
            exact, absolute = _norm(value, own, keepdims, extra["order"]), absolute * 4 * max(1, count)
        else:
            peak = value.max(axis=own, keepdims=True)
            exact = np.log(np.exp(value - peak).sum(axis=own, keepdims=True)) + peak
            exact = exact if keepdims else exact.reshape(value.sum(axis=own).shape)
            absolute = 8 * (top + count + 16)
        slack = result_slack(result, exact, 8, absolute)
        return Call(
            lambda a: op_named(name)(a, axes, keepdims=keepdims, **extra), [x], [exact], [result], [slack],
            f"{axes} {keepdims} {extra} ",
        )  # fmt: skip

    return family


def _norm(value: Array, axes: Any, keepdims: bool, order: float) -> Any:
    size = np.abs(value)
    if math.isinf(order):
        return (np.max if order > 0 else np.min)(size, axis=axes, keepdims=keepdims)
    if order == 0:
        return (size != 0).sum(axis=axes, keepdims=keepdims).astype(np.float64)
    return (size**order).sum(axis=axes, keepdims=keepdims) ** (1 / order)


FAMILIES.update({name: _statistic(name) for name in ("mean", "var", "std", "norm", "logsumexp", "logsumexp_safe")})


def _scan(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS)
        x = draw.array(draw.shape(1), dtype, scale=1.0)
        axis = draw.axis(x.ndim)
        function = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate}[name]
        result = dtype if name == "cummax" else sum_result(dtype)
        value = wide(x) if result in EPS else x.astype(NUMPY[result])
        exact = function(value, axis)
        total = function(np.abs(value.astype(np.float64)), axis)
        slack = result_slack(result, exact, 1, 0 if name == "cummax" else (x.shape[axis] + 4) * total)
        return Call(lambda a: op_named(name)(a, axis), [x], [exact], [result], [slack], f"{axis} ")

    return family


FAMILIES.update({name: _scan(name) for name in ("cumsum", "cumprod", "cummax")})


def _order(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype = draw.dtype(*FLOATS, *INTEGERS, "bool")
        x = draw.array(draw.shape(1, empty=name != "topk"), dtype)
        axis, back = draw.axis(x.ndim), draw.chance(0.4)
        value = (
            wide(x).astype(np.float64)
            if dtype in FLOATS
            else x.astype(object)
            if dtype == "u64"
            else wide(x).astype(np.int64)
        )
        places = np.argsort(-value if back else value, axis=axis, kind="stable")
        picked = np.take_along_axis(wide(x), places, axis)
        if name == "sort":
            return Call(lambda a: ops.sort(a, axis, descending=back), [x], [picked], [dtype], text=f"{axis} {back} ")
        if name == "argsort":
            return Call(lambda a: ops.argsort(a, axis, descending=back), [x], [places], ["i64"], text=f"{axis} {back} ")
        k = draw.number(1, x.shape[axis])
        cut = tuple(slice(0, k) if at == axis % x.ndim else slice(None) for at in range(x.ndim))
        return Call(
            lambda a: ops.topk(a, k, axis, largest=back), [x], [picked[cut], places[cut]], [dtype, "i64"],
            text=f"{k} {axis} {back} ", dynamic=False,
        )  # fmt: skip

    return family


FAMILIES.update({name: _order(name) for name in ("sort", "argsort", "topk")})


# Contractions.


def _product(exact: Any, sizes: Any, dtype: str, depth: int) -> Any:
    return result_slack(dtype, exact, 1, (depth + 4) * sizes)


def _matmul(draw: Draw) -> Call:
    dtype = draw.dtype(*FLOATS, "i32", "i8", "bool")
    batch, (m, k, n) = draw.shape(0, 2), (draw.pick((0, 1, 2, 5, 33)) for _ in range(3))
    left = (*batch, m, k) if draw.chance(0.85) else (k,)
    right = (*(batch if draw.chance(0.5) else ()), k, n) if draw.chance(0.85) else (k,)
    x, y = draw.array(left, dtype, scale=1.0), draw.array(right, dtype, scale=1.0)
    exact = np.matmul(wide(x), wide(y))
    sizes = np.matmul(np.abs(wide(x).astype(np.float64)), np.abs(wide(y).astype(np.float64)))
    return Call(ops.matmul, [x, y], [exact], [dtype], [_product(exact, sizes, dtype, k)])


EQUATIONS = (
    "ij,jk->ik",
    "ij,ij->i",
    "bij,bkj->bik",
    "ii->i",
    "ijk->kj",
    "i,j->ij",
    "ij->",
    "bhqd,bhkd->bhqk",
    "aba->ab",
)


def _einsum(draw: Draw) -> Call:
    dtype, equation = draw.dtype("f32", "f64", "i32"), draw.pick(EQUATIONS)
    sizes = {letter: draw.pick((0, 1, 2, 3, 5, 8)) for letter in "abdhijkq"}
    terms = equation.split("->")[0].split(",")
    operands = [draw.array([sizes[letter] for letter in term], dtype, scale=1.0) for term in terms]
    exact = np.einsum(equation, *map(wide, operands))
    total = np.einsum(equation, *(np.abs(wide(x).astype(np.float64)) for x in operands))
    depth = math.prod(sizes[letter] for letter in {*"".join(terms)} - {*equation.split("->")[1]})
    return Call(
        lambda *xs: ops.einsum(equation, *xs), operands, [exact], [dtype], [_product(exact, total, dtype, depth)],
        f"{equation} ", dynamic=equation not in ("ii->i", "aba->ab"),
    )  # fmt: skip


def _dot_general(draw: Draw) -> Call:
    b, m, k, n = (draw.pick((1, 2, 3, 5)) for _ in range(4))
    dtype = draw.dtype(*FLOATS)
    x, y = draw.array((b, k, m), dtype, scale=1.0), draw.array((n, b, k), dtype, scale=1.0)
    exact = np.einsum("bkm,nbk->bmn", wide(x), wide(y))
    total = np.einsum("bkm,nbk->bmn", np.abs(wide(x)), np.abs(wide(y)))
    function = lambda a, c: ops.dot_general(a, c, contract=((1,), (-1,)), batch=((0,), (1,)))  # noqa: E731
    return Call(function, [x, y], [exact], [dtype], [_product(exact, total, dtype, k)])


def windows(x: Array, spatial: int, taps: int, *, stride: int, padding: int, dilation: int, fill: float) -> Array:
    """[..., windows, taps] of the last axes."""
    kept = x.ndim - spatial
    padded = np.pad(x, [(0, 0)] * kept + [(padding, padding)] * spatial, constant_values=fill)
    spans = ((taps - 1) * dilation + 1,) * spatial
    seen = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=tuple(range(kept, x.ndim)))
    steps, skipped = slice(None, None, stride), slice(None, None, dilation)
    return seen[(slice(None),) * kept + (steps,) * spatial + (skipped,) * spatial]


def _pool(name: str) -> Family:
    def family(draw: Draw) -> Call:
        dtype, spatial = draw.dtype(*FLOATS), draw.number(1, 2)
        taps = draw.number(1, 3)
        stride, padding, dilation = draw.pick((None, 1, 2)), draw.number(0, taps // 2), draw.pick((1, 1, 2))
        need = (taps - 1) * dilation + 1
        x = draw.array((*draw.shape(2, 2, empty=False), *(draw.number(need, need + 4) for _ in range(spatial))), dtype)
        more = {} if stride is None else {"stride": stride}
        form = {"stride": stride or taps, "padding": padding, "dilation": dilation}
        seen = windows(wide(x), spatial, taps, **form, fill=-np.inf if name == "max_pool" else 0.0)
        axes = tuple(range(seen.ndim - spatial, seen.ndim))
        exact = seen.max(axes) if name == "max_pool" else seen.mean(axes)
        total = 0.0 if name == "max_pool" else np.abs(seen).sum(axes)
        window = taps if draw.chance(0.6) else (taps,) * spatial
        slack = result_slack(dtype, exact, 2, total)
        pool = lambda a: op_named(name)(a, window, padding=padding, dilation=dilation, **more)  # noqa: E731
        return Call(pool, [x], [exact], [dtype], [slack], f"{window} {more} {padding} {dilation} ")

    return family


def _conv(name: str) -> Family:
    spatial = int(name[4])

    def family(draw: Draw) -> Call:
        dtype, taps, groups = draw.dtype(*FLOATS), draw.number(1, 3), draw.pick((1, 1, 2))
        stride, padding, dilation = draw.number(1, 2), draw.number(0, 2), draw.number(1, 2)
        need = (taps - 1) * dilation + 1
        n, c, o = draw.number(1, 2), groups * draw.number(1, 2), groups * draw.number(1, 2)
        x = draw.array((n, c, *(draw.number(need, need + 4) for _ in range(spatial))), dtype, scale=1.0)
        w = draw.array((o, c // groups, *(taps,) * spatial), dtype, scale=1.0)
        seen = windows(wide(x), spatial, taps, stride=stride, padding=padding, dilation=dilation, fill=0.0)
        letters = "xyz"[:spatial], "uvw"[:spatial]
        parts: list[list[Any]] = [[], []]
        for group in range(groups):
            own = slice(group * c // groups, (group + 1) * c // groups)
            outs = slice(group * o // groups, (group + 1) * o // groups)
            for part, made in zip(
                parts, ((seen[:, own], wide(w)[outs]), (np.abs(seen[:, own]), np.abs(wide(w)[outs]))), strict=True
            ):
                part.append(np.einsum(f"nc{letters[0]}{letters[1]},oc{letters[1]}->no{letters[0]}", *made))
        exact, total = (np.concatenate(part, 1) for part in parts)
        more = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        depth = c * taps**spatial
        return Call(
            lambda a, b: op_named(name)(a, b, **more), [x, w], [exact], [dtype], [_product(exact, total, dtype, depth)],
            f"{more} ", dynamic=False,
        )  # fmt: skip

    return family


def spread(x: Array, w: Array, groups: int, strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """Each element of [N, C, ...] times [C, O // groups, taps] added to all that its window holds, tap by tap."""
    channels, outs = x.shape[1] // groups, w.shape[1]
    sizes = [
        max((size - 1) * stride + (taps - 1) * dilation + 1, 0)
        for size, taps, stride, dilation in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], outs * groups, *sizes))
    for tap in np.ndindex(w.shape[2:]):
        places = [
            slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
            for at, size, stride, dilation in zip(tap, x.shape[2:], strides, dilations, strict=True)
        ]
        for group in range(groups):
            own = slice(group * channels, (group + 1) * channels)
            made = np.einsum("nc...,co->no...", x[:, own], w[(own, slice(None), *tap)])
            out[(slice(None), slice(group * outs, (group + 1) * outs), *places)] += made
    return out


def _conv_transpose(name: str) -> Family:
    spatial = int(name[-2])

    def family(draw: Draw) -> Call:
        dtype, groups, is_last = draw.dtype(*FLOATS), draw.pick((1, 1, 2, 3)), draw.chance(0.3)
        sizes, taps, strides, dilations = (
            [draw.number(1, most) for _ in range(spatial)] for most in ((7, 5, 4)[spatial - 1], 3, 3, 2)
        )
        more = [draw.number(0, max(pair) - 1) for pair in zip(strides, dilations, strict=True)]
        whole = zip(sizes, taps, strides, dilations, strict=True)
        cuts = [draw.number(0, min(3, ((s - 1) * by + (t - 1) * d + 1) // 2)) for s, t, by, d in whole]
        n, c, o = draw.pick((0, 1, 2)), groups * draw.number(1, 3), draw.number(1, 3)
        x, w = draw.array((n, c, *sizes), dtype, scale=1.0), draw.array((c, o, *taps), dtype, scale=1.0)
        around = [(0, 0), (0, 0), *((0, extra) for extra in more)]
        inner = (slice(None), slice(None), *(slice(cut, -cut or None) for cut in cuts))
        exact, total = (
            np.pad(spread(a, b, groups, strides, dilations), around)[inner]
            for a, b in ((wide(x), wide(w)), (np.abs(wide(x)), np.abs(wide(w))))
        )
        form = {"stride": strides, "padding": cuts, "output_padding": more, "dilation": dilations}
        given = {key: tuple(each) if len(set(each)) > 1 or draw.chance(0.5) else each[0] for key, each in form.items()}
        if is_last:
            x, exact, total = (np.moveaxis(one, 1, -1) for one in (x, exact, total))
        given |= {"groups": groups, "channels_last": is_last}
        slack = _product(exact, total, dtype, c * math.prod(taps))
        return Call(lambda a, b: op_named(name)(a, b, **given), [x, w], [exact], [dtype], [slack], f"{given} ")

    return family


FAMILIES.update({"matmul": _matmul, "einsum": _einsum, "dot_general": _dot_general})
FAMILIES.update({name: _pool(name) for name in ("max_pool", "avg_pool")})
FAMILIES.update({name: _conv(name) for name in ("conv1d", "conv2d", "conv3d")})
FAMILIES.update({f"conv_transpose{axes}d": _conv_transpose(f"conv_transpose{axes}d") for axes in (1, 2, 3)})
