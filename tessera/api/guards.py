"""Guards that the sizes of a call break: the rule that the trace relied on, the values, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import GuardError
from tessera.diagnostics.error import Fix, TesseraError
from tessera.diagnostics.span import user_span
from tessera.frontend.bind import Signature, fitting, named_sizes
from tessera.frontend.shape_inference import Assumption
from tessera.frontend.trace import TracedFunction
from tessera.types.dim import Dim, minimum


def check(signature: Signature, traced: TracedFunction, tensors: Sequence[Any]) -> None:
    """Raise GuardError (T0702) where the sizes of a call break what the trace relies on: before code is made for it."""
    found = broken(signature, traced, tensors) if traced.assumptions else None
    if found is not None:
        raise found


def broken(signature: Signature, traced: TracedFunction, tensors: Sequence[Any]) -> TesseraError | None:
    """The error for the first assumption of a trace that the sizes of a call break; None where they keep all."""
    sizes = named_sizes(signature, tensors)
    values = {symbol: size for symbol, (size, _) in sizes.items()}
    for item in traced.assumptions:
        if not (item.left.symbols | item.right.symbols) <= values.keys():
            continue
        left, right = item.left.evaluate(values), item.right.evaluate(values)
        if left == right:
            continue
        if item.constraint is not None:
            from tessera.frontend.constraints import Given, static_numbers, violation  # noqa: PLC0415 - few have any

            rules = [other.constraint for other in traced.assumptions if other.constraint is not None]
            call = Given(signature, tensors, rules)
            return violation(item.constraint, sizes, static_numbers(signature), call)
        symbols = sorted(item.left.symbols | item.right.symbols)
        sources = tuple(f"`{symbol}` is {sizes[symbol][0]} from `{sizes[symbol][1]}`" for symbol in symbols)
        return GuardError(
            _sides(item.left, left, item.right, right),
            span=item.span,
            notes=(f"rule: {item.rule}", *sources),
            fix=_fix(item, sizes, signature, tensors),
        )
    return None


def _fix(
    item: Assumption, sizes: Mapping[str, tuple[int, str]], signature: Signature, tensors: Sequence[Any]
) -> Fix | str | None:
    """The edit of the op that assumes nothing, else that of the call which pads the smaller of two named sizes.

    Of a size that is no multiple of a number it is said which ones are the nearest.
    """
    of_op = None if item.asker is None else item.asker.shape_fix()
    whole = _multiple(item.left, item.right)
    if of_op is None and whole is not None:
        name, step = whole
        size, source = sizes[name]
        less = size // step * step
        return f"give `{source}` a multiple of {step}: pad it to {less + step}" + (
            f", or cut it to {less}" * bool(less)
        )
    left, right = item.left.symbol_name, item.right.symbol_name
    if of_op is not None or left is None or right is None:
        return of_op
    small, large = sorted((sizes[left], sizes[right]))
    edit = fitting(signature, tensors, small[1], large[0])
    found = edit(user_span()) if callable(edit) else None
    return found if isinstance(found, Fix) else None


def _multiple(left: Dim, right: Dim) -> tuple[str, int] | None:
    """The name of a size and the number that must divide it, where two sides say just that: `N` and `4*(N // 4)`."""
    for one, other in ((left, right), (right, left)):
        name = one.symbol_name
        for step in sorted({abs(factor) for _, factor in other.terms}) if name is not None else ():
            if other == Dim.symbol(name or "") // step * step:
                return name or "", step
    return None


def _sides(left: Dim, left_value: int, right: Dim, right_value: int) -> str:
    whole = _multiple(left, right)
    if whole is not None:
        return f"`{whole[0]}` is {max(left_value, right_value)}, but it must be a multiple of {whole[1]}"
    if left.is_static or right.is_static:
        free, value, wanted = (right, right_value, left_value) if left.is_static else (left, left_value, right_value)
        named = next((name for name in free.symbols if free == minimum(Dim.symbol(name), wanted)), None)
        if named is not None:  # the least of a size and a number is the number where the size is as large
            return f"`{named}` is {value}, but it must be at least {wanted}"
        return f"`{free}` is {value}, but it must be {wanted}"
    return f"`{left}` is {left_value} and `{right}` is {right_value}, but they must be equal"
