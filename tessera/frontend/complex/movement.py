"""What moves, joins, makes and indexes complex tensors: the same is done to both parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.complex.parts import as_complex, check_dtype, join, promote_complex, truth
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import algebra, creation, movement, operands
from tessera.frontend.pytree import is_sequence
from tessera.types.complex_dtype import ComplexDType, c64, complex_of
from tessera.types.dtype import DType, parse_dtype


def astype(x: Any, dtype: Any) -> Any:
    """`x` in another dtype: a complex one, or bool, of which all but 0 are true."""
    if not isinstance(dtype, ComplexDType) and parse_dtype(dtype).is_bool:
        return truth(as_complex(x))
    wanted = check_dtype("astype", dtype)
    made = as_complex(x, wanted)
    return x if isinstance(x, ComplexTensor) and x.dtype is wanted else made


def cast_like(x: Any, like: Any) -> ComplexTensor:
    """`x` in the dtype of `like`."""
    return astype(x, like.dtype if isinstance(like, ComplexTensor) else operands.dtype_of(like))


def concat(tensors: Sequence[Any], axis: int = 0) -> ComplexTensor:
    """Tensors joined end to end."""
    return _join_parts(movement.concat, "concat", tensors, axis)


def stack(tensors: Sequence[Any], axis: int = 0) -> ComplexTensor:
    """Tensors of one shape laid along a new axis."""
    return _join_parts(movement.stack, "stack", tensors, axis)


def _join_parts(function: Callable[..., Any], op: str, tensors: Sequence[Any], axis: int) -> ComplexTensor:
    if not is_sequence(tensors):
        return function(tensors, axis)  # which says what is wrong
    listed = promote_complex(op, tensors)
    return ComplexTensor(function([one.real for one in listed], axis), function([one.imag for one in listed], axis))


def pad(x: Any, widths: Any, value: Any = 0) -> ComplexTensor:
    """`x` with `value` around it."""
    z = as_complex(x)
    parts = (value.real, value.imag) if isinstance(value, complex) else (value, 0)
    return ComplexTensor(movement.pad(z.real, widths, parts[0]), movement.pad(z.imag, widths, parts[1]))


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """The coordinates of a grid."""
    listed = [as_complex(one) for one in tensors]
    parts = (algebra.meshgrid(*(one.real for one in listed), indexing=indexing),
             algebra.meshgrid(*(one.imag for one in listed), indexing=indexing))  # fmt: skip
    return tuple(ComplexTensor(*pair) for pair in zip(*parts, strict=True))


def broadcast_arrays(*tensors: Any) -> tuple[Any, ...]:
    """Tensors stretched to the shape that they broadcast to; real ones stay so."""
    dims = algebra.broadcast_dims([one.real if isinstance(one, ComplexTensor) else one for one in tensors])
    return tuple(
        join(movement.broadcast_to(one.real, dims), movement.broadcast_to(one.imag, dims))
        if isinstance(one, ComplexTensor)
        else movement.broadcast_to(one, dims)
        for one in tensors
    )


# Making.


def full(shape: Any, value: Any, dtype: Any = None) -> ComplexTensor:
    """A tensor of one value; a complex number is c64 by default."""
    wanted = c64 if dtype is None else check_dtype("full", dtype)
    if not isinstance(value, bool | int | float | complex):
        raise ArgumentError(f"`full` takes `value` as a number, got {value!r}")
    return _full(lambda part: creation.full(shape, part, wanted.part), value)


def _full(make: Callable[[float], Any], value: complex) -> ComplexTensor:
    return ComplexTensor(make(float(value.real)), make(float(value.imag)))


def full_like(x: Any, value: Any) -> ComplexTensor:
    """One value in the shape of `x`, in its dtype or the complex one that it widens to."""
    real = x.real if isinstance(x, ComplexTensor) else operands.cast(x, complex_of(operands.dtype_of(x)).part)
    return _full(lambda part: creation.full_like(real, part), value)


def zeros(shape: Any, dtype: Any = c64) -> ComplexTensor:
    """A tensor of zeros."""
    return full(shape, 0.0, dtype)


def ones(shape: Any, dtype: Any = c64) -> ComplexTensor:
    """A tensor of ones."""
    return full(shape, 1.0, dtype)


def eye(rows: Any, columns: Any = None, dtype: Any = c64, *, offset: int = 0) -> ComplexTensor:
    """Ones on a diagonal, zeros elsewhere."""
    return join(creation.eye(rows, columns, check_dtype("eye", dtype).part, offset=offset), None)


def linspace(start: Any, stop: Any, num: int, dtype: Any = None, *, endpoint: bool = True) -> ComplexTensor:
    """Evenly spaced numbers from `start` to `stop`, part by part."""
    part: DType = (c64 if dtype is None else check_dtype("linspace", dtype)).part
    ends = ((start.real, stop.real), (start.imag, stop.imag))
    return ComplexTensor(
        *(creation.linspace(float(low), float(high), num, part, endpoint=endpoint) for low, high in ends)
    )


def make_complex(real: Any, imag: Any) -> ComplexTensor:
    """What `ops.complex` says of parts that are complex themselves."""
    raise ArgumentError(
        "`complex` takes real parts, and one of these is complex", fix="write `real + 1j * imag` to add them up"
    )
