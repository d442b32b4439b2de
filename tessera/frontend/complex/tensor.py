"""`ComplexTensor`: a tensor of complex numbers, which is a pair of real ones of one shape and one dtype.

The compiler knows nothing of it. It is a container of two leaves, `real` and `imag`, so that it goes through `jit`,
`grad`, `vmap`, `scan`, donation and checkpoints as every pytree does; its parts are f32 (`c64`) or f64 (`c128`).
Functions of `tessera.ops` that have a meaning for complex numbers take it (`tessera.frontend.complex.table` lists
them), and so do operators. It is made by `ts.array` of complex numbers, or by `ts.ops.complex(real, imag)`.

The derivative of a real function by a complex tensor is that by its parts: `dL/dx + i dL/dy`, the direction of steepest
ascent, which is PyTorch's convention and the conjugate of JAX's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tessera.diagnostics.codes import DTypeError, OperatorError, RuntimeArgumentError
from tessera.frontend.concrete import copy_to_host
from tessera.frontend.methods import TensorMethods
from tessera.frontend.pytree import as_tuple, is_sequence, register
from tessera.types.complex_dtype import ComplexDType, c64, c128, find_complex_dtype
from tessera.types.dtype import f32

if TYPE_CHECKING:
    import numpy as np


class ComplexTensor(TensorMethods):
    """A tensor of complex numbers: `real` and `imag` are tensors of one shape, both f32 or both f64.

    >>> z = ts.array([3 + 4j, 1j])
    >>> z.dtype, z.real.tolist(), abs(z).tolist()
    (c64, [3.0, 0.0], [5.0, 1.0])
    >>> z * z.conj()
    ComplexTensor([2] c64, [25+0j, 1+0j])
    """

    __slots__ = ("imag", "real")
    __array_ufunc__ = None  # so that `array + z` is `z.__radd__(array)`

    real: Any
    imag: Any

    def __init__(self, real: Any, imag: Any) -> None:
        # Unchecked: transforms put into a container whatever stands for its leaves.
        self.real, self.imag = real, imag

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims: ints where static, sizes where symbolic."""
        return self.real.shape

    @property
    def dtype(self) -> ComplexDType:
        return c64 if self.real.dtype is f32 else c128

    @property
    def ndim(self) -> int:
        return self.real.ndim

    @property
    def size(self) -> Any:
        """The number of elements."""
        return self.real.size

    @property
    def device(self) -> Any:
        """Where both parts are."""
        return self.real.device

    @property
    def at(self) -> Any:
        """What gives new tensors with elements replaced: `z.at[index].set(values)`, and `add`."""
        return ComplexAt(self)

    def conj(self) -> ComplexTensor:
        """The complex conjugate of each element."""
        return ComplexTensor(self.real, -self.imag)

    def copy(self) -> ComplexTensor:
        """The tensor with memory of its own."""
        return ComplexTensor(self.real.copy(), self.imag.copy())

    def to_device(self, device: Any, /, *, stream: Any = None) -> ComplexTensor:
        """The tensor on a device."""
        return ComplexTensor(
            self.real.to_device(device, stream=stream),
            self.imag.to_device(device, stream=stream),
        )

    # Elements, as Python and NumPy see them: two of ours make one of theirs, which is a copy.

    def numpy(self) -> np.ndarray[Any, Any]:
        """A new array of NumPy, complex64 or complex128; a copy, as the two parts lie apart here."""
        import numpy  # noqa: PLC0415 - as for tensors

        real, imag = (numpy.asarray(part) for part in copy_to_host((self.real, self.imag)))
        made = numpy.empty(real.shape, numpy.complex64 if self.dtype is c64 else numpy.complex128)
        made.real, made.imag = real, imag
        return made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a complex tensor becomes an array only by a copy: its parts lie apart")
        array = self.numpy()
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.real.__dlpack_device__()

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """A copy, whose elements lie together as other libraries have them."""
        if copy is False:
            raise BufferError("a complex tensor is shared only by a copy: its parts lie apart")
        if stream is not None:
            raise BufferError("complex tensors are copied to host memory, which has no stream")
        given: dict[str, Any] = {"dl_device": dl_device} if dl_device is not None else {}
        array: Any = self.numpy()
        return array.__dlpack__(**given, max_version=max_version) if max_version else array.__dlpack__(**given)

    def tolist(self) -> Any:
        """The elements as nested lists of Python's complex numbers; a number for rank 0."""
        return self.numpy().tolist()

    def item(self) -> complex:
        """The only element, as a Python number."""
        if self.size != 1:
            raise OperatorError(
                f"only a tensor of one element has an item, this one has shape {list(self.shape)}",
                fix="reduce it first, or take all elements with `z.tolist()`",
            )
        return self.numpy().item()

    def __complex__(self) -> complex:
        return self.item() if hasattr(self.real, "tolist") else complex(self.real)  # which a tracer refuses

    def __bool__(self) -> bool:
        return bool(_are_not_zero(self))

    def __float__(self) -> NoReturn:
        raise _no_real("float")

    def __int__(self) -> NoReturn:
        raise _no_real("int")

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Iterator[ComplexTensor]:
        return (ComplexTensor(real, imag) for real, imag in zip(self.real, self.imag, strict=True))

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise OperatorError(
            f"tensors do not change, and this assigns to elements of a tensor of {self.dtype}",
            fix="write `z = z.at[index].set(value)`",
        )

    def __repr__(self) -> str:
        if not hasattr(self.real, "tolist"):
            return f"ComplexTensor({self.real!r}, {self.imag!r})"
        import numpy  # noqa: PLC0415 - as above

        begin = f"ComplexTensor({list(self.shape)} {self.dtype}, "
        formats: Any = {"complex_kind": _show_number}
        return f"{numpy.array2string(self.numpy(), separator=', ', formatter=formats, prefix=begin).join((begin, ')'))}"


