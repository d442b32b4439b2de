"""Dtypes of complex numbers: c64 and c128, each a pair of floats.

The compiler has no complex elements: a complex tensor is two real ones. So these are no `DType`, and whatever takes an
element type refuses them.
"""

from __future__ import annotations

import sys
from typing import Any

from tessera.diagnostics.codes import DTypeError
from tessera.types.dtype import DType, f32, f64
from tessera.types.frozen import frozen
from tessera.types.promotion import float_of


@frozen
class ComplexDType:
    """A dtype of complex numbers; `c64` and `c128` are its only instances. `part` is the dtype of its two parts."""

    name: str
    part: DType

    kind = "complex"
    is_float = is_integer = is_bool = False

    @property
    def bits(self) -> int:
        return 2 * self.part.bits

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return 2 * self.part.bytes

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number."""
        return self.part.epsilon

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        # As of `DType`: code compares it by identity.
        return parse_complex_dtype, (self.name,)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


c64 = ComplexDType("c64", f32)
c128 = ComplexDType("c128", f64)

COMPLEX_NAMES = {"c64": c64, "complex64": c64, "c128": c128, "complex128": c128}
"""Complex dtypes by their names here, and in NumPy, JAX and PyTorch."""


def find_complex_dtype(given: Any) -> ComplexDType | None:
    """The complex dtype that a value stands for, or None: one of ours, a name, or a dtype of another library.

    >>> find_complex_dtype("complex64"), find_complex_dtype("f32")
    (c64, None)
    """
    kind = given.__class__
    if kind is ComplexDType:
        return given
    if isinstance(given, str):
        return COMPLEX_NAMES.get(given)
    if kind.__name__ == "dtype" and kind.__module__.partition(".")[0] == "torch":
        return COMPLEX_NAMES.get(str(given).removeprefix("torch."))
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(given, type):
        given = numpy.dtype(given) if issubclass(given, numpy.generic) else getattr(given, "dtype", None)
    return COMPLEX_NAMES.get(given.name) if isinstance(given, numpy.dtype) and given.isnative else None


def parse_complex_dtype(given: Any) -> ComplexDType:
    """The complex dtype that a value stands for; raises DTypeError (T0102) for any other."""
    found = find_complex_dtype(given)
    if found is None:
        raise DTypeError(f"`{given}` is not a complex dtype", fix="write `tessera.c64` or `tessera.c128`")
    return found


def complex_of(dtype: DType | ComplexDType) -> ComplexDType:
    """The complex dtype that a dtype widens to: of f64 and integers of 64 bits c128, of all others c64.

    >>> from tessera.types.dtype import bf16, i64
    >>> complex_of(bf16), complex_of(i64), complex_of(c64)
    (c64, c128, c64)
    """
    if isinstance(dtype, ComplexDType):
        return dtype
    return c128 if float_of(dtype) is f64 else c64
