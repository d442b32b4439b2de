"""Simplifications that ops declare: what rules ask of values, and the rules that several ops share.

Each keeps every bit of the result: units of an operation, double negations, casts that undo each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.spec import Attributes, Producer, Simplifier, Simplify
from tessera.types.dtype import DType
from tessera.types.promotion import holds
from tessera.types.shape import Shape

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
