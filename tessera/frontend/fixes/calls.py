"""Fixes of calls: arguments cast, reshaped, padded or cut to what a function declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.diagnostics.edit import Expression, Part, expression_at
from tessera.diagnostics.error import Fix
from tessera.diagnostics.span import Span
from tessera.frontend.fixes.operands import dtype_name
from tessera.types.dtype import DType

Place = Callable[["Span | None"], "tuple[Expression, Part] | None"]
"""Finds an argument in the call at a span."""


def argument_at(name: str, position: int) -> Place:
    """The place of an argument: by its name, else by its position."""

    def find(span: Span | None) -> tuple[Expression, Part] | None:
        expression = expression_at(span)
        part = expression.argument(name, position) if expression is not None else None
        return None if expression is None or part is None else (expression, part)

    return find


def cast_argument(place: Place, dtype: DType) -> Callable[[Span | None], Fix | str]:
    """Cast it where it is passed."""

    def find(span: Span | None) -> Fix | str:
        found, advice = place(span), f"cast it, as in `tessera.ops.cast(x, {dtype})`"
        cast = found[0].name_of("ops.cast") if found is not None else None
        if found is None or cast is None:
            return advice
        text = f"{cast}({found[1].text}, {dtype_name(found[0], dtype)})"
        return found[1].edit(text, f"cast it to {dtype}") or advice

    return find


def reshape_argument(place: Place, shape: Sequence[int], rank: int) -> Callable[[Span | None], Fix | None]:
    """Drop axes of 1, or add some in front, until the rank is the declared one."""
    dropped = [size for size in shape if size != 1]
    wanted = [1] * (rank - len(dropped)) + dropped

    def find(span: Span | None) -> Fix | None:
        found = place(span) if len(wanted) == rank else None
        if found is None:
            return None
        return found[1].edit(f"{found[1].operand}.reshape({', '.join(map(str, wanted))})", f"reshape it to {wanted}")

    return find


def fit_argument(place: Place, shape: Sequence[int], axis: int, size: int) -> Callable[[Span | None], Fix | None]:
    """Pad an axis to a size, or cut it."""

    def find(span: Span | None) -> Fix | None:
        found = place(span)
        pad = found[0].name_of("ops.pad") if found is not None else None
        if found is None or pad is None:
            return None
        if size < shape[axis]:
            text = f"{found[1].operand}[{':, ' * axis}:{size}]"
            return found[1].edit(text, f"cut axis {axis} from {shape[axis]} to {size}")
        widths = [(0, size - shape[axis] if at == axis else 0) for at in range(len(shape))]
        said = f"pad axis {axis} from {shape[axis]} to {size}, if zeros may stand for what is missing"
        return found[1].edit(f"{pad}({found[1].text}, {widths})", said)

    return find
