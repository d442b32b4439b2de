"""Checks of numbers: bounds proved over the traced program, and what cannot be proved watched while it runs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from inspect import Parameter
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tessera.api.jit import Jit
from tessera.diagnostics.codes import NumericsError, RangeError
from tessera.diagnostics.error import Span
from tessera.frontend.functions.movement import concat, reshape
from tessera.frontend.pytree import flatten, leaf_paths
from tessera.frontend.trace import PROMISES, TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import Record, Tape
from tessera.types.dtype import f64
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace


# Promises about numbers checked on what is given: for kernels and other callables that no trace looks into.


class Verified:
    """A function whose results are looked at; everything else it has is the function's own."""

    def __init__(self, function: Any, stable: bool, low: float | None, high: float | None) -> None:
        update_wrapper(self, function)
        self.function, self.stable, self.low, self.high = function, stable, low, high

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if dispatch.active() is None:
            leaves, _ = flatten(result)
            for number, leaf in enumerate(leaves):
                self._check(leaf, f"result {number}" if len(leaves) > 1 else "the result")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def _check(self, leaf: Any, what: str) -> None:
        import numpy as np  # noqa: PLC0415 - loaded by who verifies

        if not hasattr(leaf, "shape"):
            return
        values = np.asarray(leaf).astype(np.float64)
        name = getattr(self.function, "__name__", "the function")
        if self.stable:
            self._first(
                values, ~np.isfinite(values), f"{what} of `{name}` is not finite", "`stable` asks for finite numbers"
            )
        if self.low is not None and self.high is not None:
            outside = ~((values >= self.low) & (values <= self.high))
            rule = f"`bounded` asks for {self.low:g}..{self.high:g}"
            self._first(values, outside, f"{what} of `{name}` is out of bounds", rule)

    @staticmethod
    def _first(values: Any, wrong: Any, message: str, rule: str) -> None:
        if not wrong.any():
            return
        index = [int(part) for part in next(zip(*wrong.nonzero(), strict=True), ())]
        count = int(wrong.sum())
        raise NumericsError(
            f"{message}: element {index} is {values[tuple(index)]:g}",
            notes=(f"rule: {rule}", f"{count} of {values.size} elements break it"),
        )


Range = Sequence[float]


@frozen
class Rules:
    """What a function promises: results of all ops are finite (`stable`) and `bounded`; inputs are in given ranges."""

    stable: bool
    bounded: tuple[float, float] | None
    inputs: tuple[tuple[str, tuple[float, float]], ...]
    debug: bool


def numerics(
    function: Callable[..., Any] | None = None,
    *,
    stable: bool = True,
    bounded: Range | None = None,
    inputs: Mapping[str, Range] | None = None,
    debug: bool = False,
) -> Any:
    """Promise that every value a function computes is finite, and in `bounded`.

    `inputs` are the ranges of its arguments; those not named are in `bounded`. The program is followed by intervals
    when it is traced: a value that inputs can bring out of its bound, or beyond the largest number of its type, is an
    error (T0305) at the op. What intervals can neither prove nor refute is checked in runs with `debug=True` (T0708),
    which a debug build (`jit(debug=True)`) is too.
    Of a kernel, which is no trace to follow, every result is looked at (T0708).

    >>> @ts.verify.numerics(bounded=[-100, 100])
    ... def squash(x):
    ...     return ts.ops.tanh(x) * 50.0
    >>> squash(ts.array([1.0, 1000.0])).shape
    (2,)
    """
    if function is not None and not callable(function):
        raise RangeError(
            f"`verify.numerics` takes a function, got {function!r}", fix="write `@verify.numerics(bounded=[-1, 1])`"
        )
    if inputs is not None and not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RangeError(
            f"`inputs` are ranges by the names of arguments, got {inputs!r}", fix='write `inputs={"x": [-1, 1]}`'
        )
    ranges = tuple((name, _pair(name, given)) for name, given in (inputs or {}).items())
    rules = Rules(stable, None if bounded is None else _pair("bounded", bounded), ranges, debug)

    def decorate(target: Callable[..., Any]) -> Any:
        return _verify(target, rules)

    return decorate if function is None else decorate(function)


def finite(function: Callable[..., Any]) -> Any:
    """The function with a sentinel behind every op: the first that gives NaN or an infinity is named (T0708).

    >>> try:
    ...     ts.verify.finite(lambda x: ts.ops.log(x) * 0.0)(ts.array([1.0, 0.0]))
    ... except ts.TesseraError as error:
    ...     print(error.message)
    `log` gives -inf, the first value that is not finite
    """
    return _verify(function, Rules(True, None, (), True))


