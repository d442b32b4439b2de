"""A program to replay: a function, what its arguments are, and how it is compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts

DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "bool": np.bool_,
}
SIZES = {"M": 37, "N": 100, "K": 72, "B": 2, "H": 4, "S": 50, "T": 70, "D": 64, "C": 6, "L": 33, "W": 21, "P": 9}
"""What symbolic dims are in the call that is traced; the code must not know."""
EVERYWHERE = ("cpu-avx2", "cpu-avx512", "gpu-sm_80", "gpu-sm_90a", "gpu-sm_100a")
MAIN = ("cpu-avx512", "gpu-sm_90a")
"""One machine of each kind, for what does not depend on its tensor cores or on the width of its vectors."""
HOSTS = ("cpu-avx2", "cpu-avx512")


@dataclass(frozen=True)
class Case:
    """A function and its arguments; `options` go to `jit`, `context` is around the trace."""

    function: Callable[..., Any]
    arguments: Callable[[], Sequence[Any]]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    machines: tuple[str, ...] = EVERYWHERE
    context: Callable[[], AbstractContextManager[Any]] = nullcontext


@dataclass(frozen=True)
class Sample:
    """A tile kernel of `tests/target/samples.py`."""

    name: str
    machines: tuple[str, ...] = EVERYWHERE


def zeros(text: str) -> Any:
    """An array of zeros from the text of its type: `M K bf16`, `8 64 f32`, `i64`."""
    *dims, dtype = text.split()
    return np.zeros([SIZES[dim] if dim in SIZES else int(dim) for dim in dims], DTYPES[dtype])


def case(function: Callable[..., Any], *types: str, machines: tuple[str, ...] = EVERYWHERE, **options: Any) -> Case:
    """A case whose arguments are tensors; a dim that is a letter is symbolic."""
    annotated = _annotate(function, types)
    return Case(annotated, lambda: [zeros(text) for text in types], options, machines)


def _annotate(function: Callable[..., Any], types: Sequence[str]) -> Callable[..., Any]:
    """The function with types that say which dims are symbolic."""

    def call(*tensors: Any) -> Any:
        return function(*tensors)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__name__ = "replayed"
    call.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(f"x{at}", kind, annotation=_annotation(text)) for at, text in enumerate(types)]
    )
    return call


def _annotation(text: str) -> Any:
    *dims, dtype = text.split()
    known = {"bool": ts.bool_}
    element = known.get(dtype) or getattr(ts, dtype)
    return ts.Tensor[(*(dim if dim in SIZES else int(dim) for dim in dims), element)]
