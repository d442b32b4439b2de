"""The table of scalar functions: one entry each, from which everything that knows the function is made.

From an entry come the graph op with its tests (`ir/graph/ops/elementwise.py`), the public function
(`frontend/functions/scalar.py`), the function of the kernel language (`frontend/kernel/scalar.py`), the function of
both `elementwise` ops, the code that LLVM gets (`ir/target/llvm/math.py`), the error bounds that tests hold it to, and
the rules of numerics policies and range proofs. An entry names its NumPy reference and its LLVM writer by strings,
which are looked up when they are first needed: tracing loads neither NumPy nor llvmlite for this table.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tessera.ir.base import interval as bounds
from tessera.ir.base.interval import ANYTHING, BOOLEAN, INF, IntervalRule, always_within, gate, monotone, rising_from
from tessera.ir.base.spec import (
    ANY,
    BITS,
    BOOL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    ROUND,
    Attributes,
    PolicyRule,
    Producer,
    Simplifier,
    Simplify,
)
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import ARITHMETIC, BITWISE, COMPARISON, FLOATING, LOGICAL, PREDICATE, OpClass, holds
from tessera.types.shape import Shape

if TYPE_CHECKING:
    from tessera.ir.base.op import SpecOp


# Simplifications that ops declare: what rules ask of values, and the rules that several ops share.

Unit: TypeAlias = Callable[[Any, DType], bool]
"""Whether a number, beside an operand of a dtype, changes nothing."""


# Questions about values.


def uniform_value(simplifier: Simplifier, value: Any) -> float | int | bool | None:
    """The one number a value holds in all its elements, where its producers say so."""
    producer = simplifier.producer(value)
    if producer is None:
        return None
    if producer.moves_elements:
        return uniform_value(simplifier, producer.operands[0])
    if producer.name == "full":
        return producer.attributes["value"]
    if producer.name == "constant":
        return uniform_element(producer.attributes["value"])
    return None


def uniform_element(array: Any) -> float | int | bool | None:
    """The one number all elements of an array are, bit for bit; None for an empty or a varied array."""
    flat = array.reshape(-1)
    if not flat.size or any(flat[:1].tobytes() != flat[at : at + 1].tobytes() for at in range(1, flat.size)):
        return None
    return flat[0].item()


def producer_named(simplifier: Simplifier, value: Any, name: str) -> Producer | None:
    """The producer of a value, if it is the op of that name."""
    producer = simplifier.producer(value)
    return producer if producer is not None and producer.name == name else None


def keeps_shape(kept: Shape, dropped: Shape) -> bool:
    """Whether broadcasting `kept` with `dropped` gives the shape of `kept`."""
    if len(dropped) > len(kept):
        return False
    tail = kept[len(kept) - len(dropped) :]
    return all(theirs.value == 1 or theirs == ours for ours, theirs in zip(tail, dropped, strict=True))


# Rules of many ops.


def drop_double(name: str) -> Simplify:
    """Rewrite f(f(x)) to x."""

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        inner = producer_named(simplifier, operands[0], name)
        return None if inner is None else inner.operands[0]

    return simplify


def drop_repeated(name: str) -> Simplify:
    """Rewrite f(f(x)) to f(x)."""

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        return None if producer_named(simplifier, operands[0], name) is None else operands[0]

    return simplify


def drop_unit(right: Unit, left: Unit | None = None) -> Simplify:
    """Rewrite f(x, u) to x for a right unit u, and f(u, x) to x for a left one, where the shape stays."""

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        for kept, dropped, is_unit in ((0, 1, right), (1, 0, left)):
            if is_unit is None:
                continue
            number, kept_type = uniform_value(simplifier, operands[dropped]), simplifier.type_of(operands[kept])
            if number is None or not is_unit(number, kept_type.dtype):
                continue
            if keeps_shape(kept_type.shape, simplifier.type_of(operands[dropped]).shape):
                return operands[kept]
        return None

    return simplify


def drop_same(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite f(x, x) to x."""
    return operands[0] if operands[0] is operands[1] else None