def _pair(name: str, given: Range) -> tuple[float, float]:
    ends: Any = given
    numbers = isinstance(ends, list | tuple) and all(
        isinstance(end, int | float) and not isinstance(end, bool)
        for end in ends  # pyright: ignore[reportUnknownVariableType]
    )
    if not numbers or len(given) != 2:
        raise RangeError(f"`{name}` is a range [low, high], got {given!r}", fix=f"write `{name}=[-100, 100]`")
    low, high = (float(end) for end in given)
    if not low <= high:
        raise RangeError(f"`{name}` is a range [low, high], got [{low:g}, {high:g}]", fix="put the lower end first")
    return low, high


def _verify(target: Callable[..., Any], rules: Rules) -> Any:
    if not isinstance(target, Jit) and not isinstance(target, FunctionType):
        # A kernel is no trace to follow: its results are looked at instead.
        low, high = rules.bounded or (None, None)
        return Verified(target, rules.stable, low, high)
    jitted = target if isinstance(target, Jit) else Jit(target)
    own, rules = jitted.function, replace(rules, debug=rules.debug or jitted.options.debug)
    _check_names(jitted, rules)

    def run_checked(*args: Any, **kwargs: Any) -> Any:
        trace: Any = dispatch.tracing()
        first = len(trace.tape.records)
        result = own(*args, **kwargs)
        given = jitted.python_signature.bind(*args, **kwargs).arguments
        watched = _prove(_part(trace, first, given, result), rules)
        if not rules.debug:
            return result
        inputs = _limited_inputs(trace, rules)
        checked_inputs = [(f"{value} {low!r} {high!r}", value) for value, (low, high) in inputs.items()]
        ops = [(str(number), trace.tape.records[number].results[0]) for number in watched]
        # Without ranges an argument breaks none: what first uses it is named, if it is watched.
        looked_at = [*checked_inputs, *ops] if rules.bounded or rules.inputs else [*ops, *checked_inputs]
        return result, _flags(trace, [value for _, value in looked_at]), "\n".join(one for one, _ in looked_at)

    update_wrapper(run_checked, own)
    if rules.bounded is not None:
        promised = {"numerics.bounded": rules.bounded, "numerics.inputs": dict(rules.inputs)}
        setattr(run_checked, PROMISES, {**getattr(own, PROMISES, {}), **promised})
    made = jitted.with_function(run_checked)
    made.trace_floats(False)  # what is proved of a number is proved of its value
    return Watched(made, own, rules) if rules.debug else made


def _check_names(jitted: Jit, rules: Rules) -> None:
    """Raise for a range of what is no parameter; `x[0]` and `x.w` are parts of `x`."""
    kinds = [parameter.kind for parameter in jitted.python_signature.parameters.values()]
    if Parameter.VAR_POSITIONAL in kinds or Parameter.VAR_KEYWORD in kinds:
        return
    known = list(jitted.python_signature.parameters)
    for name, _ in rules.inputs:
        if re.split(r"[.\[]", name, maxsplit=1)[0] not in known:
            shown = ", ".join(f"`{one}`" for one in known)
            raise RangeError(f"`inputs` names `{name}`, which is no parameter", fix=f"name one of {shown}")


def _limited_inputs(trace: Trace, rules: Rules) -> dict[int, tuple[float, float]]:
    """The float inputs and the ranges they are promised to be in: what the proof relies on."""
    tape, given, most = trace.tape, dict(rules.inputs), float("inf")
    found: dict[int, tuple[float, float]] = {}
    for value, name in zip(tape.inputs, tape.names, strict=False):
        limits = given.get(name, rules.bounded)
        if tape.types[value].dtype.is_float and (limits is not None or rules.stable):
            low, high = limits or (-most, most)
            slack = tape.types[value].dtype.epsilon if limits else 0.0
            # The end of a range may round outward where it becomes a number of the dtype.
            found[value] = (low - abs(low) * slack, high + abs(high) * slack) if slack else (low, high)
    return found


def _part(trace: Trace, first: int, given: Mapping[str, Any], result: Any) -> Tape:
    """What a function itself put on a tape, from its first record on: all of it, where it is not called by another."""
    returned = [leaf for leaf in flatten(result, keep_order=True)[0] if isinstance(leaf, TracedTensor)]
    part = Tape(records=trace.tape.records[first:], outputs=list(map(trace.value_of, returned)), types=trace.tape.types)
    for name, argument in given.items():
        leaves, tree = flatten(argument)
        for leaf, path in zip(leaves, leaf_paths(tree, name), strict=True):
            if isinstance(leaf, TracedTensor):
                part.inputs.append(trace.value_of(leaf))
                part.names.append(path)
    own = len(part.inputs)
    if first == 0 and (trace.tape.inputs[:own], trace.tape.names[:own]) == (part.inputs, part.names):
        return replace(trace.tape, outputs=part.outputs)
    made = {value for record in part.records for value in record.results}
    read = [value for record in part.records for value in record.operands if value not in made]
    outside = [value for value in dict.fromkeys(read) if value not in part.inputs]
    part.inputs += outside
    part.names += ["" for _ in outside]
    return part


