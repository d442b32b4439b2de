"""Derivatives of the scalar functions, written once for graph ops and for kernels.

A rule gives the partial derivative of a function by one operand, from its operands and its result, through a
`Calculator`: the functions of `ir/base/scalar_functions.py` by their names, numbers, and a choice. Where a derivative
is undefined the convention is JAX's: `relu` has 0 at 0 and `abs` has 1, `max` and `min` give half to each of two equal
operands, `sqrt` is infinite at 0, `pow` takes `0 ** y` as constant in `y`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from tessera.types.frozen import frozen


class Calculator(Protocol):
    """Arithmetic on values of one dtype, whatever they are made of."""

    def __call__(self, function: str, *operands: Any) -> Any:
        """A scalar function, by its name in the table."""
        ...

    def number(self, value: float) -> Any: ...

    def select(self, condition: Any, x: Any, y: Any) -> Any:
        """`x` where the condition holds, else `y`."""
        ...


Partial: TypeAlias = Callable[[Calculator, Sequence[Any], Any], Any]
"""The partial derivative by one operand, from the operands and the result."""


@frozen
class Derivative:
    """The partial derivatives of a function by each operand.

    A factor of 1 or -1 is a number, and so is the 0 of a function that is constant between its steps.
    """

    partials: tuple[Partial | float, ...]


def _by(*partials: Partial | float) -> Derivative:
    return Derivative(partials)


def _square(f: Calculator, x: Any) -> Any:
    return f("mul", x, x)


def _scaled(factor: float) -> Partial:
    """The result times a number."""
    return lambda f, operands, result: f("mul", result, f.number(factor))


def _one_over(scale: float) -> Partial:
    """A number over the operand."""
    return lambda f, operands, result: f("div", f.number(scale), operands[0])


def _sigmoid(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    return f("mul", result, f("sub", f.number(1.0), result))


def _silu(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """From the operand alone: whoever multiplies by it computes it as it reads that, and need not have the result."""
    share = f("sigmoid", operands[0])
    return f("mul", share, f("add", f.number(1.0), f("mul", operands[0], f("sub", f.number(1.0), share))))


def _gelu_erf(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """The distribution function, and `x` times the density."""
    (x,) = operands
    below = f("mul", f("add", f("erf", f("mul", x, f.number(math.sqrt(0.5)))), f.number(1.0)), f.number(0.5))
    density = f("mul", f("exp", f("mul", _square(f, x), f.number(-0.5))), f.number(1 / math.sqrt(2 * math.pi)))
    return f("add", below, f("mul", x, density))


def _gelu_tanh(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """The share of `x` that gelu is, `(1 + tanh u) / 2`, and `x` times its slope: that is the sigmoid of `2 u`."""
    (x,) = operands
    scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
    square = _square(f, x)
    share = f("sigmoid", f("mul", x, f("add", f.number(scale), f("mul", square, f.number(scale * cubic)))))
    slope = f("add", f.number(scale), f("mul", square, f.number(3 * scale * cubic)))
    flat = f("mul", share, f("sub", f.number(1.0), share))
    # Where the share is flat the square of x may be infinite.
    rest = f.select(f("eq", flat, f.number(0.0)), f.number(0.0), f("mul", f("mul", flat, x), slope))
    return f("add", share, rest)


def _power_by_base(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """`y x^(y-1)`, and 0 for an exponent of 0, where the power may be infinite."""
    x, y = operands
    is_constant = f("eq", y, f.number(0.0))
    power = f("pow", x, f.select(is_constant, f.number(1.0), f("sub", y, f.number(1.0))))
    return f("mul", y, power)


def _power_by_exponent(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """`x^y log x`, and 0 for a base of 0."""
    x, _ = operands
    base = f.select(f("eq", x, f.number(0.0)), f.number(1.0), x)
    return f("mul", result, f("log", base))


def _larger(operand: int, comparison: str) -> Partial:
    """1 where the operand is chosen, one half where both are."""

    def partial(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
        mine, other = operands[operand], operands[1 - operand]
        alone = f.select(f(comparison, mine, other), f.number(1.0), f.number(0.0))
        return f.select(f("eq", mine, other), f.number(0.5), alone)

    return partial


def _angle(operand: int) -> Partial:
    def partial(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
        # Scaled by the larger one: squares of small numbers are zero, and those of large ones infinite.
        size = f("max", *(f("abs", one) for one in operands))
        y, x = (f("div", one, size) for one in operands)
        side = x if operand == 0 else f("neg", y)
        return f("div", f("div", side, f("add", _square(f, x), _square(f, y))), size)

    return partial


def _positive(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    return f.select(f("gt", operands[0], f.number(0.0)), f.number(1.0), f.number(0.0))


def _one_with_sign(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    return f.select(f("ge", operands[0], f.number(0.0)), f.number(1.0), f.number(-1.0))


def _one_minus_square(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    return f("sub", f.number(1.0), _square(f, result))


def _one_less_square(f: Calculator, x: Any) -> Any:
    """`1 - x**2`, as a product that does not cancel near 1."""
    return f("mul", f("sub", f.number(1.0), x), f("add", f.number(1.0), x))


def _slope_of_atan(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    return f("div", f.number(1.0), f("add", f.number(1.0), _square(f, operands[0])))


def _slope_of_acosh(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """Roots apart, so that the square of a large number does not overflow."""
    (x,) = operands
    return f("mul", f("rsqrt", f("sub", x, f.number(1.0))), f("rsqrt", f("add", x, f.number(1.0))))


def _over_hypotenuse(operand: int) -> Partial:
    """The operand over the hypotenuse; 0 where that is 0."""

    def partial(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
        below = f.select(f("eq", result, f.number(0.0)), f.number(1.0), result)
        return f("div", operands[operand], below)

    return partial


def _sign_change(f: Calculator, operands: Sequence[Any], result: Any) -> Any:
    """1, or -1 where the sign changes."""
    x, y = operands
    return f("mul", f("copysign", f.number(1.0), x), f("copysign", f.number(1.0), y))


DERIVATIVES: Mapping[str, Derivative] = {
    "neg": _by(-1.0),
    "abs": _by(_one_with_sign),
    "sign": _by(0.0),
    "relu": _by(_positive),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), _by(0.0)),
    "exp": _by(lambda f, operands, result: result),
    "exp2": _by(_scaled(math.log(2))),
    "expm1": _by(lambda f, operands, result: f("add", result, f.number(1.0))),
    "log": _by(_one_over(1.0)),
    "log2": _by(_one_over(1 / math.log(2))),
    "log10": _by(_one_over(1 / math.log(10))),
    "log1p": _by(lambda f, operands, result: f("div", f.number(1.0), f("add", operands[0], f.number(1.0)))),
    "sqrt": _by(lambda f, operands, result: f("div", f.number(0.5), result)),
    "rsqrt": _by(lambda f, operands, result: f("mul", f.number(-0.5), f("div", result, operands[0]))),
    "reciprocal": _by(lambda f, operands, result: f("neg", _square(f, result))),
    "sin": _by(lambda f, operands, result: f("cos", operands[0])),
    "cos": _by(lambda f, operands, result: f("neg", f("sin", operands[0]))),
    "tan": _by(lambda f, operands, result: f("add", f.number(1.0), _square(f, result))),
    "atan2": _by(_angle(0), _angle(1)),
    "asin": _by(lambda f, operands, result: f("rsqrt", _one_less_square(f, operands[0]))),
    "acos": _by(lambda f, operands, result: f("neg", f("rsqrt", _one_less_square(f, operands[0])))),
    "atan": _by(_slope_of_atan),
    "sinh": _by(lambda f, operands, result: f("cosh", operands[0])),
    "cosh": _by(lambda f, operands, result: f("sinh", operands[0])),
    "asinh": _by(lambda f, operands, result: f("div", f.number(1.0), f("hypot", operands[0], f.number(1.0)))),
    "acosh": _by(_slope_of_acosh),
    "atanh": _by(lambda f, operands, result: f("div", f.number(1.0), _one_less_square(f, operands[0]))),
    "tanh": _by(_one_minus_square),
    "sigmoid": _by(_sigmoid),
    "erf": _by(
        lambda f, operands, result: f(
            "mul", f.number(2 / math.sqrt(math.pi)), f("exp", f("neg", _square(f, operands[0])))
        )
    ),
    "erfc": _by(
        lambda f, operands, result: f(
            "mul", f.number(-2 / math.sqrt(math.pi)), f("exp", f("neg", _square(f, operands[0])))
        )
    ),
    "silu": _by(_silu),
    "softplus": _by(lambda f, operands, result: f("sigmoid", operands[0])),
    "gelu_erf": _by(_gelu_erf),
    "gelu_tanh": _by(_gelu_tanh),
    "add": _by(1.0, 1.0),
    "sub": _by(1.0, -1.0),
    "mul": _by(lambda f, operands, result: operands[1], lambda f, operands, result: operands[0]),
    "div": _by(
        lambda f, operands, result: f("div", f.number(1.0), operands[1]),
        lambda f, operands, result: f("neg", f("div", result, operands[1])),
    ),
    "floordiv": _by(0.0, 0.0),
    "mod": _by(1.0, lambda f, operands, result: f("neg", f("floordiv", operands[0], operands[1]))),
    "pow": _by(_power_by_base, _power_by_exponent),
    "hypot": _by(_over_hypotenuse(0), _over_hypotenuse(1)),
    "copysign": _by(_sign_change, 0.0),
    "fma": _by(lambda f, operands, result: operands[1], lambda f, operands, result: operands[0], 1.0),
    "max": _by(_larger(0, "gt"), _larger(1, "gt")),
    "min": _by(_larger(0, "lt"), _larger(1, "lt")),
}
"""By function, for floats; integers and bools have no derivatives."""
