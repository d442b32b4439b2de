"""Calls of Python by a program that is run op by op: the functions it was traced with, and what each call does."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from tessera.diagnostics.span import Span
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.types.dtype import DType

_FUNCTIONS: ContextVar[Sequence[Callable[..., Any]]] = ContextVar("functions", default=())


@contextmanager
def calling(functions: Sequence[Callable[..., Any]]) -> Generator[None]:
    """Within it, callbacks find the functions of a program by their slots."""
    token = _FUNCTIONS.set(functions)
    try:
        yield
    finally:
        _FUNCTIONS.reset(token)


def placed(op: str, span: Span | None) -> str:
    """What a check carries along: whose operands it looks at, and where that stands."""
    place = None if span is None else (span.file, span.line, span.column, span.end_line, span.end_column)
    return json.dumps({"op": op, "place": place})


def perform(
    call: str, slot: int, text: str, values: Sequence[Array], wanted: Sequence[tuple[DType, Sequence[int]]]
) -> tuple[Array, ...]:
    """What a callback gives for arrays: one for each dtype and shape that is `wanted`."""
    from tessera.runtime import callback  # noqa: PLC0415 - tracing needs no runtime
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415

    tensors = [Tensor.of(np.array(value, order="C")) for value in values]
    if call == "debug_print":
        callback.show(text, tensors)
        return ()
    if call == "check_index":
        callback.check_index(text, *tensors)
        return ()
    if call == "fresh_key":
        return (np.frombuffer(callback.fresh_key(), np.uint64).copy(),)
    declared = [(dtype.name, tuple(shape)) for dtype, shape in wanted]
    given = callback.call(_FUNCTIONS.get()[slot], tensors, declared)
    return tuple(np.asarray(one).astype(numpy_dtype(dtype)) for one, (dtype, _) in zip(given, wanted, strict=True))
