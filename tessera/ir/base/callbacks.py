"""Calls of Python by a program that is run op by op: the functions it was traced with, and what each call does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

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


def perform(
    call: str, slot: int, text: str, values: Sequence[Array], wanted: Sequence[tuple[DType, Sequence[int]]]
) -> tuple[Array, ...]:
    """What a callback gives for arrays: one for each dtype and shape that is `wanted`."""
    from tessera.runtime import callback  # noqa: PLC0415 - tracing needs no runtime
    from tessera.runtime.callback import check_positions  # noqa: PLC0415
    from tessera.runtime.ranks import world  # noqa: PLC0415
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415

    tensors = [Tensor.of(np.array(value, order="C")) for value in values]
    if call == "debug_print":
        callback.show(text, tensors)
        return ()
    if call == "check_positions":
        check_positions(text, *tensors)
        return ()
    if call == "fresh_key":
        return (np.frombuffer(callback.fresh_key(), np.uint64).copy(),)
    if call == "axis_index":
        return (np.array(world.axis_position(text, slot), np.int64),)
    declared = [(dtype.name, tuple(shape)) for dtype, shape in wanted]
    given = callback.call(_FUNCTIONS.get()[slot], tensors, declared)
    return tuple(np.asarray(one).astype(numpy_dtype(dtype)) for one, (dtype, _) in zip(given, wanted, strict=True))