def first_of(*rules: Simplify) -> Simplify:
    """The first of several rules that applies."""

    def simplify(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
        return next((found for one in rules if (found := one(simplifier, operands, attributes)) is not None), None)

    return simplify


# Units.


def adds_nothing(number: Any, dtype: DType) -> bool:
    """The unit of `+`: of floats -0.0 alone, as -0.0 + 0.0 is 0.0."""
    return _is_negative_zero(number) if dtype.is_float else number == 0


def subtracts_nothing(number: Any, dtype: DType) -> bool:
    """The right unit of `-`."""
    return number == 0 and not (dtype.is_float and _is_negative_zero(number))


def is_one(number: Any, dtype: DType) -> bool:
    """The unit of `*` and `/`."""
    return number == 1


def is_one_integer(number: Any, dtype: DType) -> bool:
    """The unit of `//`, which rounds floats."""
    return number == 1 and dtype.is_integer


def is_zero(number: Any, dtype: DType) -> bool:
    """The unit of `|`, `^` and shifts."""
    return number == 0


def has_all_bits(number: Any, dtype: DType) -> bool:
    """The unit of `&`."""
    return number == (1 if dtype.is_bool else (1 << dtype.bits) - 1 if dtype.kind == "uint" else -1)


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1.0, number) < 0


# Rules of one op.