def _show_number(value: Any) -> str:
    return f"{value.real:g}{value.imag:+g}j"


def _are_not_zero(z: ComplexTensor) -> Any:
    """Where elements are not zero."""
    return (z.real != 0) | (z.imag != 0)


def _no_real(name: str) -> OperatorError:
    return OperatorError(
        f"a complex tensor is no {name}: it has two parts", fix=f"write `{name}(z.real)`, or `{name}(abs(z))`"
    )


class ComplexAt:
    """`z.at`: indexed like `z` itself, it gives what replaces elements of `z`."""

    __slots__ = ("_z",)

    def __init__(self, z: ComplexTensor) -> None:
        self._z = z

    def __getitem__(self, index: Any) -> IndexedComplex:
        return IndexedComplex(self._z, index)


class IndexedComplex:
    """Some elements of a complex tensor, each part of which is updated as `x.at` updates it.

    >>> ts.array([1j, 2j]).at[0].add(1.0)
    ComplexTensor([2] c64, [1+1j, 0+2j])
    """

    __slots__ = ("_index", "_z")

    def __init__(self, z: ComplexTensor, index: Any) -> None:
        self._z, self._index = z, index

    def set(self, values: Any, *, mode: str | None = None) -> ComplexTensor:
        """`z` with these elements replaced; of equal indices the last one counts."""
        return self._update("set", values, mode)

    def add(self, values: Any, *, mode: str | None = None) -> ComplexTensor:
        """`z` with values added to these elements."""
        return self._update("add", values, mode)

    def get(self, *, mode: str | None = None) -> ComplexTensor:
        """`z[index]`, with a `mode` for indices out of bounds."""
        real, imag = (part.at[self._index].get(mode=mode) for part in (self._z.real, self._z.imag))
        return ComplexTensor(real, imag)

    def _update(self, how: str, values: Any, mode: str | None) -> ComplexTensor:
        parts = split_number(values)
        made = (
            getattr(part.at[self._index], how)(one, mode=mode)
            for part, one in zip((self._z.real, self._z.imag), parts, strict=True)
        )
        return ComplexTensor(*made)

    def __getattr__(self, name: str) -> Any:
        if name not in ("mul", "max", "min"):
            raise AttributeError(name)
        raise DTypeError(f"`at[...].{name}` is not defined for complex numbers", fix="use `set` or `add`")


# What is complex, and its parts.


def split_number(value: Any) -> tuple[Any, Any]:
    """The parts of a complex tensor, array or number, and those of a real one, whose imaginary part is 0."""
    made = adopt_complex(value)
    if isinstance(made, ComplexTensor | complex):
        return made.real, made.imag
    return made, 0.0


def is_complex_tensor(value: Any) -> bool:
    """Whether a value is a complex tensor, or an array of complex numbers of another library."""
    if isinstance(value, ComplexTensor):
        return True
    return not isinstance(value, complex) and is_complex_array(value)


def is_complex_array(value: Any) -> bool:
    """Whether a value is an array or a scalar of NumPy, or a tensor of another library, of complex numbers."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and not isinstance(value, type) and find_complex_dtype(dtype) is not None


def adopt_complex(value: Any) -> Any:
    """A complex array of another library as one of ours, by a copy; any other value as it is."""
    if value.__class__ is complex or isinstance(value, ComplexTensor) or not is_complex_array(value):
        return value
    import numpy  # noqa: PLC0415 - for arrays of others

    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - as `frontend.concrete`

    try:
        array: Any = numpy.asarray(value)
    except (TypeError, RuntimeError) as error:
        raise RuntimeArgumentError(
            f"a complex {type(value).__name__} cannot be shared: {error}",
            fix="pass its parts: `tessera.ops.complex(z.real, z.imag)`",
        ) from error
    return ComplexTensor(*(Tensor.from_numpy(numpy.array(part, order="C")) for part in (array.real, array.imag)))


def numbers_to_complex(values: Any, dtype: ComplexDType) -> ComplexTensor:
    """A tensor of nested lists of numbers, or of one, whose parts have the dtype of that of `dtype`."""
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - as above

    def part(one: Any, pick: Callable[[Any], Any]) -> Any:
        return [part(item, pick) for item in as_tuple(one)] if is_sequence(one) else pick(one)

    picks: tuple[Callable[[Any], Any], ...] = (lambda one: one.real, lambda one: one.imag)
    return ComplexTensor(*(Tensor.of(part(values, pick), dtype.part) for pick in picks))


def holds_complex_numbers(values: Any) -> bool:
    """Whether nested lists hold a complex number of Python or NumPy, or one is given."""
    if is_sequence(values):
        return any(holds_complex_numbers(one) for one in as_tuple(values))
    return isinstance(values, complex) or is_complex_array(values)


register(
    ComplexTensor,
    lambda z: ((z.real, z.imag), None),
    lambda _, parts: ComplexTensor(*parts),
    fields=("real", "imag"),
)
