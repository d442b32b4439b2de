"""Calls of functions on tensors that have a complex argument: one table says what each function does then.

Every function of `tessera.frontend.functions.public` is wrapped once. A call whose arguments are all known to be real,
by their classes, goes straight on; eager calls that are planned do not even come here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import BoundArguments, signature
from types import EllipsisType, NoneType
from typing import Any, TypeVar, cast

from tessera.diagnostics.codes import DTypeError
from tessera.frontend.complex.tensor import ComplexTensor, adopt_complex, is_complex_array
from tessera.frontend.pytree import as_tuple
from tessera.types.complex_dtype import COMPLEX_NAMES, ComplexDType, find_complex_dtype
from tessera.types.dtype import DType

Function = TypeVar("Function", bound=Callable[..., Any])

_REAL: set[type[Any]] = {bool, int, float, slice, NoneType, EllipsisType, DType}
"""Classes none of whose values are complex, nor contain any that are."""
_COMPLEX: frozenset[type[Any]] = frozenset((ComplexTensor, ComplexDType, complex))


def is_complex(value: Any) -> bool:
    """Whether an argument is complex: a tensor, a number, an array or a dtype, or a list that has one."""
    kind = cast("type[Any]", type(value))
    if kind in _REAL:
        return False
    if kind in _COMPLEX:
        return True
    if kind is tuple or kind is list:
        return has_complex(value)
    if kind is str:
        return value in COMPLEX_NAMES
    home = kind.__module__.partition(".")[0]
    if home == "tessera":
        _REAL.add(kind)
        return False
    return isinstance(value, complex) or is_complex_array(value) or find_complex_dtype(value) is not None


def has_complex(values: Sequence[Any]) -> bool:
    """Whether one of several arguments is complex."""
    for value in values:  # noqa: SIM110 - `any` of a generator takes twice as long
        if value.__class__ not in _REAL and is_complex(value):
            return True
    return False


def accept_complex(function: Function) -> Function:
    """The function, whose calls with complex arguments are looked up in the table of those that take them."""

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if has_complex(args) or (given and has_complex([*given.values()])):
            bound = _bind(function, args, given)
            if bound is not None:
                return _call_complex(function.__name__, bound.args, bound.kwargs)
        return function(*args, **given)  # which raises where arguments do not fit it

    return cast("Function", call)


def _bind(function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> BoundArguments | None:
    """Arguments by the parameters of a function, by position where they have one; None where they do not fit."""
    try:
        return _signature_of(function).bind(*args, **given)
    except TypeError:
        return None


_signature_of = functools.cache(signature)


def _call_complex(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    table: Mapping[str, Callable[..., Any]] = import_module("tessera.frontend.complex.table").TABLE
    function = table.get(name)
    if function is None:
        raise DTypeError(
            f"`{name}` is not defined for complex numbers",
            notes=("rule: what orders elements, or reads them as integers, takes real tensors, and so do most layers",),
            fix="pass the parts, `z.real` and `z.imag`, or `abs(z)`",
        )
    return function(*map(_adopt, args), **{name: _adopt(value) for name, value in given.items()})


def _adopt(value: Any) -> Any:
    """Complex arrays of others as ours, in lists and tuples too, and complex dtypes as ours."""
    if value.__class__ is list:
        return [_adopt(one) for one in as_tuple(value)]
    if value.__class__ is tuple:
        return tuple([_adopt(one) for one in as_tuple(value)])
    if value.__class__ in _COMPLEX or value.__class__ in _REAL:
        return value
    return find_complex_dtype(value) or (complex(value) if _is_number(value) else adopt_complex(value))


def _is_number(value: Any) -> bool:
    # `complex128` of NumPy is a complex number of Python too, and has a dtype of its own.
    return isinstance(value, complex) and not hasattr(value, "dtype")
