"""NumPy arrays in and out, without a copy; NumPy is imported only when one of these is called."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tessera.diagnostics.codes import OutOfMemoryError, RuntimeArgumentError
from tessera.runtime.element import integer_range
from tessera.runtime.native.layout import check_arrays
from tessera.runtime.native.support import Support
from tessera.types.dtype import ALL, BY_NAME, DType

if TYPE_CHECKING:
    import numpy as np

_NUMPY_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "i4": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "bool": "bool",
}
_ML_NAMES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_BY_NUMPY_NAME = {
    **{numpy_name: name for name, numpy_name in _NUMPY_NAMES.items() if name != "i4"},
    **{ml_name: name for name, ml_name in _ML_NAMES.items()},
    "int4": "i4",
}
_FIRST_NARROW = next(code for code, dtype in enumerate(ALL) if dtype.name in _ML_NAMES)


def is_array(value: object) -> bool:
    """Whether `value` is a NumPy array or scalar; never imports NumPy to find out."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def is_masked(value: object) -> bool:
    """Whether `value` is a masked array, whose mask no tensor keeps."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(value, module.MaskedArray)


def without_tensors(value: Any, kind: type[Any]) -> Any:
    """Arguments of a NumPy function, with the arrays that share their memory in place of tensors of that kind."""
    if isinstance(value, (list, tuple)):
        items = [without_tensors(item, kind) for item in cast("list[Any]", value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: without_tensors(item, kind) for key, item in cast("dict[Any, Any]", value).items()}
    return value.numpy() if isinstance(value, kind) else value


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype elements of `dtype` lie in; bf16 and the 8-bit floats are those of ml_dtypes."""
    import numpy  # noqa: PLC0415 (executables run without NumPy)

    if dtype.name in _ML_NAMES:
        import ml_dtypes  # noqa: PLC0415 (only these three dtypes need it)

        return numpy.dtype(getattr(ml_dtypes, _ML_NAMES[dtype.name]))
    return numpy.dtype(_NUMPY_NAMES[dtype.name])


def dtype_of(array: np.ndarray[Any, Any]) -> DType:
    """Our dtype of an array; raises RuntimeArgumentError (T0701) if there is none for it."""
    name = _BY_NUMPY_NAME.get(array.dtype.name)
    if name is None:
        raise RuntimeArgumentError(f"arrays of NumPy dtype `{array.dtype}` have no Tessera dtype")
    return BY_NAME[name]


def plain(array: Any, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """`array` itself, or a copy of it that is C-contiguous, aligned and in native byte order; i4 values are checked."""
    import numpy  # noqa: PLC0415 (executables run without NumPy)

    if is_masked(array):
        raise RuntimeArgumentError(
            "a masked array is no tensor: its mask would be lost",
            fix="pass `x.filled(value)`, or `x.data` and `x.mask` as two tensors",
        )
    ready = numpy.asarray(array)
    try:
        if not ready.dtype.isnative:
            ready = ready.astype(ready.dtype.newbyteorder("="))
        ready = numpy.require(ready, requirements=["C_CONTIGUOUS", "ALIGNED"])
    except MemoryError:
        raise OutOfMemoryError(
            f"no memory for {ready.nbytes} bytes: a copy of an array of {list(ready.shape)} {ready.dtype}",
            notes=("an array that is not contiguous, aligned and in native byte order is copied",),
        ) from None
    if dtype is not None and dtype.name == "i4" and ready.size:
        low, high = integer_range(dtype)
        least, greatest = int(ready.min()), int(ready.max())
        if least < low or greatest > high:
            raise RuntimeArgumentError(f"i4 holds {low}..{high}, but the array has values in {least}..{greatest}")
    shape = numpy.shape(array)
    # `require` makes rank 0 into rank 1.
    return ready if ready.shape == shape else ready.reshape(shape)


def attach(support: Support) -> None:
    """Let the native call path read NumPy arrays, if NumPy has been imported; checks the layout it relies on first."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return
    if not support.environment.array_type:
        check_arrays(numpy.zeros((2, 3), numpy.float32))
        # Values of i4 arrays need a look at each call, which is the slow path's business.
        _describe(support, {name for name in _NUMPY_NAMES if name != "i4"})
        support.environment.array_type = id(numpy.ndarray)
    if "ml_dtypes" in sys.modules and not support.environment.descriptors[_FIRST_NARROW]:
        _describe(support, _ML_NAMES.keys())


def _describe(support: Support, names: Collection[str]) -> None:
    for code, dtype in enumerate(ALL):
        if dtype.name in names:
            support.environment.descriptors[code] = id(numpy_dtype(dtype))
