"""Fixes of arguments: axes, counts, shapes and indices of an op, and arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from tessera.diagnostics.edit import Expression, Part, expression_at
from tessera.diagnostics.error import Fix, Span
from tessera.frontend.fixes.operands import dtype_name
from tessera.types.dtype import DType, i64

# Arguments of calls: cast, reshaped, padded or sliced to what a function declares.

FindArgument = Callable[["Span | None"], "tuple[Expression, Part] | None"]
"""Finds an argument in the call at a span."""


def argument_at(name: str, position: int) -> FindArgument:
    """Find an argument in a call: by its name, else by its position."""

    def find(span: Span | None) -> tuple[Expression, Part] | None:
        expression = expression_at(span)
        part = expression.argument(name, position) if expression is not None else None
        return None if expression is None or part is None else (expression, part)

    return find


def cast_argument(find_argument: FindArgument, dtype: DType) -> Callable[[Span | None], Fix | str]:
    """Cast an argument where it is passed."""

    def find(span: Span | None) -> Fix | str:
        found, advice = find_argument(span), f"cast it, as in `tessera.ops.cast(x, {dtype})`"
        cast = found[0].name_of("ops.cast") if found is not None else None
        if found is None or cast is None:
            return advice
        text = f"{cast}({found[1].text}, {dtype_name(found[0], dtype)})"
        return found[1].edit(text, f"cast it to {dtype}") or advice

    return find


def reshape_argument(
    find_argument: FindArgument, shape: Sequence[int], rank: int
) -> Callable[[Span | None], Fix | None]:
    """Drop axes of size 1, or add some in front, to get the declared rank."""
    dropped = [size for size in shape if size != 1]
    wanted = [1] * (rank - len(dropped)) + dropped

    def find(span: Span | None) -> Fix | None:
        found = find_argument(span) if len(wanted) == rank else None
        if found is None:
            return None
        return found[1].edit(f"{found[1].operand}.reshape({', '.join(map(str, wanted))})", f"reshape it to {wanted}")

    return find


def transpose_argument(find_argument: FindArgument, rank: int) -> Callable[[Span | None], Fix | str]:
    """Swap the last two axes of an argument."""
    suffix = "T" if rank == 2 else "swapaxes(-1, -2)"

    def find(span: Span | None) -> Fix | str:
        found, advice = find_argument(span), f"transpose it: `x.{suffix}`"
        return (found is not None and found[1].edit(f"{found[1].operand}.{suffix}", "transpose it")) or advice

    return find


def fit_argument(
    find_argument: FindArgument, shape: Sequence[int], axis: int, size: int
) -> Callable[[Span | None], Fix | None]:
    """Pad or slice an axis to a size."""

    def find(span: Span | None) -> Fix | None:
        found = find_argument(span)
        pad = found[0].name_of("ops.pad") if found is not None else None
        if found is None or pad is None:
            return None
        if size < shape[axis]:
            text = f"{found[1].operand}[{':, ' * axis}:{size}]"
            return found[1].edit(text, f"slice axis {axis} from {shape[axis]} to {size}")
        widths = [(0, size - shape[axis] if at == axis else 0) for at in range(len(shape))]
        message = f"pad axis {axis} from {shape[axis]} to {size}, if zeros are valid there"
        return found[1].edit(f"{pad}({found[1].text}, {widths})", message)

    return find


def axis_fix(span: Span | None, axis: int, rank: int) -> Fix | str:
    """The nearest valid axis."""
    advice = f"axes are {-rank}..{rank - 1}" if rank else "a scalar has no axes"
    expression = expression_at(span)
    if expression is None or not rank:
        return advice
    part = expression.argument("axis")
    matches = [part] if part is not None and part.value == axis else expression.literals(axis)
    nearest = rank - 1 if axis > 0 else -rank
    return (len(matches) == 1 and matches[0].edit(str(nearest), advice)) or advice


def axes_fix(span: Span | None, axes: Sequence[int]) -> Fix | str:
    """Each axis once."""
    advice = "name each axis once; -1 is the last one"
    expression = expression_at(span)
    part = expression.argument("axis", 1) if expression is not None else None
    once = sorted(set(axes))
    text = f"({once[0]},)" if len(once) == 1 else f"({', '.join(map(str, once))})"
    return (part is not None and isinstance(part.value, tuple | list) and part.edit(text, advice)) or advice


def parts_fix(span: Span | None, size: int | None, parts: int) -> Fix | None:
    """Parts of nearly equal sizes, in place of a number of parts that does not divide the size."""
    if size is None or not 0 < parts <= size:
        return None
    small, more = divmod(size, parts)
    return _argument(span, "parts", [small + (at < more) for at in range(parts)], "cut into parts of these sizes")


def sizes_fix(span: Span | None, size: int | None, sizes: Sequence[int | None]) -> Fix | None:
    """The last part as large as the remainder."""
    given = [item for item in sizes if item is not None]
    remainder = 0 if size is None else size - sum(given[:-1])
    if remainder < 1 or len(given) != len(sizes):
        return None
    return _argument(span, "parts", [*given[:-1], remainder], f"the last part is what is left of {size}")


def widths_fix(span: Span | None, widths: Sequence[tuple[object, object]], rank: int) -> Fix | None:
    """No padding of axes without a width."""
    pairs = [*((a, b) for a, b in widths), *[(0, 0)] * (rank - len(widths))]
    if len(pairs) != rank or not all(isinstance(width, int) for pair in pairs for width in pair):
        return None
    return _argument(span, "widths", pairs, "(0, 0) leaves an axis unpadded")


def _argument(span: Span | None, name: str, value: object, message: str) -> Fix | None:
    expression = expression_at(span)
    part = expression.argument(name, 1) if expression is not None else None
    return None if part is None or part.value is None else part.edit(str(value), message)


def reshape_fix(span: Span | None, size: int | None, dims: Sequence[int | None]) -> Fix | None:
    """-1 in place of the last dim that the other dims determine."""
    expression = expression_at(span)
    if expression is None or size is None or expression.called != "reshape":
        return None
    for at in reversed(range(len(dims))):
        others = 1
        for dim in (*dims[:at], *dims[at + 1 :]):
            others *= dim if dim is not None and dim > 0 else 0
        literals = expression.literals(dims[at])
        if others and size % others == 0 and literals:
            return literals[-1].edit("-1", f"reshape with -1 for the remaining {size // others}")
    return None


def position_fix(span: Span | None, position: int, size: int) -> Fix | str:
    """The nearest valid index: the last one, or the first."""
    if not size:
        return "the axis is empty"
    advice, expression = f"indices are {-size}..{size - 1}", expression_at(span)
    matches = [item for item in expression.items() if item.value == position] if expression is not None else []
    return (len(matches) == 1 and matches[0].edit(str(size - 1 if position > 0 else -size), advice)) or advice


def index_fix(span: Span | None, rank: int) -> Fix | None:
    """An index without those beyond the rank, or with one `...`."""
    expression = expression_at(span)
    node = expression.whole.node if expression is not None else None
    if expression is None or not isinstance(node, ast.Subscript):
        return None
    texts = [item.text for item in expression.items()]
    dots = texts.count("...")
    if dots > 1:
        seen = texts.index("...")
        kept = [":" if text == "..." and at > seen else text for at, text in enumerate(texts)]
        message = "use `...` once, and `:` for one axis"
    else:
        kept, message = texts[:rank], f"give at most {rank} indices"
    if sum(text not in ("None", "...") for text in kept) > rank or not kept:
        return None
    return expression.whole.edit(f"{expression.inner(node.value).text}[{', '.join(kept)}]", message)


def step_fix(span: Span | None) -> Fix | None:
    """A step of 1 in place of one of 0."""
    expression = expression_at(span)
    for item in expression.items() if expression is not None else ():
        if isinstance(item.node, ast.Slice) and item.node.step is not None and expression is not None:
            step = expression.inner(item.node.step)
            if step.value == 0:
                return step.edit("1", "1 takes every element, -1 reverses them")
    return None


def positions_fix(span: Span | None) -> Fix | None:
    """A tensor of indices cast to integers."""
    expression = expression_at(span)
    items = expression.items() if expression is not None else ()
    if expression is None or len(items) != 1:
        return None
    return items[0].edit(f"{items[0].operand}.cast({dtype_name(expression, i64)})", f"cast `{items[0].text}` to i64")
