"""Functions of the array API standard that make tensors."""

from __future__ import annotations

import math
from typing import Any

from tessera.api.eager import asarray as _asarray
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_int
from tessera.frontend.complex.tensor import adopt_complex
from tessera.frontend.functions import public as ops
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.types.complex_dtype import ComplexDType, c64
from tessera.types.dtype import bool_, f32, f64, i64, u64
from tessera.xp.data_types import check_device, parse
from tessera.xp.operands import dtype_of, is_tensor, rank_of


def _default_of(value: Any) -> Any:
    """The dtype of a Python number."""
    kinds = ((bool, bool_), (int, i64), (float, f32))
    return next((dtype for kind, dtype in kinds if isinstance(value, kind)), c64)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Any:
    """Numbers from `start` up to and without `stop`, `step` apart."""
    check_device(device)
    first, last = (0, start) if stop is None else (start, stop)
    ends = (first, last, step)
    natural = f32 if any(isinstance(end, float) for end in ends) else i64
    wanted = parse(dtype, natural)
    if isinstance(wanted, ComplexDType):
        return ops.astype(arange(first, last, step, dtype=wanted.part), wanted)
    count = max(-((first - last) // step) if natural is i64 else math.ceil((last - first) / step), 0)
    if not wanted.is_float:
        # Of u64 a step down is one up by what is left to 2^64.
        wide, by = (u64, int(step) % (1 << 64)) if wanted is u64 else (i64, int(step))
        return ops.astype(ops.add(ops.mul(ops.astype(ops.iota((count,)), wide), by), int(first)), wanted)
    made = ops.add(ops.mul(ops.astype(ops.iota((count,)), f64), float(step)), float(first))
    return ops.astype(made, wanted)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Any:
    """A tensor of numbers, nested lists, an array or a buffer; `copy=False` raises where one would be made."""
    check_device(device)
    obj = adopt_complex(obj)
    if is_tensor(obj):
        own = dtype_of(obj)
        wanted = parse(dtype, own)
        if copy is False and wanted is not own:
            raise ValueError(f"`asarray` cannot share {own} elements as {wanted}")
        made = ops.astype(obj, wanted) if wanted is not own else obj
        is_shared = made is obj and copy and hasattr(obj, "copy")
        return obj.copy() if is_shared else _asarray(made)
    if copy is False and not hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
        raise ValueError("`asarray` cannot share the elements of Python numbers")
    if is_sequence(obj) and _holds_tensors(obj):
        return ops.stack([asarray(one, dtype=dtype) for one in as_tuple(obj)])
    return _asarray(obj, None if dtype is None else parse(dtype, f32))


def _holds_tensors(values: Any) -> bool:
    """Whether nested lists hold tensors."""
    return any(is_tensor(one) or (is_sequence(one) and _holds_tensors(one)) for one in as_tuple(values))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """A tensor of the elements of an array of another library, shared where it can be."""
    check_device(device)
    made = _asarray(x)
    return made.copy() if copy else made


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of one value."""
    check_device(device)
    wanted = parse(dtype, _default_of(fill_value))
    return ops.full(shape, bool(fill_value) if wanted.is_bool else fill_value, wanted)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of zeros."""
    return full(shape, 0.0 if dtype is None else 0, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of ones."""
    return full(shape, 1.0 if dtype is None else 1, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor whose elements do not matter: zeros."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One value in the shape, and by default the dtype, of `x`."""
    return full(tuple(x.shape), fill_value, dtype=parse(dtype, dtype_of(x)), device=device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros in the shape, and by default the dtype, of `x`."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones in the shape, and by default the dtype, of `x`."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """A tensor like `x` whose elements do not matter: zeros."""
    return full_like(x, 0, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
    """Ones on diagonal `k`, zeros elsewhere."""
    check_device(device)
    return ops.eye(n_rows, n_cols, parse(dtype, f32), offset=k)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Any:
    """`num` evenly spaced numbers from `start` to `stop`, computed in f64 and rounded once; integers are floors."""
    check_device(device)
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    wanted = parse(dtype, c64 if is_complex else f32)
    if isinstance(wanted, ComplexDType):
        return _complex_linspace(complex(start), complex(stop), num, wanted, endpoint)
    count = check_int("linspace", "num", num)
    steps = max(count - 1 if endpoint else count, 1)
    at = ops.astype(ops.iota((count,)), f64)
    ends: Any = (start, stop)
    low, high = (float(end) for end in ends)
    whole = high - low
    step = whole / steps
    if math.isinf(whole) and math.isfinite(low) and math.isfinite(high):
        # The difference of large numbers overflows; shares of each do not.
        share = ops.div(at, float(steps))
        made = ops.add(ops.mul(ops.sub(1.0, share), low), ops.mul(share, high))
    elif step == 0.0 and whole != 0.0:
        made = ops.add(ops.mul(ops.div(at, float(steps)), whole), low)
    else:
        made = ops.add(ops.mul(at, step), low)
    if endpoint and count > 1:
        made = ops.where(ops.eq(at, float(steps)), high, made)
    return ops.astype(ops.floor(made) if wanted.is_integer else made, wanted)


def _complex_linspace(start: complex, stop: complex, num: int, dtype: ComplexDType, endpoint: bool) -> Any:
    ends = ((start.real, stop.real), (start.imag, stop.imag))
    return ops.complex(*(linspace(*both, num, dtype=dtype.part, endpoint=endpoint) for both in ends))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """The coordinates of a grid: one tensor for each axis, "xy" with the first two axes exchanged."""
    return list(ops.meshgrid(*arrays, indexing=indexing))


def tril(x: Any, /, *, k: int = 0) -> Any:
    """`x` with zeros above diagonal `k`."""
    return _triangle("tril", x, k)


def triu(x: Any, /, *, k: int = 0) -> Any:
    """`x` with zeros below diagonal `k`."""
    return _triangle("triu", x, k)


def _triangle(name: str, x: Any, k: int) -> Any:
    if rank_of(x) < 2:
        raise ArgumentError(f"`{name}` needs a matrix, got {rank_of(x)} dims")
    return ops.tril(x, k) if name == "tril" else ops.triu(x, k)