def square_power(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite x ** 2 to x * x, which is rounded correctly too."""
    x, y = operands
    if uniform_value(simplifier, y) != 2 or not keeps_shape(simplifier.type_of(x).shape, simplifier.type_of(y).shape):
        return None
    return simplifier.emit("mul", x, x)


def simplify_where(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite where(c, x, x) to x, and where of a known condition to its branch, where the shape stays."""
    condition, x, y = operands
    known = uniform_value(simplifier, condition)
    if x is not y and known is None:
        return None
    kept, other = (x, y) if x is y or known else (y, x)
    shapes = [simplifier.type_of(value).shape for value in (kept, condition, other)]
    return kept if all(keeps_shape(shapes[0], shape) for shape in shapes[1:]) else None


def simplify_cast(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a cast to the same dtype, and rewrite cast(cast(x)) to cast(x) where the inner one loses nothing."""
    source, target = simplifier.type_of(operands[0]).dtype, attributes["dtype"]
    if source is target:
        return operands[0]
    inner = producer_named(simplifier, operands[0], "cast")
    if inner is None:
        return None
    origin = simplifier.type_of(inner.operands[0]).dtype
    # An integer that is too large wraps, and saturates where it comes as a float.
    saturates = source.is_float and origin.is_integer and target.is_integer and not holds(target, origin)
    if not holds(source, origin) or saturates:
        return None
    return inner.operands[0] if origin is target else simplifier.emit("cast", inner.operands[0], dtype=target)


def simplify_bitcast(simplifier: Simplifier, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a bitcast to the same dtype, and one that undoes another."""
    if attributes["source"] is attributes["dtype"]:
        return operands[0]
    inner = producer_named(simplifier, operands[0], "bitcast")
    return inner.operands[0] if inner is not None and inner.attributes["source"] is attributes["dtype"] else None


@frozen
class GraphOp:
    """A graph op, and public function, that computes a scalar function: its name, dtypes and rules."""

    name: str
    summary: str
    group: OpClass
    dtypes: tuple[str, ...]
    interval: IntervalRule
    simplify: Simplify | None = None


@frozen
class ScalarFunction:
    """One function of scalars.

    `group` says what operands are cast to and what the result is, `dtypes` what the function takes. `reference` is
    its meaning on f64 arrays: "numpy:exp", or the name of a function of `ir/base/scalar_reference.py`;
    `integer_reference` that on integers, where it differs. `emit`, `emit_integer` and `emit_bool` write LLVM for the
    three kinds of operands: an instruction ("fadd"), a comparison ("fcmp oeq"), an intrinsic ("llvm.sqrt"), or a
    function of a file of `ir/target/llvm` ("math_exp:exp"). `ulp` is the largest error in units of the last place of
    f32 and of f64, None for a function that is exact or correctly rounded. `interval` bounds its result
    (`ir/base/interval.py`), `flops` its cost for one element; an `is_expensive` value is kept rather than computed
    twice. `samples` are the numbers it is tried with: "everything", "positive", "tame" (nothing huge or infinite,
    where there is no limit worth a promise) or "powers".

    The graph op is named as the function is, or `op`; a function with several graph ops lists them as `ops`, which is
    empty for one that only kernels call. `kernel` is the name in the kernel language ("" for none, None for that of
    the op). One that `keeps_zero` gives 0 for 0, so that what pads a ragged tile stays zero and needs no mask. Its
    derivative is in `ir/base/scalar_derivatives.py`.
    """

    name: str
    summary: str
    reference: str
    arity: int = 1
    group: OpClass = FLOATING
    dtypes: tuple[str, ...] = FLOATS
    integer_reference: str = ""
    emit: str = ""
    emit_integer: str = ""
    emit_bool: str = ""
    ulp: tuple[float, float] | None = None
    interval: IntervalRule | None = None
    flops: int = 1
    is_expensive: bool = False
    samples: str = "everything"
    simplify: Simplify | None = None
    policy: PolicyRule = ROUND
    op: str = ""
    ops: tuple[GraphOp, ...] | None = None
    kernel: str | None = None
    keeps_zero: bool = False

    @property
    def is_predicate(self) -> bool:
        """Whether it gives bool; all others give the dtype they take."""
        return self.group in (PREDICATE, COMPARISON)

    @property
    def takes_integers(self) -> bool:
        return "i32" in self.dtypes

    @property
    def graph_ops(self) -> tuple[GraphOp, ...]:
        """The graph ops that compute it."""
        if self.ops is not None:
            return self.ops
        assert self.interval is not None
        return (GraphOp(self.op or self.name, self.summary, self.group, self.dtypes, self.interval, self.simplify),)

    @property
    def kernel_name(self) -> str:
        """What the kernel language calls it, or nothing."""
        return self.op or self.name if self.kernel is None else self.kernel

    def emission_for(self, dtype: DType) -> str:
        """The writer for operands of a dtype; empty where there is none."""
        return self.emit if dtype.is_float else self.emit_bool if dtype.is_bool else self.emit_integer


SCALAR_FUNCTIONS: dict[str, ScalarFunction] = {}
"""Every scalar function by its name in tiles."""


def declare(function: ScalarFunction) -> None:
    """Add an entry to the table; raises TypeError for one that lacks what its dtypes need."""

    def fail(field: str, why: str) -> TypeError:
        return TypeError(f"scalar function `{function.name}` lacks `{field}`: {why}")

    if function.name in SCALAR_FUNCTIONS:
        raise TypeError(f"scalar function `{function.name}` is declared twice")
    if function.interval is None and function.ops is None:
        raise fail("interval", "range proofs need a rule of `ir/base/interval.py`; `ANYTHING` says that there is none")
    needed = (("emit", "f32", "floats"), ("emit_integer", "i32", "integers"), ("emit_bool", "bool", "bools"))
    for field, dtype, kind in needed:
        if dtype in function.dtypes and not getattr(function, field):
            raise fail(field, f'it takes {kind}, for which LLVM needs a writer, as in `{field}="math_log:log"`')
    if function.emit.startswith("math_") and function.ulp is None:
        raise fail("ulp", "an approximation states its largest error for f32 and f64, as in `ulp=(1.0, 1.5)`")
    SCALAR_FUNCTIONS[function.name] = function


@cache
def resolve(reference: str) -> Callable[..., Any]:
    """The function that a `reference` names."""
    module, _, name = reference.rpartition(":")
    return getattr(importlib.import_module(module or "tessera.ir.base.scalar_reference"), name)


def evaluate_number(function: ScalarFunction, x: float) -> float:
    """A function of one operand at a number, by its reference."""
    import numpy as np  # noqa: PLC0415 - kernels are traced without NumPy unless they ask for this

    with np.errstate(all="ignore"):
        return float(resolve(function.reference)(np.float64(x)))


def function_of(op: SpecOp, what: str) -> ScalarFunction:
    """The function that an op names and has the operands for; `what` those are. Fails the op where it does not."""
    name = op.value("fn")
    function = SCALAR_FUNCTIONS.get(name)
    if function is None:
        op.fail(f"there is no elementwise function `{name}`")
    if len(op.operands) != function.arity:
        op.fail(f"`{name}` takes {function.arity} {what}, got {len(op.operands)}")
    return function


# The table, wrapped by hand so that an entry is two or three lines.
# fmt: off

# Signs and parts of a number.

_SATURATING = PolicyRule("round", saturates=True)

declare(ScalarFunction("neg", "`-x`; unsigned integers wrap.", "numpy:negative", group=ARITHMETIC, dtypes=NUMBERS,
    emit="fneg", emit_integer="math_integer:negate", interval=monotone(lambda x: -x, falls=True, is_exact=True),
    simplify=drop_double("neg"), policy=_SATURATING, kernel="", keeps_zero=True))
declare(ScalarFunction("abs", "`|x|`; the smallest signed integer is its own.", "numpy:abs", group=ARITHMETIC,
    dtypes=NUMBERS, emit="llvm.fabs", emit_integer="math_integer:absolute", interval=bounds.ABSOLUTE,
    simplify=drop_repeated("abs"), policy=_SATURATING, keeps_zero=True))
declare(ScalarFunction("sign", "-1, 0 or 1 by the sign of `x`; NaN stays.", "numpy:sign", group=ARITHMETIC,
    dtypes=NUMBERS, emit="math:sign", emit_integer="math_integer:sign",
    interval=always_within(-1.0, 1.0, is_exact=True), flops=2, simplify=drop_repeated("sign"),
    keeps_zero=True))
declare(ScalarFunction("relu", "`max(x, 0)`; NaN stays.", "relu", group=ARITHMETIC, dtypes=NUMBERS, emit="math:relu",
    emit_integer="math_integer:relu", interval=monotone(lambda x: max(x, 0.0), is_exact=True),
    simplify=drop_repeated("relu"), keeps_zero=True))
for _name, _summary, _reference, _intrinsic, _number in (
    ("floor", "Largest integer not above `x`.", "numpy:floor", "llvm.floor", math.floor),
    ("ceil", "Smallest integer not below `x`.", "numpy:ceil", "llvm.ceil", math.ceil),
    ("round", "Nearest integer, halves to the even one.", "numpy:rint", "llvm.roundeven", round),
    ("trunc", "`x` without its fraction.", "numpy:trunc", "llvm.trunc", math.trunc),
):
    declare(ScalarFunction(_name, _summary, _reference, emit=_intrinsic, emit_integer="math_integer:identity",
        interval=monotone(_number, is_exact=True), simplify=drop_repeated(_name),
        kernel=None if _name in ("floor", "ceil") else "", keeps_zero=True))
for _name, _summary, _writer in (
    ("isnan", "Whether `x` is not a number.", "math:isnan"),
    ("isinf", "Whether `x` is infinite.", "math:isinf"),
):
    declare(ScalarFunction(_name, _summary, f"numpy:{_name}", group=PREDICATE, emit=_writer,
        emit_integer="math_integer:never", emit_bool="math_integer:never", interval=BOOLEAN))

# Exponentials and logarithms.

declare(ScalarFunction("exp", "e to the power `x`.", "numpy:exp", emit="math_exp:exp", ulp=(1.0, 1.0),
    interval=monotone(math.exp), flops=10, is_expensive=True))
declare(ScalarFunction("exp2", "2 to the power `x`.", "numpy:exp2", emit="math_exp:exp2", ulp=(1.0, 1.0),
    interval=monotone(lambda x: 2.0**x), flops=9, is_expensive=True))
declare(ScalarFunction("expm1", "`exp(x) - 1` without cancellation near zero.", "numpy:expm1", emit="math_exp:expm1",
    ulp=(2.0, 2.0), interval=monotone(math.expm1), flops=12, is_expensive=True, kernel="", keeps_zero=True))
declare(ScalarFunction("log", "Natural logarithm; of a negative number NaN.", "numpy:log", emit="math_log:log",
    ulp=(1.0, 1.0), interval=rising_from(0.0, -INF, math.log), flops=12, is_expensive=True, samples="positive"))
declare(ScalarFunction("log2", "Logarithm to base 2.", "numpy:log2", emit="math_log:log2", ulp=(1.0, 1.5),
    interval=rising_from(0.0, -INF, math.log2), flops=12, is_expensive=True, samples="positive"))
declare(ScalarFunction("log10", "Logarithm to base 10.", "numpy:log10", emit="math_log:log10", ulp=(1.5, 1.5),
    interval=rising_from(0.0, -INF, math.log10), flops=14, is_expensive=True, samples="positive", kernel=""))
declare(ScalarFunction("log1p", "`log(1 + x)` without cancellation near zero.", "numpy:log1p", emit="math_log:log1p",
    ulp=(1.5, 1.5), interval=rising_from(-1.0, -INF, math.log1p), flops=14, is_expensive=True, samples="positive",
    kernel="", keeps_zero=True))

# Roots and quotients of one operand.

declare(ScalarFunction("sqrt", "Square root.", "numpy:sqrt", emit="llvm.sqrt", ulp=(0.5, 0.5),
    interval=rising_from(0.0, 0.0, math.sqrt), flops=4, samples="positive", keeps_zero=True))
declare(ScalarFunction("rsqrt", "One over the square root.", "rsqrt", emit="math:rsqrt", ulp=(1.5, 1.5),
    interval=bounds.RSQRT, flops=5, samples="positive"))
declare(ScalarFunction("reciprocal", "One over `x`.", "reciprocal", emit="math:reciprocal", ulp=(0.5, 0.5),
    interval=bounds.RECIPROCAL, flops=4))

# Angles.

declare(ScalarFunction("sin", "Sine.", "numpy:sin", emit="math_trig:sin", ulp=(2.0, 2.5),
    interval=always_within(-1.0, 1.0, is_exact=True), flops=16, is_expensive=True, samples="tame", keeps_zero=True))
declare(ScalarFunction("cos", "Cosine.", "numpy:cos", emit="math_trig:cos", ulp=(2.0, 2.5),
    interval=always_within(-1.0, 1.0, is_exact=True), flops=16, is_expensive=True, samples="tame"))
declare(ScalarFunction("tan", "Tangent.", "numpy:tan", emit="math_trig:tan", ulp=(4.0, 4.0), interval=ANYTHING,
    flops=24, is_expensive=True, samples="tame", kernel="", keeps_zero=True))
declare(ScalarFunction("atan2", "Angle of the point (`y`, `x`), from -pi to pi: `x` is the ordinate.",
    "numpy:arctan2", arity=2, emit="math_trig:atan2", ulp=(2.5, 2.5), interval=ANYTHING, flops=24, is_expensive=True,
    kernel=""))

declare(ScalarFunction("asin", "Angle whose sine is `x`, from -pi/2 to pi/2; NaN beyond 1.", "numpy:arcsin",
    emit="math_trig:asin", ulp=(3.0, 3.0), interval=ANYTHING, flops=30, is_expensive=True, kernel="", keeps_zero=True))
declare(ScalarFunction("acos", "Angle whose cosine is `x`, from 0 to pi; NaN beyond 1.", "numpy:arccos",
    emit="math_trig:acos", ulp=(3.0, 3.0), interval=ANYTHING, flops=30, is_expensive=True, kernel=""))
declare(ScalarFunction("atan", "Angle whose tangent is `x`, from -pi/2 to pi/2.", "numpy:arctan",
    emit="math_trig:atan", ulp=(2.5, 2.5), interval=monotone(math.atan), flops=24, is_expensive=True, kernel="",
    keeps_zero=True))

# Hyperbolic functions; the tangent is among the activations.

declare(ScalarFunction("sinh", "Hyperbolic sine.", "numpy:sinh", emit="math_trig:sinh", ulp=(3.0, 3.0),
    interval=monotone(math.sinh), flops=26, is_expensive=True, kernel="", keeps_zero=True))
declare(ScalarFunction("cosh", "Hyperbolic cosine.", "numpy:cosh", emit="math_trig:cosh", ulp=(2.0, 2.0),
    interval=bounds.COSH, flops=16, is_expensive=True, kernel=""))
declare(ScalarFunction("asinh", "Inverse of the hyperbolic sine.", "numpy:arcsinh", emit="math_trig:asinh",
    ulp=(3.0, 3.0), interval=monotone(math.asinh), flops=30, is_expensive=True, kernel="", keeps_zero=True))
declare(ScalarFunction("acosh", "Inverse of the hyperbolic cosine; NaN below 1.", "numpy:arccosh",
    emit="math_trig:acosh", ulp=(3.0, 3.0), interval=rising_from(1.0, 0.0, math.acosh), flops=28,
    is_expensive=True, kernel=""))
declare(ScalarFunction("atanh", "Inverse of the hyperbolic tangent; NaN beyond 1.", "numpy:arctanh",
    emit="math_trig:atanh", ulp=(3.5, 3.5), interval=ANYTHING, flops=24, is_expensive=True, kernel="",
    keeps_zero=True))

# Activations.

declare(ScalarFunction("tanh", "Hyperbolic tangent.", "numpy:tanh", emit="math_exp:tanh", ulp=(2.5, 2.5),
    interval=monotone(math.tanh), flops=14, is_expensive=True, keeps_zero=True))
declare(ScalarFunction("sigmoid", "`1 / (1 + exp(-x))`.", "sigmoid", emit="math_exp:sigmoid", ulp=(2.5, 2.5),
    interval=monotone(bounds.logistic), flops=14, is_expensive=True))
declare(ScalarFunction("erf", "Error function.", "erf", emit="math_exp:erf", ulp=(1.0, 1.5),
    interval=monotone(math.erf), flops=14, is_expensive=True, keeps_zero=True))
declare(ScalarFunction("erfc", "1 less the error function, with all digits in its tail.", "erfc", emit="math_exp:erfc",
    ulp=(8.0, 6.0), interval=monotone(math.erfc, falls=True), flops=34, is_expensive=True, kernel=""))
declare(ScalarFunction("silu", "`x * sigmoid(x)`.", "silu", emit="math_exp:silu", ulp=(3.0, 3.0),
    interval=gate(-0.2785), flops=15, is_expensive=True, samples="tame", keeps_zero=True))
declare(ScalarFunction("softplus", "`log(1 + exp(x))` without overflow.", "softplus", emit="math_log:softplus",
    ulp=(2.0, 2.0), interval=monotone(bounds.softplus), flops=24, is_expensive=True, kernel=""))
# The graph op `gelu` has an attribute that chooses between the two.
declare(ScalarFunction("gelu_erf", "`x` times the normal distribution function of `x`.", "gelu_erf",
    emit="math_exp:gelu_erf", ulp=(6.5, 6.5), ops=(), kernel="gelu", keeps_zero=True))
declare(ScalarFunction("gelu_tanh", "The tanh formula for `gelu`.", "gelu_tanh", emit="math_exp:gelu_tanh",
    ulp=(3.5, 3.5), ops=(), kernel="", keeps_zero=True))

# Arithmetic of several operands.

for _name, _operator, _reference, _interval, _simplify in (
    ("add", "+", "add", bounds.ADD, drop_unit(adds_nothing, adds_nothing)),
    ("sub", "-", "subtract", bounds.SUBTRACT, drop_unit(subtracts_nothing)),
    ("mul", "*", "multiply", bounds.MULTIPLY, drop_unit(is_one, is_one)),
):
    declare(ScalarFunction(_name, f"`x {_operator} y`.", f"numpy:{_reference}", arity=2, group=ARITHMETIC,
        dtypes=NUMBERS, emit=f"f{_name}", emit_integer=_name, emit_bool={"add": "or", "mul": "and"}.get(_name, ""),
        interval=_interval, simplify=_simplify, policy=_SATURATING, kernel=""))
declare(ScalarFunction("div", "`x / y`; integers become floats first.", "numpy:divide", arity=2, emit="fdiv",
    interval=bounds.DIVIDE, flops=4, simplify=drop_unit(is_one), kernel=""))
declare(ScalarFunction("floordiv", "`x / y` rounded down; integers by zero give 0.", "floordiv", arity=2,
    group=ARITHMETIC, dtypes=NUMBERS, integer_reference="numpy:floor_divide", emit="math:floor_divide",
    emit_integer="math_integer:floor_divide", ulp=(0.5, 1.0), interval=ANYTHING, flops=12, samples="tame",
    simplify=drop_unit(is_one_integer), kernel=""))
declare(ScalarFunction("mod", "What `x // y` leaves, with the sign of `y`; integers by zero give 0.", "numpy:mod",
    arity=2, group=ARITHMETIC, dtypes=NUMBERS, emit="math:modulo", emit_integer="math_integer:modulo", ulp=(0.5, 0.5),
    interval=ANYTHING, flops=12, samples="tame", kernel=""))
declare(ScalarFunction("pow", "`x` to the power `y`; integers wrap.", "numpy:power", arity=2, group=ARITHMETIC,
    dtypes=NUMBERS, integer_reference="integer_pow", emit="math_log:power", emit_integer="math_integer:power",
    ulp=(1.0, 2.0), interval=bounds.POWER, flops=30, is_expensive=True, samples="powers",
    simplify=first_of(drop_unit(is_one), square_power), kernel=""))
declare(ScalarFunction("hypot", "`sqrt(x**2 + y**2)` without overflow.", "numpy:hypot", arity=2, emit="math:hypot",
    ulp=(1.0, 2.0), interval=ANYTHING, flops=12, kernel=""))
declare(ScalarFunction("copysign", "The magnitude of `x` with the sign of `y`.", "numpy:copysign", arity=2,
    emit="math:copysign", interval=ANYTHING, kernel=""))
# Tile passes make it; the kernel language has it by hand, as the only function of three.
declare(ScalarFunction("fma", "`x * y + z`, rounded once.", "fma", arity=3, group=ARITHMETIC, dtypes=NUMBERS,
    emit="llvm.fma", emit_integer="math_integer:multiply_add", ops=(), kernel=""))
for _name, _public, _summary, _rule in (
    ("max", "maximum", "The larger; NaN where either is.", bounds.MAXIMUM),
    ("min", "minimum", "The smaller; NaN where either is.", bounds.MINIMUM),
):
    declare(ScalarFunction(_name, _summary, _public, arity=2, group=ARITHMETIC, dtypes=NUMBERS,
        emit=f"math:{_public}", emit_integer=f"math_integer:{_public}", emit_bool={"max": "or", "min": "and"}[_name],
        interval=_rule, simplify=drop_same, op=_public))

# Comparisons.

for _name, _sign, _reference, _ordered in (
    ("eq", "==", "equal", "oeq"),
    ("ne", "!=", "not_equal", "une"),
    ("lt", "<", "less", "olt"),
    ("le", "<=", "less_equal", "ole"),
    ("gt", ">", "greater", "ogt"),
    ("ge", ">=", "greater_equal", "oge"),
):
    declare(ScalarFunction(_name, f"`x {_sign} y`.", f"numpy:{_reference}", arity=2, group=COMPARISON, dtypes=ANY,
        emit=f"fcmp {_ordered}", emit_integer=f"icmp {_name}", emit_bool=f"icmp {_name}", interval=BOOLEAN,
        kernel=""))

# Logic and bits: each function has a graph op for bools and one for bits.

declare(ScalarFunction("not", "The opposite of a bool; all bits of an integer inverted.", "numpy:invert",
    group=BITWISE, dtypes=BITS, emit_integer="math_integer:invert", emit_bool="math_integer:invert_bool",
    ops=(
        GraphOp("logical_not", "Whether `x` is false.", LOGICAL, BOOL, BOOLEAN, drop_double("logical_not")),
        GraphOp("bitwise_not", "All bits inverted; of a bool, its opposite.", BITWISE, BITS, ANYTHING,
            drop_double("bitwise_not")),
    ), kernel=""))
_AND_UNIT = drop_unit(has_all_bits, has_all_bits)
_OR_UNIT = drop_unit(is_zero, is_zero)
for _name, _logical, _bitwise, _simplify in (
    ("and", "Whether both are true.", "Bits set in both.", first_of(drop_same, _AND_UNIT)),
    ("or", "Whether at least one is true.", "Bits set in either.", first_of(drop_same, _OR_UNIT)),
    ("xor", "Whether exactly one is true.", "Bits set in exactly one.", _OR_UNIT),
):
    declare(ScalarFunction(_name, f"The {_name} of bools, or of the bits of integers.", f"numpy:bitwise_{_name}",
        arity=2, group=BITWISE, dtypes=BITS, emit_integer=_name, emit_bool=_name,
        ops=(
            GraphOp(f"logical_{_name}", _logical, LOGICAL, BOOL, BOOLEAN, _simplify),
            GraphOp(f"bitwise_{_name}", _bitwise, BITWISE, BITS, ANYTHING, _simplify),
        ), kernel=""))
declare(ScalarFunction("shl", "`x << y`; counts outside the width give 0.", "numpy:left_shift", arity=2,
    group=BITWISE, dtypes=INTEGERS, emit_integer="math_integer:shift_left", interval=ANYTHING, flops=3,
    simplify=drop_unit(is_zero), op="shift_left", kernel=""))
declare(ScalarFunction("shr", "`x >> y`, filled with the sign; counts outside the width shift everything out.",
    "numpy:right_shift", arity=2, group=BITWISE, dtypes=INTEGERS, emit_integer="math_integer:shift_right",
    interval=ANYTHING, flops=3, simplify=drop_unit(is_zero), op="shift_right", kernel=""))
declare(ScalarFunction("popcount", "How many bits are set; of a negative number in two's complement.", "count_bits",
    group=BITWISE, dtypes=INTEGERS, emit_integer="math_integer:count_bits", interval=always_within(0.0, 64.0,
    is_exact=True), flops=1, op="population_count", kernel=""))
declare(ScalarFunction("gcd", "The greatest common divisor, not negative; of 0 and 0 it is 0.", "numpy:gcd", arity=2,
    group=BITWISE, dtypes=INTEGERS, emit_integer="math_integer:greatest_common_divisor", interval=ANYTHING, flops=60,
    is_expensive=True, kernel=""))
