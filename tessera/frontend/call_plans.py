"""Plans of eager calls: what a function did for arguments of one form is done again without asking anew.

A function such as `ops.sum` asks for dtypes and ranks, promotes, counts axes and looks a program up, all in Python, for
a program that runs in less than a microsecond. That depends on the form of its arguments alone: dtypes and shapes of
tensors, and values of everything else. So the second call of a form is watched, and from the third on its programs are
called straight away. A call that reads elements, or gives a program an operand that is no argument, no number of the
call and no earlier result, is never planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import EllipsisType, NoneType
from typing import Any, cast

from tessera.frontend.concrete import device_class
from tessera.ir.base.dispatch import TRACES
from tessera.runtime.tensor import Tensor, native, watch_reads
from tessera.types.dtype import DType

MOST = 2048
"""How many forms are known; the older half is forgotten beyond that."""
_LONGEST = 32
"""Items of a list, beyond which a call is not planned: its key would take longer than it saves."""
_EXACT = frozenset((int, bool, str, NoneType, EllipsisType, DType))
"""Classes of arguments that are equal exactly where they mean the same, next to others of their class."""
_WITHOUT_READS = frozenset(
    f"tessera.frontend.functions.{name}" for name in ("scalar", "elementwise", "reduction", "contraction")
)
"""Modules whose functions look at no element: arrays of NumPy, of which nobody is told who reads them, are operands."""

_SEEN: Any = object()
PLANS: dict[tuple[Any, ...], Any] = {}
"""By form: a plan, `_SEEN` for one that was called once, None for one that cannot be planned."""
_Call = Callable[..., Any]


class Watch:
    """What a call that is watched did: the numbers it made tensors of, and the programs that it called."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.steps: list[tuple[_Call, Sequence[Any], Any, bool]] = []
        self.is_plain = True


def note_number(made: Any) -> Any:
    """A tensor of a Python number of a call, which a plan may use again; gives it back."""
    if TRACES.watch is not None:
        TRACES.watch.numbers.append(made)
    return made


def note_program(call: _Call | None, operands: Sequence[Any], result: Any, is_single: bool) -> None:
    """A program that was called with these operands as they are; None where they had to be made to fit."""
    if TRACES.watch is not None:
        TRACES.watch.is_plain &= call is not None
        TRACES.watch.steps.append((call, operands, result, is_single))


def plan_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose eager calls are planned."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        made = call_planned(function, args)
        return function(*args) if made is NotImplemented else made

    return call


def call_planned(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any] | None = None) -> Any:
    """The result of an eager call that has a plan, or that makes one; NotImplemented for all others."""
    if TRACES.stack or TRACES.watch is not None:
        return NotImplemented
    tensors: list[Any] = []
    key = _key_of(function, args, given, tensors)
    if key is None:
        return NotImplemented
    plan = PLANS.get(key, NotImplemented)
    if plan.__class__ is tuple:
        try:
            return _run(plan, tensors)
        except Exception:
            return NotImplemented  # whoever calls again without a plan says what is wrong
    if plan is _SEEN:
        return _watch_call(functools.partial(function, *args, **given or {}), key, tensors)
    if plan is NotImplemented:
        _keep(key, _SEEN)
    return NotImplemented


def _key_of(
    function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any] | None, tensors: list[Any]
) -> tuple[Any, ...] | None:
    """The form of a call, whose tensors are added to those given; None where an argument has none."""
    key: list[Any] = [function]
    form = native().form
    for value in args:
        if type(value) is Tensor:
            key.append(form(value))
            tensors.append(value)
        elif not _add(value, key, tensors):
            return None
    if given and not _add_named(given, key, tensors):
        return None
    if len(tensors) > 1:
        # Which operand an argument is can be told as long as it is one argument.
        numbers = [*map(id, tensors)]
        if len({*numbers}) < len(numbers):
            key.append((*map(numbers.index, numbers),))
    return tuple(key)


def _add_named(given: Mapping[str, Any], key: list[Any], tensors: list[Any]) -> bool:
    for name, value in given.items():
        key.append(name)
        if not _add(value, key, tensors):
            return False
    return True


