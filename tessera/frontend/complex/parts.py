"""How arguments become parts: pairs of real operands in one dtype, and pairs of parts become complex tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tessera.diagnostics.codes import DTypeError
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.concrete import is_array
from tessera.frontend.functions import elementwise as e
from tessera.frontend.functions import movement
from tessera.frontend.functions.algebra import broadcast_dims
from tessera.frontend.functions.creation import zeros_like
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, promote_operands, shape_dims
from tessera.frontend.pytree import is_sequence
from tessera.types.complex_dtype import ComplexDType, complex_of
from tessera.types.dtype import DType
from tessera.types.promotion import FLOATING


class Parts(NamedTuple):
    """The parts of an operand, real tensors of f32 or f64; `imag` is None where it is a real number."""

    real: Any
    imag: Any = None

    @property
    def dtype(self) -> DType:
        return dtype_of(self.real)


def parts_of(op: str, *values: Any) -> list[Parts]:
    """The parts of operands in the dtype that they meet in, as real operands promote; each keeps its own shape."""
    found = [(value.real, value.imag) if _is_complex(value) else (_own(value), None) for value in values]
    flat = [part for pair in found for part in pair if part is not None]
    made = iter(promote_operands(op, flat, FLOATING))
    paired = [Parts(next(made), None if imag is None else next(made)) for _, imag in found]
    return [Parts(*(None if part is None else _widen(part) for part in pair)) for pair in paired]


def _is_complex(value: Any) -> bool:
    return isinstance(value, ComplexTensor | complex)


def _own(value: Any) -> Any:
    """An array of NumPy as a tensor of ours, whose operators take tensors of all kinds."""
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - as `frontend.concrete`

    return Tensor.from_numpy(value) if is_array(value) else value


def _widen(part: Any) -> Any:
    return cast(part, complex_of(dtype_of(part)).part)


def join(real: Any, imag: Any) -> ComplexTensor:
    """A complex tensor of two parts in one dtype, which broadcast to one shape; None stands for 0."""
    if imag is None:
        return ComplexTensor(real, zeros_like(real))
    if shape_dims(real) != shape_dims(imag):
        dims = broadcast_dims((real, imag))
        real, imag = movement.broadcast_to(real, dims), movement.broadcast_to(imag, dims)
    return ComplexTensor(real, imag)


def as_complex(value: Any, dtype: ComplexDType | None = None) -> ComplexTensor:
    """A number or a tensor, real or complex, as a complex tensor, by default in the dtype that it widens to."""
    if isinstance(value, ComplexTensor):
        real, imag = value.real, value.imag
    elif isinstance(value, complex):
        real, imag = (as_tensor(part, None if dtype is None else dtype.part) for part in (value.real, value.imag))
    else:
        real = as_tensor(_own(value))
        real, imag = cast(real, complex_of(dtype_of(real)).part), None
    if dtype is not None:
        real, imag = cast(real, dtype.part), imag if imag is None else cast(imag, dtype.part)
    return join(real, imag)


def promote_complex(op: str, values: Sequence[Any]) -> list[ComplexTensor]:
    """Operands as complex tensors of one dtype, each in its own shape."""
    return [join(*parts) for parts in parts_of(op, *values)]


def check_dtype(op: str, dtype: Any) -> ComplexDType:
    """A dtype that a complex tensor becomes; raises DTypeError (T0102) for a real one."""
    if not isinstance(dtype, ComplexDType):
        raise DTypeError(
            f"`{op}` does not make complex numbers {dtype}: their imaginary parts would be lost",
            fix="take the real parts first, as in `z.real`",
        )
    return dtype


# Functions of real tensors as functions of complex ones.


def truth(value: Any) -> Any:
    """Where elements of a complex tensor are not zero; any other value as it is."""
    if isinstance(value, complex):
        return bool(value)
    return e.logical_or(e.ne(value.real, 0.0), e.ne(value.imag, 0.0)) if isinstance(value, ComplexTensor) else value


def each_part(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is linear in its first argument, or moves its elements, on each part of that argument."""

    def call(x: Any, *args: Any, **given: Any) -> Any:
        z = as_complex(x)
        real, imag = function(z.real, *args, **given), function(z.imag, *args, **given)
        if is_sequence(real):
            return tuple(ComplexTensor(*pair) for pair in zip(real, imag, strict=True))
        return ComplexTensor(real, imag)

    return call


def scatter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that puts or adds updates into a tensor, on the parts of both."""

    def call(x: Any, indices: Any, updates: Any, *args: Any, **given: Any) -> ComplexTensor:
        z = as_complex(x)
        wanted = as_complex(updates, z.dtype)
        return ComplexTensor(
            function(z.real, indices, wanted.real, *args, **given),
            function(z.imag, indices, wanted.imag, *args, **given),
        )

    return call


def conditions(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that asks which elements are not 0, of complex ones."""

    def call(*args: Any, **given: Any) -> Any:
        return function(*map(truth, args), **given)

    return call
