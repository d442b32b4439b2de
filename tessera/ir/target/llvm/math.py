"""The scalar functions on vectors of any width: `emit` writes the one of a name for a dtype."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.ir.target.llvm.vector_ops import absolute, add, larger, smaller
from tessera.types.dtype import DType

Writer: TypeAlias = Callable[[FunctionText, Sequence[Value], bool], Value]
"""Writes one function of the table: the operands, and whether integers are signed."""


def emit(f: FunctionText, name: str, args: Sequence[Value], dtype: DType) -> Value:
    """One function of the table on vectors (or scalars) of a compute dtype; comparisons and tests give i1 lanes.

    Floats are f32 or f64, integers of their own width, bools i1 lanes; all lanes are computed, nothing traps.
    """
    emission = SCALAR_FUNCTIONS[name].emission_for(dtype)
    if not emission:
        raise ValueError(f"no `{name}` for {dtype.name}")
    return _writer(emission, dtype.is_float)(f, args, dtype.kind == "int")


@cache
def _writer(emission: str, is_float: bool) -> Writer:
    """What an entry of the table says of its LLVM: a function of this package, an intrinsic, or an instruction."""
    if ":" in emission:
        module, _, name = emission.partition(":")
        function = getattr(importlib.import_module(f"tessera.ir.target.llvm.{module}"), name)
        if is_float:
            return lambda f, args, signed: function(f, *args)
        return lambda f, args, signed: function(f, *args, signed)
    if emission.startswith("llvm."):
        intrinsic = emission.removeprefix("llvm.")
        return lambda f, args, signed: f.intrinsic(intrinsic, *args)
    instruction, _, predicate = emission.partition(" ")
    if instruction == "fcmp":
        return lambda f, args, signed: f.fcmp(predicate, args[0], args[1])
    if instruction == "icmp":
        prefixes = ("", "") if predicate in ("eq", "ne") else ("u", "s")
        return lambda f, args, signed: f.icmp(prefixes[signed] + predicate, args[0], args[1])
    if instruction == "fneg":
        return lambda f, args, signed: f.fneg(args[0])
    return lambda f, args, signed: f.op(instruction, args[0], args[1])


# Functions of floats that need a line or two.


def sign(f: FunctionText, x: Value) -> Value:
    """-1, 0 or 1; NaN stays."""
    zero = f.const_like(x, 0.0)
    # Adding zero turns -0 into 0 and leaves NaN.
    others = f.select(f.fcmp("olt", x, zero), f.const_like(x, -1.0), add(f, x, zero))
    return f.select(f.fcmp("ogt", x, zero), f.const_like(x, 1.0), others)


def relu(f: FunctionText, x: Value) -> Value:
    """0 below 0; NaN stays."""
    zero = f.const_like(x, 0.0)
    return f.select(f.fcmp("olt", x, zero), zero, x)


def maximum(f: FunctionText, a: Value, b: Value) -> Value:
    """The larger; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, larger(f, a, b))


def minimum(f: FunctionText, a: Value, b: Value) -> Value:
    """The smaller; NaN where either is."""
    return f.select(f.fcmp("uno", a, a), a, smaller(f, a, b))


def isnan(f: FunctionText, x: Value) -> Value:
    """Whether `x` is not a number."""
    return f.fcmp("uno", x, x)


def isinf(f: FunctionText, x: Value) -> Value:
    """Whether `x` is infinite."""
    return f.fcmp("oeq", absolute(f, x), f.const_like(x, float("inf")))


def reciprocal(f: FunctionText, x: Value) -> Value:
    """`1 / x`."""
    return f.op("fdiv", f.const_like(x, 1.0), x)


def rsqrt(f: FunctionText, x: Value) -> Value:
    """`1 / sqrt(x)`."""
    return reciprocal(f, f.intrinsic("sqrt", x))
