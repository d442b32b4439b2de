"""Simplifications of elementwise ops that keep every bit: units, double negations, casts that undo each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tessera.ir.base.spec import Attributes, Fold, Folder
from tessera.ir.graph.folding import is_negative_zero, made_by, stretches_nothing, uniform
from tessera.types.dtype import DType
from tessera.types.promotion import holds

Unit: TypeAlias = Callable[[Any, DType], bool]
"""Whether a number, beside an operand of a dtype, changes nothing."""


def involution(name: str) -> Fold:
    """Rewrite f(f(x)) to x."""

    def fold(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
        inner = made_by(folder, operands[0], name)
        return None if inner is None else inner.operands[0]

    return fold


def idempotent(name: str) -> Fold:
    """Rewrite f(f(x)) to f(x)."""

    def fold(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
        return None if made_by(folder, operands[0], name) is None else operands[0]

    return fold


def unit(right: Unit, left: Unit | None = None) -> Fold:
    """Rewrite f(x, u) to x for a right unit u, and f(u, x) to x for a left one, where the shape stays."""

    def fold(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
        for kept, dropped, is_unit in ((0, 1, right), (1, 0, left)):
            if is_unit is None:
                continue
            number, kept_type = uniform(folder, operands[dropped]), folder.type_of(operands[kept])
            if number is None or not is_unit(number, kept_type.dtype):
                continue
            if stretches_nothing(kept_type.shape, folder.type_of(operands[dropped]).shape):
                return operands[kept]
        return None

    return fold


def same_operands(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite f(x, x) to x."""
    return operands[0] if operands[0] is operands[1] else None


def first_of(*folds: Fold) -> Fold:
    """The first of several folds that applies."""

    def fold(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
        return next((found for one in folds if (found := one(folder, operands, attributes)) is not None), None)

    return fold


def _adds_nothing(number: Any, dtype: DType) -> bool:
    # -0.0 + 0.0 is 0.0: only the negative zero leaves every float as it is
    return is_negative_zero(number) if dtype.is_float else number == 0


def _subtracts_nothing(number: Any, dtype: DType) -> bool:
    return number == 0 and not (dtype.is_float and is_negative_zero(number))


def _is_one(number: Any, dtype: DType) -> bool:
    return number == 1


def _is_one_integer(number: Any, dtype: DType) -> bool:
    return number == 1 and dtype.is_integer


def _is_zero(number: Any, dtype: DType) -> bool:
    return number == 0


def _all_bits(number: Any, dtype: DType) -> bool:
    return number == (1 if dtype.is_bool else (1 << dtype.bits) - 1 if dtype.kind == "uint" else -1)


def _square(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite x ** 2 to x * x, which is rounded correctly too."""
    x, y = operands
    if uniform(folder, y) != 2 or not stretches_nothing(folder.type_of(x).shape, folder.type_of(y).shape):
        return None
    return folder.emit("mul", x, x)


def fold_where(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Rewrite where(c, x, x) to x, and where of a known condition to its branch, where the shape stays."""
    condition, x, y = operands
    known = uniform(folder, condition)
    if x is not y and known is None:
        return None
    kept, other = (x, y) if x is y or known else (y, x)
    shapes = [folder.type_of(value).shape for value in (kept, condition, other)]
    return kept if all(stretches_nothing(shapes[0], shape) for shape in shapes[1:]) else None


def fold_cast(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a cast to the same dtype, and rewrite cast(cast(x)) to cast(x) where the inner one loses nothing."""
    source, target = folder.type_of(operands[0]).dtype, attributes["dtype"]
    if source is target:
        return operands[0]
    inner = made_by(folder, operands[0], "cast")
    if inner is None:
        return None
    origin = folder.type_of(inner.operands[0]).dtype
    # an integer that is too large wraps, and stops at the end of the range where it comes as a float
    saturates = source.is_float and origin.is_integer and target.is_integer and not holds(target, origin)
    if not holds(source, origin) or saturates:
        return None
    return inner.operands[0] if origin is target else folder.emit("cast", inner.operands[0], dtype=target)


def fold_bitcast(folder: Folder, operands: Sequence[Any], attributes: Attributes) -> Any:
    """Drop a bitcast to the same dtype, and one that undoes another."""
    if attributes["source"] is attributes["dtype"]:
        return operands[0]
    inner = made_by(folder, operands[0], "bitcast")
    return inner.operands[0] if inner is not None and inner.attributes["source"] is attributes["dtype"] else None


UNARY_FOLDS: dict[str, Fold] = {
    **{name: involution(name) for name in ("neg", "logical_not", "bitwise_not")},
    **{name: idempotent(name) for name in ("abs", "sign", "relu", "floor", "ceil", "round", "trunc")},
}

BINARY_FOLDS: dict[str, Fold] = {
    "add": unit(_adds_nothing, _adds_nothing),
    "sub": unit(_subtracts_nothing),
    "mul": unit(_is_one, _is_one),
    "div": unit(_is_one),
    "floordiv": unit(_is_one_integer),
    "pow": first_of(unit(_is_one), _square),
    "maximum": same_operands,
    "minimum": same_operands,
    "logical_and": first_of(same_operands, unit(_all_bits, _all_bits)),
    "logical_or": first_of(same_operands, unit(_is_zero, _is_zero)),
    "logical_xor": unit(_is_zero, _is_zero),
    "bitwise_and": first_of(same_operands, unit(_all_bits, _all_bits)),
    "bitwise_or": first_of(same_operands, unit(_is_zero, _is_zero)),
    "bitwise_xor": unit(_is_zero, _is_zero),
    "shift_left": unit(_is_zero),
    "shift_right": unit(_is_zero),
}
