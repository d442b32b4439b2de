"""Functions that make complex tensors and take them apart; real tensors are complex ones without an imaginary part."""

from __future__ import annotations

import math
from typing import Any

from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.concrete import is_array
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions.algebra import broadcast_arrays
from tessera.frontend.functions.creation import zeros_like
from tessera.frontend.functions.operands import cast, dtype_of, promote_operands
from tessera.types.complex_dtype import complex_of
from tessera.types.promotion import FLOATING


def complex(real: Any, imag: Any) -> ComplexTensor:
    """The complex tensor of two real ones, which broadcast: c128 where they meet in f64, else c64.

    >>> ts.ops.complex(ts.array([3.0, 0.0]), 1.0)
    ComplexTensor([2] c64, [3+1j, 0+1j])
    """
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - for arrays of NumPy

    parts = promote_operands("complex", (real, imag), FLOATING)
    part = complex_of(dtype_of(parts[0])).part
    made = broadcast_arrays(*(cast(one, part) for one in parts))
    return ComplexTensor(*(Tensor.from_numpy(one) if is_array(one) else one for one in made))


def real(x: Any) -> Any:
    """The real part of each element, which of a real number is itself."""
    dtype_of(x)
    return x


def imag(x: Any) -> Any:
    """The imaginary part of each element, which of a real number is 0.

    >>> ts.ops.imag(ts.array([1 + 2j]))
    Tensor([1] f32, [2])
    """
    return zeros_like(x)


def conj(x: Any) -> Any:
    """The complex conjugate of each element, which of a real number is itself.

    >>> ts.ops.conj(ts.array([1 + 2j]))
    ComplexTensor([1] c64, [1-2j])
    """
    dtype_of(x)
    return x


def angle(x: Any) -> Any:
    """The angle of each element, from -pi to pi: 0 of a positive number, pi of a negative one.

    >>> ts.ops.angle(ts.array([2.0, 2j]))
    Tensor([2] f32, [0, 1.5708])
    """
    (wide,) = promote_operands("angle", (x,), FLOATING)
    return e.where(e.isnan(wide), wide, e.where(e.lt(e.copysign(1.0, wide), 0.0), math.pi, zeros_like(wide)))


__all__ = ["angle", "complex", "conj", "imag", "real"]