def _prove(tape: Tape, rules: Rules) -> list[int]:
    """Where values are computed that intervals do not prove right, by the number of their record; raises for wrong."""
    from tessera.ir.graph.tape_analysis import find_unproved  # noqa: PLC0415 - only what is verified needs it

    return find_unproved(tape, rules.bounded, dict(rules.inputs))


def _flags(trace: Trace, watched: Sequence[int]) -> Any:
    """For each value that is watched: its least and largest; NaN stays in both."""
    rows = [_min_max(TracedTensor(trace, value, trace.tape.types[value])) for value in watched]
    if not rows:
        return apply("full", (), {"shape": (), "value": 0.0, "dtype": f64})
    return concat(rows, axis=0)


def _min_max(tensor: TracedTensor) -> Any:
    """Least and largest as two numbers of f64; NaN stays in both."""
    axes = tuple(range(tensor.ndim))
    parts = [apply(kind, (tensor,), {"axes": axes, "identity": True}) for kind in ("min", "max")]
    return concat([reshape(part, (1,)).cast(f64) for part in parts], axis=0)


class Watched:
    """A verified function whose runs are checked; called as the function it wraps."""

    def __init__(self, jitted: Jit, function: Callable[..., Any], rules: Rules) -> None:
        update_wrapper(self, function)
        self.jitted, self.function, self.rules = jitted, function, rules

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if dispatch.tracing() is not None:
            raise RangeError(
                f"`{self.jitted.name}` is watched as it runs, and inside of another function nothing would look at it",
                fix="put `verify` around the outermost function, or leave `debug=True` out for what is proved alone",
            )
        result, flags, entries = self.jitted(*args, **kwargs)
        if entries:
            self._check(flags, entries.split("\n"), args, kwargs)
        return result

    def _check(self, flags: Any, entries: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        numbers: list[float] = flags.tolist()
        most_of_all = float("inf")
        for at, entry in enumerate(entries):
            number, *ends = entry.split(" ")
            low, high = map(float, ends) if ends else self.rules.bounded or (-most_of_all, most_of_all)
            least, most = numbers[2 * at : 2 * at + 2]
            if least > most:
                continue  # of no elements
            bad = next((end for end in (least, most) if not math.isfinite(end)), None) if self.rules.stable else None
            if bad is None and not (low <= least and most <= high):
                bad = least if not low <= least else most
            if bad is not None:
                describe = self._found_input if ends else self._describe
                raise describe(bad, int(number), (low, high), args, kwargs)

    def _found_input(
        self, bad: float, value: int, limits: tuple[float, float], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> NumericsError:
        tape = self.jitted.trace(*args, **kwargs).tape
        name = tape.names[tape.inputs.index(value)]
        rule = f"outside of [{limits[0]:g}, {limits[1]:g}]" if math.isfinite(bad) else "which is not finite"
        return NumericsError(
            f"argument `{name}` of `{self.jitted.name}` holds {bad:.6g}, {rule}",
            notes=(f"the tensor is {tape.types[value]}", "what is proved of the function is proved for such arguments"),
            fix="mend what is passed, or declare wider `inputs`",
        )

    def _describe(
        self, bad: float, number: int, limits: tuple[float, float], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> NumericsError:
        tape = self.jitted.trace(*args, **kwargs).tape
        record = tape.records[number]
        name, span = record.op.split(".", 1)[1], record.span
        what = f"{tape.types[record.results[0]]}"
        if math.isfinite(bad):
            message = f"`{name}` gives {bad:.6g}, outside of [{limits[0]:g}, {limits[1]:g}]"
        else:
            message = f"`{name}` gives {bad:.6g}, the first value that is not finite"
        return NumericsError(message, span=span, notes=(f"the tensor is {what}", *_operands(tape, record)))


def _operands(tape: Any, record: Record) -> list[str]:
    found: list[str] = []
    for value in dict.fromkeys(record.operands):
        if value in tape.inputs:
            found.append(f"its operand `{tape.names[tape.inputs.index(value)]}` is {tape.types[value]}")
            continue
        made = next((one for one in tape.records if value in one.results), None)
        if made is not None and isinstance(made.span, Span):
            found.append(f"its operand comes from `{made.op.split('.', 1)[1]}` at line {made.span.line}")
    return found
