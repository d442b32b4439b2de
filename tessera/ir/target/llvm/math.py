"""The scalar functions of the tile language, on vectors of any width: `emit` finds the one for a name and dtype."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.target.llvm import math_erf, math_exp, math_log, math_modulo, math_power, math_trig
from tessera.ir.target.llvm.math_integer import BOOL, INTEGER, Emitter, binary, compare, plain, unary
from tessera.ir.target.llvm.text import FunctionText, Value
from tessera.ir.target.llvm.vector_ops import absolute, add, fma, larger, smaller
from tessera.types.dtype import DType

ULP_BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0),
    "exp2": (1.0, 1.0),
    "expm1": (2.0, 2.0),
    "log": (1.0, 1.0),
    "log2": (1.0, 1.5),
    "log1p": (1.5, 1.5),
    "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5),
    "reciprocal": (0.5, 0.5),
    "tanh": (2.5, 2.5),
    "sigmoid": (2.5, 2.5),
    "silu": (3.0, 3.0),
    "softplus": (2.0, 2.0),
    "erf": (1.0, 1.5),
    "gelu_erf": (6.5, 6.5),
    "gelu_tanh": (3.5, 3.5),
    "sin": (2.0, 2.5),
    "cos": (2.0, 2.5),
    "tan": (4.0, 4.0),
    "atan2": (2.5, 2.5),
    "pow": (1.0, 2.0),
    "mod": (0.5, 0.5),
    "floordiv": (0.5, 1.0),
}
"""Largest error of a function, in units of the last place of its result, for f32 and f64; tests hold it."""

_ORDERED = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _sign(f: FunctionText, x: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    zero = f.const_like(x, 0.0)
    # Adding zero turns -0 into 0 and leaves NaN.
    rest = f.select(f.fcmp("olt", x, zero), f.const_like(x, -1.0), add(f, x, zero))
    return f.select(f.fcmp("ogt", x, zero), f.const_like(x, 1.0), rest)


def _relu(f: FunctionText, x: Value) -> Value:
    """0 below 0; NaN stays."""
    zero = f.const_like(x, 0.0)
    return f.select(f.fcmp("olt", x, zero), zero, x)


def _maximum(f: FunctionText, a: Value, b: Value) -> Value:
    """The larger; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, larger(f, a, b))


def _minimum(f: FunctionText, a: Value, b: Value) -> Value:
    """The smaller; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, smaller(f, a, b))


def _isinf(f: FunctionText, x: Value) -> Value:
    return f.fcmp("oeq", absolute(f, x), f.const_like(x, float("inf")))


def _intrinsic(name: str) -> Emitter:
    return unary(lambda f, x: f.intrinsic(name, x))


def _reciprocal(f: FunctionText, x: Value) -> Value:
    return f.op("fdiv", f.const_like(x, 1.0), x)


_FLOAT: dict[str, Emitter] = {
    "neg": unary(lambda f, x: f.fneg(x)),
    "abs": unary(absolute),
    "sign": unary(_sign),
    "relu": unary(_relu),
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": unary(lambda f, x: _reciprocal(f, f.intrinsic("sqrt", x))),
    "reciprocal": unary(_reciprocal),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _intrinsic("roundeven"),
    "trunc": _intrinsic("trunc"),
    "isnan": unary(lambda f, x: f.fcmp("uno", x, x)),
    "isinf": unary(_isinf),
    "exp": unary(math_exp.exp),
    "exp2": unary(math_exp.exp2),
    "expm1": unary(math_exp.expm1),
    "tanh": unary(math_exp.tanh),
    "sigmoid": unary(math_exp.sigmoid),
    "silu": unary(math_exp.silu),
    "gelu_tanh": unary(math_exp.gelu_tanh),
    "log": unary(math_log.log),
    "log2": unary(math_log.log2),
    "log1p": unary(math_log.log1p),
    "softplus": unary(math_log.softplus),
    "erf": unary(math_erf.erf),
    "gelu_erf": unary(math_erf.gelu_erf),
    "sin": unary(math_trig.sin),
    "cos": unary(math_trig.cos),
    "tan": unary(math_trig.tan),
    "atan2": binary(math_trig.atan2),
    "pow": binary(math_power.power),
    "mod": binary(math_modulo.modulo),
    "floordiv": binary(math_modulo.floor_divide),
    "add": plain("fadd"),
    "sub": plain("fsub"),
    "mul": plain("fmul"),
    "div": plain("fdiv"),
    "max": binary(_maximum),
    "min": binary(_minimum),
    "fma": lambda f, args, signed: fma(f, args[0], args[1], args[2]),
}


def emit(f: FunctionText, name: str, args: Sequence[Value], dtype: DType) -> Value:
    """One function of the table on vectors (or scalars) of a compute dtype; comparisons and tests give i1 lanes.

    Floats are f32 or f64, integers of their own width, bools i1 lanes; all lanes are computed, nothing traps.
    """
    signed = dtype.kind == "int"
    if name in _ORDERED:
        if dtype.is_float:
            return f.fcmp(_ORDERED[name], args[0], args[1])
        return compare(f, name, args[0], args[1], signed)
    table = _FLOAT if dtype.is_float else BOOL if dtype.is_bool else INTEGER
    if name in table:
        return table[name](f, args, signed)
    raise ValueError(f"no `{name}` for {dtype.name}")
