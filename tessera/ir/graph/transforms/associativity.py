"""Whether a combiner is associative: known by its ops, or tried on numbers that would show that it is not.

A combiner is a tape from the values of two elements, and captured ones, to those of one. Known are combiners that apply
one associative op to each pair of values. Any other is run by the references of its ops on random elements: on small
integers first, of which floats make no rounding errors, then on others, and on those of the scale of its constants, as
a sum that is limited differs only near its limit; all floats are in f64 where its ops allow it. What differs by more
than rounding is a counterexample. Numbers that overflow, or are not defined, show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np

from tessera.diagnostics.error import CompilationError
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.interpret import interpret
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import function_of
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

ASSOCIATIVE = {
    "add": "sum",
    "mul": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
    **dict.fromkeys(("logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "matmul"), ""),
}
"""Ops of two values that are associative, up to rounding, and the reductions that they are the steps of."""
TRIES = 12
_MOST_CONSTANTS = 4
_SMALL = 4.0
_LARGEST = 1 << 52
"""Up to where integers are tried as floats."""
_SIZE = 2
"""What a symbolic dim is when a combiner is tried."""

Element = tuple[Array, ...]


def known_op(tape: Tape, at: int, count: int) -> str | None:
    """The op that makes value `at` of the result of value `at` of both elements, where it is known; else None."""
    output, pair = tape.outputs[at], {tape.inputs[at], tape.inputs[count + at]}
    record = next((one for one in tape.records if output in one.results), None)
    if record is None or set(record.operands) != pair or len(record.operands) != 2 or len(pair) != 2:
        return None
    name = REGISTRY[record.op].short_name
    is_same = tape.types[record.operands[0]] == tape.types[record.operands[1]] == tape.types[output]
    return name if name in ASSOCIATIVE and is_same else None


@frozen
class Counterexample:
    """Three elements, and what the two ways to combine them give, which differ."""

    elements: tuple[Element, Element, Element]
    first: Element
    second: Element

    def __str__(self) -> str:
        a, b, c = (_show(one) for one in self.elements)
        gaps = [_gap(*pair) for pair in zip(self.first, self.second, strict=True)]
        at = int(np.argmax(gaps))
        where = f" in value {at}" if len(gaps) > 1 else ""
        first, second = (_show(one[at : at + 1]) for one in (self.first, self.second))
        by = f", which differ by up to {gaps[at]:.3g}" if first == second else ""
        return f"with a = {a}, b = {b} and c = {c}, f(f(a, b), c) is {first}{where} and f(a, f(b, c)) is {second}{by}"


def _gap(left: Array, right: Array) -> float:
    """How far two values are apart at most."""
    return float(np.abs(left.astype(np.float64) - right.astype(np.float64)).max(initial=0.0))


def _show(element: Element) -> str:
    texts = [np.array2string(np.asarray(one), precision=6, separator=", ", threshold=4) for one in element]
    texts = [" ".join(text.split()) for text in texts]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def find_counterexample(tape: Tape, count: int) -> Counterexample | None:
    """Elements that a combiner of `count` values combines differently, or None where none was found.

    Raises whatever its references raise where they cannot be run.
    """
    if all(known_op(tape, at, count) is not None or tape.outputs[at] in _own(tape, at, count) for at in range(count)):
        return None
    wide = _in_f64(tape)
    run, types = _function(wide), [wide.types[value] for value in wide.inputs]
    is_exact = wide is not tape or not any(_is_narrow(type.dtype) for type in types)
    rng = np.random.default_rng(0)
    constants = list(dict.fromkeys(_constants(tape)))
    most = max(constants, default=0.0)
    for number, scale in enumerate(_scales(constants)):
        is_integer = number % 2 == 0 or not is_exact
        drawn = [[_draw(rng, type, scale, most, is_integer) for type in types[:count]] for _ in range(3)]
        captured = [_draw(rng, type, scale, most, is_integer) for type in types[2 * count :]]
        a, b, c = (tuple(one) for one in drawn)
        with np.errstate(all="ignore"):
            ab, bc = run(*a, *b, *captured), run(*b, *c, *captured)
            first, second = run(*ab, *c, *captured), run(*a, *bc, *captured)
        seen = [*a, *b, *c, *ab, *bc, *first, *second]
        if not all(np.isfinite(one).all() for one in seen if one.dtype.kind not in "biu"):
            continue
        bound = _rounding(types[:count], seen, scale)
        for left, right, type in zip(first, second, types, strict=False):
            if _gap(left, right) > (bound if type.dtype.is_float else 0):
                return Counterexample((a, b, c), first, second)
    return None


def _own(tape: Tape, at: int, count: int) -> tuple[int, int]:
    """Value `at` of each element: to choose one of the two is associative."""
    return tape.inputs[at], tape.inputs[count + at]


def _rounding(types: Sequence[TensorType], seen: Sequence[Array], scale: float) -> float:
    """How far results may be apart by rounding alone: some units in the last place of the largest number met.

    Where that is much larger than what was drawn, as a quotient by almost 0 is, so are the errors of what it is of.
    """
    floats = [type.dtype for type in types if type.dtype.is_float]
    most = max((float(np.abs(one.astype(np.float64)).max(initial=0.0)) for one in seen), default=0.0)
    return max((_tolerance(one) for one in floats), default=0.0) * (1 + most) * max(1.0, most / max(scale, 1.0))


def _tolerance(dtype: DType) -> float:
    """256 units in the last place, and 8 where those are all that there is."""
    return {dt.f64: 2.0**-44, dt.f32: 2.0**-15}.get(dtype, 2.0**-5)


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype not in (dt.f64, dt.f32)


def _scales(constants: Sequence[float]) -> list[float]:
    """How large the numbers of each try are: small, as the constants of a combiner, and round ones."""
    far = [one for one in constants if not 0.25 <= one <= _SMALL][:_MOST_CONSTANTS]
    near = [scale for one in far for scale in [one] * 8 + [2 * one] * 4]
    return [_SMALL] * TRIES + near + [10.0, 10.0, 100.0, 100.0, 1000.0, 1000.0]


def _constants(tape: Tape) -> Iterator[float]:
    """The sizes of the numbers that are written in a combiner."""
    for record in tape.records:
        if REGISTRY[record.op].short_name in ("full", "constant"):
            numbers = np.abs(np.asarray(record.attributes["value"]).astype(np.float64))
            yield from np.unique(numbers[np.isfinite(numbers) & (numbers > 0)]).tolist()
        for body in record.bodies:
            yield from _constants(body)


def _draw(rng: np.random.Generator, type: TensorType, scale: float, most: float, is_integer: bool) -> Array:
    """Numbers of a scale: integers, or for floats others.

    Integers are at most `most`, the largest constant, or such that a product of two does not overflow: a remainder of
    products is associative until one does.
    """
    shape = tuple(dim.evaluate(dict.fromkeys(dim.symbols, _SIZE)) for dim in type.shape)
    kind = numpy_dtype(type.dtype)
    if type.dtype.is_bool:
        return rng.integers(0, 2, shape).astype(kind)
    if type.dtype.is_float and not (is_integer and 1 <= scale <= _LARGEST):
        return (rng.standard_normal(shape) * (scale / _SMALL)).astype(kind)
    largest = _LARGEST if type.dtype.is_float else int(np.iinfo(kind).max)
    size = max(1, int(min(scale, max(math.isqrt(largest), most), largest)))
    is_signed = type.dtype.is_float or type.dtype.name.startswith("i")
    return rng.integers(-size if is_signed else 0, size + 1, shape).astype(kind)


def _function(tape: Tape) -> Callable[..., Element]:
    """A tape as a function of arrays, by the references of its ops."""
    function = function_of(tape, "combiner")

    def run(*arrays: Array) -> Element:
        return tuple(np.asarray(one) for one in interpret(function, *arrays))

    return run


def _in_f64(tape: Tape) -> Tape:
    """The same ops with all floats as f64; the tape itself where they do not take them."""
    try:
        wide = _rebuild_in_f64(tape)
    except CompilationError:
        return tape
    wanted = [_widen(tape.types[one]) for one in tape.outputs]
    return wide if [wide.types[one] for one in wide.outputs] == wanted else tape


def _rebuild_in_f64(tape: Tape) -> Tape:
    builder = TapeBuilder()
    types = [tape.types[value] for value in tape.inputs]
    made = add_inputs(builder.tape, [_widen(type) for type in types], tape.names)
    values = dict(zip(tape.inputs, made, strict=True))
    for record in tape.records:
        attributes = {name: _widen_attribute(value) for name, value in record.attributes.items()}
        results = builder.append(REGISTRY[record.op], [values[one] for one in record.operands], attributes)
        values.update(zip(record.results, results, strict=True))
    builder.tape.outputs = [values[one] for one in tape.outputs]
    return builder.tape


def _widen_attribute(value: Any) -> Any:
    if isinstance(value, Tape):
        return _rebuild_in_f64(value)
    if isinstance(value, tuple):
        return tuple(_widen_attribute(one) for one in cast("tuple[Any, ...]", value))
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        return array if array.dtype.kind in "biuc" else array.astype(np.float64)
    return dt.f64 if isinstance(value, DType) and value.is_float else value


def _widen(type: TensorType) -> TensorType:
    return type.with_dtype(dt.f64) if type.dtype.is_float else type
