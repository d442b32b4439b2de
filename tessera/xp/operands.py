"""What functions of the namespace ask of their arguments, which are real or complex tensors."""

from __future__ import annotations

from typing import Any

from tessera.frontend.complex.tensor import is_complex_tensor
from tessera.frontend.functions import operands as real
from tessera.frontend.functions import public as ops
from tessera.types.complex_dtype import ComplexDType, parse_complex_dtype
from tessera.types.dim import Dim
from tessera.types.dtype import DType


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor, real or complex."""
    return is_complex_tensor(value) or real.is_tensor(value)


def dtype_of(value: Any) -> DType | ComplexDType:
    """The dtype of a tensor; raises TracingError (T0201) for what is none."""
    return parse_complex_dtype(value.dtype) if is_complex_tensor(value) else real.dtype_of(value)


def rank_of(value: Any) -> int:
    """How many dims a tensor has."""
    return real.rank_of(_part(value))


def shape_dims(value: Any) -> tuple[Dim, ...]:
    """The dims of a tensor."""
    return real.shape_dims(_part(value))


def cast(x: Any, dtype: Any) -> Any:
    """`x` in another dtype; the same value when it has that dtype."""
    return x if dtype_of(x) is dtype else ops.astype(x, dtype)


def _part(value: Any) -> Any:
    return value.real if is_complex_tensor(value) else value