def _add(value: Any, key: list[Any], tensors: list[Any]) -> bool:
    """Add the form of an argument to a key; False where it has none."""
    kind = cast("Any", type(value))
    if kind is Tensor or (kind.__name__ == "ndarray" and key[0].__module__ in _WITHOUT_READS):
        key.append(native().form(value))
        tensors.append(value)
        return key[-1] is not NotImplemented
    if kind in _EXACT:
        key += (kind, value)
    elif kind is float:
        # Zeros have a sign, and NaN equals nothing.
        key += (kind, value if value * 0 == 0 != value else repr(value))
    elif kind is tuple or kind is list:
        key.append((kind, len(value)))
        return len(value) <= _LONGEST and _add_all(value, key, tensors)
    elif kind is slice:
        key.append(kind)
        return _add_all((value.start, value.stop, value.step), key, tensors)
    elif kind is device_class():
        key.append(value.form)
        tensors.append(value)
    else:
        return False
    return True


def _add_all(values: Sequence[Any], key: list[Any], tensors: list[Any]) -> bool:
    for value in values:  # noqa: SIM110 - `all` of a generator takes twice as long
        if not _add(value, key, tensors):
            return False
    return True


def _keep(key: tuple[Any, ...], plan: Any) -> None:
    if len(PLANS) >= MOST:
        for old in [*islice(PLANS, MOST // 2)]:
            PLANS.pop(old, None)
    PLANS[key] = plan


def _watch_call(call: Callable[[], Any], key: tuple[Any, ...], tensors: list[Any]) -> Any:
    TRACES.watch = watch = Watch()
    try:
        with watch_reads() as reads:
            result = call()
    except Exception:
        _keep(key, None)
        return NotImplemented  # as for a plan that fails
    finally:
        TRACES.watch = None
    _keep(key, None if reads or not watch.is_plain else _make_plan(watch, tensors, result))
    return result


def _make_plan(watch: Watch, tensors: Sequence[Any], result: Any) -> tuple[Any, ...] | None:
    """The numbers, the steps and where the result is, as `_run` takes them; None where a value came from elsewhere.

    Values are numbered: the tensors of the call, its numbers, then the results of each step.
    """
    at: dict[int, int] = {}
    for number, value in enumerate((*tensors, *watch.numbers)):
        at.setdefault(id(value), number)
    count = first = len(tensors) + len(watch.numbers)
    steps: list[list[Any]] = []
    for call, operands, made, is_single in watch.steps:
        taken = [at.get(id(operand)) for operand in operands]
        if None in taken:
            return None
        steps.append([call, taken, is_single, []])
        for value in (made,) if is_single else made:
            at[id(value)] = count
            count += 1
    returned = [at.get(id(value)) for value in (result if type(result) in (tuple, list) else (result,))]
    if any(one is None or len(tensors) <= one < first for one in returned):
        return None
    for number in range(first, count):
        # What no step needs any more is let go, as the function itself lets it go.
        last = max((step for step, (_, taken, _, _) in enumerate(steps) if number in taken), default=None)
        if last is not None and number not in returned:
            steps[last][3].append(number)
    if len(steps) == 1 and steps[0][2] and result is watch.steps[0][2] and _are_same(watch.steps[0][1], tensors):
        return (steps[0][0], None, None, None)
    kind = cast("Any", type(result)) if type(result) in (tuple, list) else None
    return ((*watch.numbers,), (*map(tuple, steps),), kind, returned if kind else returned[0])


def _are_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _run(plan: tuple[Any, ...], tensors: list[Any]) -> Any:
    first, steps, kind, returned = plan
    if steps is None:
        return first(*tensors)
    values = [*tensors, *first]
    for call, taken, is_single, dead in steps:
        made = call(*[values[one] for one in taken])
        if made is NotImplemented:
            return made
        if is_single or type(made) is not tuple:
            values.append(made)
        else:
            values += made
        for one in dead:
            values[one] = None
    return values[returned] if kind is None else kind([values[one] for one in returned])
