"""Score programs: what a function of one score computes, as plain lines of scalar functions and reads of tensors.

`attention` takes functions: `score(s, b, h, i, j)` changes a score, `mask(b, h, i, j)` says whether a query sees a key.
Each is traced once on scalars and kept as lines, so that kernels can compute it on tiles of scores, references on
arrays, composed forms with graph ops, and derivatives as further lines. Values are numbered: the inputs `s b h i j`
first, then one for each line; the last line is the result. A line is `(function, operands, detail)`:

| line | gives |
|---|---|
| `("add", (5, 6), none)` | a scalar function of the table, on operands of one dtype |
| `("select", (c, x, y), none)` | `x` where `c` holds, else `y` |
| `("cast", (x,), f32)` | a value in another dtype |
| `("constant", (), [1.5, f32])` | a number |
| `("load", (i, j), 0)` | an element of captured tensor 0: a negative index counts from the end, others are clamped |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from tessera.ir.base.scalar_derivatives import DERIVATIVES
from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS
from tessera.types.dtype import DType, bool_, i32
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

Line: TypeAlias = tuple[str, tuple[int, ...], Any]
Lines: TypeAlias = tuple[Line, ...]

SCORE, BATCH, HEAD, QUERY, KEY = range(5)
"""Inputs of a program by number: a score, and where it is."""
FIRST = 5
"""The number of the first line."""
INPUT_NAMES = ("s", "b", "h", "i", "j")


class Arithmetic(Protocol):
    """What lines are computed by, whatever values are made of."""

    def elementwise(self, fn: str, *values: Any) -> Any: ...

    def select(self, condition: Any, first: Any, second: Any) -> Any: ...

    def cast(self, value: Any, dtype: DType) -> Any: ...

    def constant(self, value: Any, dtype: DType) -> Any: ...

    def load(self, capture: int, indices: Sequence[tuple[int, Any]]) -> Any:
        """An element of a captured tensor; each index with the number of its value."""
        ...


def evaluate(lines: Lines, inputs: Sequence[Any], arithmetic: Arithmetic) -> list[Any]:
    """The values of a program: those of its inputs, then those of its lines."""
    values = list(inputs)
    for function, operands, detail in lines:
        given = [values[operand] for operand in operands]
        if function == "constant":
            made = arithmetic.constant(*detail)
        elif function == "cast":
            made = arithmetic.cast(given[0], detail)
        elif function == "load":
            made = arithmetic.load(int(detail), list(zip(operands, given, strict=True)))
        elif function == "select":
            made = arithmetic.select(*given)
        else:
            made = arithmetic.elementwise(function, *given)
        values.append(made)
    return values


def dependences(lines: Lines) -> list[frozenset[int]]:
    """The inputs that each value depends on."""
    found = [frozenset((number,)) for number in range(FIRST)]
    for _, operands, _ in lines:
        found.append(frozenset[int]().union(*(found[operand] for operand in operands)))
    return found


# Types, which are checked where a program is made and where its text is read.

Fail: TypeAlias = Callable[[str], Exception]


def value_dtypes(lines: Lines, score: DType, captures: Sequence[TensorType], fail: Fail) -> list[DType]:
    """The dtype of each value; raises what `fail` makes of a line that is none."""
    found = [score, i32, i32, i32, i32]
    for number, line in enumerate(lines, FIRST):
        if not _is_line(line) or any(not 0 <= operand < number for operand in line[1]):
            raise fail(f"line {number} of a score program is no line on values before it: {line!r}")
        found.append(_line_dtype(line, [found[operand] for operand in line[1]], captures, fail))
    return found


def _is_line(line: Any) -> bool:
    if not isinstance(line, tuple) or len(cast("tuple[Any, ...]", line)) != 3:
        return False
    function, operands, _ = cast("tuple[Any, Any, Any]", line)
    return (
        isinstance(function, str)
        and isinstance(operands, tuple)
        and all(type(one) is int for one in cast("tuple[Any, ...]", operands))
    )


def _is_number(detail: Any) -> bool:
    items = cast("tuple[Any, ...]", detail if isinstance(detail, tuple) else ())
    return len(items) == 2 and isinstance(items[0], bool | int | float) and isinstance(items[1], DType)


def _line_dtype(line: Line, given: Sequence[DType], captures: Sequence[TensorType], fail: Fail) -> DType:
    function, _, detail = line
    names = ", ".join(map(str, given))
    if function == "constant" and not given and _is_number(detail):
        return detail[1]
    if function == "cast" and len(given) == 1 and isinstance(detail, DType):
        return detail
    if function == "select" and len(given) == 3:
        if given[0] is bool_ and given[1] is given[2]:
            return given[1]
        raise fail(f"`select` of a score program takes a bool and two of one dtype, got {names}")
    if function == "load" and type(detail) is int and 0 <= detail < len(captures):
        if captures[detail].rank == len(given) and all(one.is_integer for one in given):
            return captures[detail].dtype
        raise fail(f"captured tensor {detail} is {captures[detail]}, and is read at [{names}]")
    known = SCALAR_FUNCTIONS.get(function)
    if known is None or known.arity != len(given) or any(one is not given[0] for one in given):
        raise fail(f"`{function}` of {names} is no line of a score program")
    if given[0].name not in known.dtypes or given[0].compute is not given[0]:
        raise fail(f"`{function}` of a score program does not take {given[0]}")
    return bool_ if known.is_predicate else given[0]


# Writing programs.


class ProgramWriter:
    """Writes lines, equal ones once; its methods are those that pointwise ops build their tiles with."""

    def __init__(self, score: DType, captures: Sequence[TensorType], lines: Lines = ()) -> None:
        self.captures = list(captures)
        self.lines: list[Line] = []
        self.dtypes = [score, i32, i32, i32, i32]
        self._known: dict[Any, int] = {}
        for line in lines:
            self._append(line)

    def _append(self, line: Line) -> int:
        given = [self.dtypes[operand] for operand in line[1]]
        dtype = _line_dtype(line, given, self.captures, lambda message: TypeError(message))
        self.lines.append(line)
        self.dtypes.append(dtype)
        self._known.setdefault(_key(line), FIRST + len(self.lines) - 1)
        return FIRST + len(self.lines) - 1

    def _line(self, function: str, operands: Sequence[int], detail: Any = None) -> int:
        line = (function, tuple(operands), detail)
        known = self._known.get(_key(line))
        return self._append(line) if known is None else known

    def elementwise(self, fn: str, *values: int) -> int:
        return self._line(fn, values)

    def select(self, condition: int, first: int, second: int) -> int:
        return self._line("select", (condition, first, second))

    def cast(self, value: int, dtype: DType) -> int:
        return value if self.dtypes[value] is dtype else self._line("cast", (value,), dtype)

    def constant(self, value: Any, dtype: DType) -> int:
        number = bool(value) if dtype.is_bool else float(value) if dtype.is_float else int(value)
        return self._line("constant", (), (number, dtype))

    def load(self, capture: int, indices: Sequence[tuple[int, Any]]) -> int:
        return self._line("load", [value for _, value in indices], capture)

    def include(self, lines: Lines, inputs: Sequence[int]) -> int:
        """The result of another program on the same captured tensors, on these values."""
        return evaluate(lines, inputs, self)[-1]

    def finish(self, result: int) -> Lines:
        """The program that gives a value, and no line that it does not need."""
        if result < FIRST or self.lines[result - FIRST][0] == "constant":
            self.lines.append(("cast", (result,), self.dtypes[result]))
            self.dtypes.append(self.dtypes[result])
            result = FIRST + len(self.lines) - 1
        needed, numbers, kept = {result}, {number: number for number in range(FIRST)}, list[Line]()
        for number in range(result, FIRST - 1, -1):
            if number in needed:
                needed.update(self.lines[number - FIRST][1])
        for number in sorted(one for one in needed if one >= FIRST):
            function, operands, detail = self.lines[number - FIRST]
            numbers[number] = FIRST + len(kept)
            kept.append((function, tuple(numbers[operand] for operand in operands), detail))
        return tuple(kept)


def _key(line: Line) -> Any:
    """A line as a key: 0.0 and -0.0, and 1 and True, are different constants."""
    function, operands, detail = line
    return (function, operands, repr(detail[0]), detail[1]) if function == "constant" else line


# Derivatives.


@frozen
class _Calculator:
    """Arithmetic in one dtype, as rules of derivatives ask for it."""

    writer: ProgramWriter
    dtype: DType

    def __call__(self, function: str, *operands: int) -> int:
        return self.writer.elementwise(function, *operands)

    def number(self, value: float) -> int:
        return self.writer.constant(value, self.dtype)

    def select(self, condition: int, x: int, y: int) -> int:
        return self.writer.select(condition, x, y)


def float_loads(lines: Lines, captures: Sequence[TensorType]) -> list[int]:
    """The values that are read from captured tensors of floats, by number."""
    return [
        number
        for number, (function, _, detail) in enumerate(lines, FIRST)
        if function == "load" and captures[int(detail)].dtype.is_float
    ]


def derive(lines: Lines, by: int, score: DType, captures: Sequence[TensorType]) -> Lines | None:
    """The program of the derivative of the result by one value, None where that is 0 everywhere."""
    writer = ProgramWriter(score, captures, lines)
    one = writer.constant(1.0, writer.dtypes[by])
    tangents: dict[int, int] = {by: one}
    for number, line in enumerate(lines, FIRST):
        if number in tangents or not writer.dtypes[number].is_float:
            continue
        made = _line_tangent(writer, line, number, tangents, one)
        if made is not None:
            tangents[number] = made
    result = tangents.get(FIRST + len(lines) - 1)
    return None if result is None else writer.finish(writer.cast(result, score))


def _line_tangent(writer: ProgramWriter, line: Line, number: int, tangents: dict[int, int], one: int) -> int | None:
    """The tangent of a line from those of its operands; None for zero."""
    function, operands, _ = line
    known = [tangents.get(operand) for operand in operands]
    calculate = _Calculator(writer, writer.dtypes[number])
    if all(tangent is None for tangent in known) or function == "load":
        return None
    if function == "cast":
        return writer.cast(known[0] or 0, writer.dtypes[number]) if known[0] is not None else None
    if function == "select":
        first, second = (calculate.number(0.0) if tangent is None else tangent for tangent in known[1:])
        return writer.select(operands[0], first, second)
    total: int | None = None
    for partial, tangent in zip(DERIVATIVES[function].partials, known, strict=True):
        if tangent is None:
            continue
        if not callable(partial):
            if partial == 0.0:
                continue
            part = tangent if partial == 1.0 else calculate("neg", tangent)
        else:
            factor = int(partial(calculate, list(operands), number))
            part = factor if tangent == one else calculate("mul", tangent, factor)
        total = part if total is None else calculate("add", total, part)
    return total
