"""Data types of the array API standard: their names, what they hold, how they meet, and what the library has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tessera.diagnostics.codes import ArgumentError, DTypeError
from tessera.frontend.functions import public as ops
from tessera.ir.base.interval import largest_of
from tessera.types.complex_dtype import ComplexDType, c64, c128, complex_of, find_complex_dtype
from tessera.types.device import cpu
from tessera.types.dtype import (
    FORMATS,
    DType,
    bool_,
    f32,
    f64,
    find_dtype,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tessera.types.frozen import frozen
from tessera.types.promotion import integer_range, promote_all, promote_scalar
from tessera.xp.operands import dtype_of, is_tensor

bool = bool_
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float32, float64 = f32, f64
complex64, complex128 = c64, c128

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

_SIGNED = {"int8": i8, "int16": i16, "int32": i32, "int64": i64}
_UNSIGNED = {"uint8": u8, "uint16": u16, "uint32": u32, "uint64": u64}
_FLOATING = {"float32": f32, "float64": f64}
_COMPLEX = {"complex64": c64, "complex128": c128}

KINDS: dict[str, Mapping[str, DType | ComplexDType]] = {
    "bool": {"bool": bool_},
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": {**_SIGNED, **_UNSIGNED},
    "real floating": _FLOATING,
    "complex floating": _COMPLEX,
    "numeric": {**_SIGNED, **_UNSIGNED, **_FLOATING, **_COMPLEX},
}
"""Data types by the names that the standard has for kinds of them."""

_CHECKED: dict[str, Mapping[str, DType | ComplexDType]] = {
    **KINDS,
    "real numeric": {**_SIGNED, **_UNSIGNED, **_FLOATING},
    "floating": {**_FLOATING, **_COMPLEX},
}
"""What functions take: these kinds, and two that only their errors name."""


def parse(dtype: Any, default: Any) -> Any:
    """The dtype that an argument asks for; raises DTypeError (T0102) for one that there is not."""
    if dtype is None:
        return default
    found = find_complex_dtype(dtype) or find_dtype(dtype)
    if found is None:
        raise DTypeError(f"`tessera.xp` has no dtype {dtype!r}", fix="write one of its own, as in `xp.float32`")
    return found


def check_device(device: Any) -> None:
    """Raises ArgumentError (T0202) for a device that functions of this namespace do not make tensors on."""
    if device is not None and device is not cpu and str(device) != str(cpu):
        raise ArgumentError(
            f"`tessera.xp` makes tensors on `cpu`, not on {device}", fix="write `tessera.cuda.array(x)` for a GPU"
        )


def check_kind(name: str, x: Any, *kinds: str) -> Any:
    """`x`; raises DTypeError (T0102) where it is of none of these kinds."""
    if is_tensor(x) and not any(dtype_of(x) in _CHECKED[kind].values() for kind in kinds):
        raise DTypeError(f"`{name}` takes {' or '.join(kinds)} tensors, got {dtype_of(x)}")
    return x


@frozen
class FloatInfo:
    """What `finfo` says of a float dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@frozen
class IntegerInfo:
    """What `iinfo` says of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_or_own(type: Any) -> Any:
    return dtype_of(type) if is_tensor(type) else parse(type, f32)


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a float dtype, or of that of a tensor; of a complex one those of its parts."""
    dtype = _dtype_or_own(type)
    dtype = dtype.part if isinstance(dtype, ComplexDType) else dtype
    if not dtype.is_float:
        raise DTypeError(f"`finfo` takes a float dtype, got {dtype}", fix=f"write `iinfo({dtype})`")
    smallest = 2.0**-1022 if dtype is f64 else FORMATS[dtype.name].smallest_normal
    largest = largest_of(dtype)
    return FloatInfo(dtype.bits, 2.0**-dtype.mantissa, largest, -largest, smallest, dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, or of that of a tensor."""
    dtype = _dtype_or_own(type)
    if not dtype.is_integer:
        raise DTypeError(f"`iinfo` takes an integer dtype, got {dtype}", fix=f"write `finfo({dtype})`")
    low, high = integer_range(dtype)
    return IntegerInfo(dtype.bits, high, low, dtype)


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is of a kind: a dtype, the name of a kind as in "real floating", or a tuple of those."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(kind, str):
        return dtype is kind or parse(kind, f32) is dtype
    if kind not in KINDS:
        raise ArgumentError(f"there is no kind of dtypes {kind!r}", fix=f"write one of {', '.join(map(repr, KINDS))}")
    return any(one is dtype for one in KINDS[kind].values())


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that tensors, dtypes and Python numbers meet in; raises DTypeError (T0102) where there is none."""
    dtypes = [_dtype_or_own(one) for one in arrays_and_dtypes if not isinstance(one, int | float | complex)]
    if not dtypes:
        raise DTypeError("`result_type` needs a tensor or a dtype beside numbers")
    # Complex dtypes meet as their parts do.
    joined = promote_all([one.part if isinstance(one, ComplexDType) else one for one in dtypes])
    for one in arrays_and_dtypes:
        if joined is not None and isinstance(one, int | float):
            joined = promote_scalar(joined, one)
    if joined is None:
        raise DTypeError(f"no dtype holds every value of {', '.join(map(str, dtypes))}")
    is_complex = any(isinstance(one, ComplexDType | complex) for one in (*dtypes, *arrays_and_dtypes))
    return complex_of(joined) if is_complex else joined


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether promotion takes one dtype to another."""
    source, target = _dtype_or_own(from_), _dtype_or_own(to)
    if isinstance(target, ComplexDType):
        part = source.part if isinstance(source, ComplexDType) else source
        return promote_all([part, target.part]) is target.part
    return not isinstance(source, ComplexDType) and promote_all([source, target]) is target


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Any:
    """`x` in another dtype; floats become integers by truncation, anything but zero is true."""
    check_device(device)
    return ops.astype(x, parse(dtype, f32))


class _NamespaceInfo:
    """What the namespace has: `xp.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks and results of unknown shape work, outside of `jit`; there is no limit on dims."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Any:
        """The device that tensors are made on."""
        return cpu

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """What dtypes are chosen where none is given."""
        check_device(device)
        return {"real floating": f32, "complex floating": c64, "integral": i64, "indexing": i64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Data types by name, all or those of a kind."""
        check_device(device)
        every = {**KINDS["bool"], **KINDS["numeric"]}
        return every if kind is None else {name: one for name, one in every.items() if isdtype(one, kind)}

    def devices(self) -> list[Any]:
        """The devices that tensors are made on."""
        return [cpu]


def __array_namespace_info__() -> _NamespaceInfo:  # noqa: N807 - the standard's name for it
    """What the namespace has."""
    return _NamespaceInfo()


__all__ = [
    "astype", "bool", "can_cast", "complex64", "complex128", "e", "finfo", "float32", "float64", "iinfo", "inf",
    "int8", "int16", "int32", "int64", "isdtype", "nan", "newaxis", "pi", "result_type", "uint8", "uint16", "uint32",
    "uint64",
]  # fmt: skip
