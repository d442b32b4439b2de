"""`Tensor`: elements in host memory with a shape and a dtype, shared with NumPy and DLPack without copies."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, cast

from tessera.diagnostics.codes import OperatorError, OutOfMemoryError, RuntimeArgumentError
from tessera.diagnostics.error import TesseraError
from tessera.diagnostics.frames import guard_class
from tessera.runtime import arrays, dlpack, foreign
from tessera.runtime.arrays import FORMATS, Scalar, decode, encode, render
from tessera.runtime.native.support import Support, load_support, slot_offset
from tessera.runtime.operators import Operators
from tessera.types.annotation import TensorAnnotation, annotation_of
from tessera.types.dtype import ALL, BY_NAME, DType, f32, f64, parse_dtype
from tessera.types.dtype import FORMATS as FORMATS_OF

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import CapsuleType


# Where the bytes of a Python object with a buffer are, those that may not be written included.


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    ]


def buffer_address(view: memoryview) -> int:
    """The address of the first byte; 0 where there is none."""
    if not view.nbytes:
        return 0
    if not view.readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(view))
    # ctypes refuses read-only buffers; the buffer record itself says where they are.
    record = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(record), 0)
    try:
        return int(record.buf)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(record))


# Who is notified when Python reads the elements of a tensor: a trace asks, for what it reads is part of its program.

READERS: list[Callable[[Any], None]] = []
"""Called with each tensor that is read; empty outside of traces, where reading costs one look at it."""


@contextmanager
def watch_reads() -> Generator[list[Any]]:
    """Within it, the tensors whose elements Python reads are put into the list it gives."""
    found: list[Any] = []
    READERS.append(found.append)
    try:
        yield found
    finally:
        # Not `remove`: it compares lists, and with it the tensors in them.
        READERS[:] = [reader for reader in READERS if getattr(reader, "__self__", None) is not found]


def notify_readers(tensor: Any) -> None:
    """Let those who ask know that a tensor is read."""
    for reader in READERS:
        reader(tensor)


CODES = {dtype: code for code, dtype in enumerate(ALL)}
"""The number native code knows a dtype by."""
MOST_BYTES = 2**63 - 1
"""Sizes and strides that native code can count."""

_CONTIGUOUS, _READ_ONLY = 1, 2
MOVED, CONSUMED = 4, 8
"""Flags of a tensor whose memory was that of another, and of that other one, which was donated to a call."""
_OWNER_OBJECT = 2
_BY_FORMAT = {mark: name for name, mark in FORMATS.items() if name != "i4"} | {"l": "i64", "L": "u64"}

_PLAIN = frozenset((bool, int, float, list, tuple))
"""What holds numbers without memory of its own to share."""

_support: Support | None = None


def native(embedded: bytes = b"") -> Support:
    """The support code, knowing `Tensor`; loaded at the first call."""
    global _support
    if _support is None:
        support = load_support(embedded=embedded)
        _introduce(support)
        _support = support
    return _support


@guard_class
class Tensor(Operators):
    """A block of elements with a shape and a dtype.

    Tensors come from compiled functions, from `Tensor.of`, and from other libraries; they share memory with NumPy
    arrays and DLPack tensors. Memory that compiled functions fill is 64-byte aligned and reused when a tensor dies.

    >>> x = Tensor.of([[1, 2], [3, 4]], "f32")
    >>> x.shape, x.dtype, x.tolist()
    ((2, 2), f32, [[1.0, 2.0], [3.0, 4.0]])
    """

    __slots__ = ("__weakref__", "_handle")

    _handle: object

    def __new__(cls, *arguments: object, **options: object) -> NoReturn:
        raise OperatorError("tensors are not made by calling `Tensor`", fix="use `ts.array(values, dtype)`")

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items)

    @staticmethod
    def of(value: Any, dtype: DType | str | None = None) -> Tensor:
        """A tensor of anything that holds elements: a tensor, an array, a DLPack tensor, a buffer, nested lists.

        Arrays, tensors of other libraries and buffers are shared where they are contiguous. Numbers and lists need a
        `dtype`, and are rounded to it; for the others it must agree. Raises RuntimeArgumentError (T0701).
        """
        wanted = dtype if dtype is None else parse_dtype(dtype)
        if value.__class__ in _PLAIN:
            return _from_values(value, wanted)
        if isinstance(value, Tensor):
            made = value
        elif arrays.is_array(value):
            made = Tensor.from_numpy(value, wanted)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            made = Tensor.from_buffer(value)
        elif foreign.is_foreign(value):
            made = _on_host(foreign.share(value))
        else:
            return _from_values(value, wanted)
        if wanted is not None and made.dtype != wanted:
            raise RuntimeArgumentError(
                f"the elements are {made.dtype}, not {wanted}",
                notes=("arrays and tensors are shared, not converted",),
                fix=f"convert them with `ts.ops.cast(values, ts.{wanted})`",
            )
        return made

    @staticmethod
    def from_numpy(array: np.ndarray[Any, Any], dtype: DType | None = None) -> Tensor:
        """Share a NumPy array; one that is not contiguous, aligned and native is copied first.

        `dtype` is only needed for i4, which is stored in arrays of int8; its values are checked.
        """
        support = native()
        arrays.attach(support)
        if not arrays.is_array(array):
            raise RuntimeArgumentError(
                f"`from_numpy` takes an array of NumPy, got {type(array).__name__}",
                fix="use `Tensor.of(values, dtype)`",
            )
        checked = dtype if dtype is not None and parse_dtype(dtype).name == "i4" else None
        shared = NotImplemented if checked else support.from_array(array)
        if shared is not NotImplemented:
            return shared
        found = checked or arrays.dtype_of(array)
        ready = arrays.plain(array, found)
        flags = _CONTIGUOUS | (0 if ready.flags.writeable else _READ_ONLY)
        return show_memory(ready.__array_interface__["data"][0], found, ready.shape, ready, flags)

    @staticmethod
    def from_dlpack(producer: Any) -> Tensor:
        """Share a tensor of another library (or its capsule) through DLPack, whatever its strides."""
        capsule = dlpack.capsule_from(producer) if hasattr(producer, "__dlpack__") else producer
        shared = native().from_capsule(capsule)
        if shared is not NotImplemented:
            return shared
        taken = dlpack.Import(capsule)
        plain = dlpack.is_contiguous(taken.shape, taken.strides, taken.dtype.bytes)
        flags = (_CONTIGUOUS if plain else 0) | (_READ_ONLY if taken.read_only else 0)
        record = _record(taken.data, taken.dtype, taken.shape, taken.strides, taken.address, taken.kind, flags)
        taken.take()
        return _adopt(record)

    @staticmethod
    def from_buffer(buffer: Any) -> Tensor:
        """Share the memory of an object with the buffer protocol (`bytes`, `array.array`, `memoryview`)."""
        try:
            view = memoryview(buffer)
        except TypeError:
            raise RuntimeArgumentError(
                f"`from_buffer` takes an object with a buffer, got {type(buffer).__name__}",
                fix="use `Tensor.of(values, dtype)`",
            ) from None
        name = _BY_FORMAT.get(view.format.lstrip("@=<"))
        if name is None or not view.c_contiguous:
            why = "is not contiguous" if name else f"has items of format `{view.format}`"
            raise RuntimeArgumentError(f"a buffer that {why} is not a tensor")
        shape = tuple(view.shape or ())
        flags = _CONTIGUOUS | (_READ_ONLY if view.readonly else 0)
        return show_memory(buffer_address(view), BY_NAME[name], shape, view, flags)

    @staticmethod
    def empty(shape: Sequence[int], dtype: DType) -> Tensor:
        """A tensor with memory of its own and undefined contents; raises OutOfMemoryError (T0707)."""
        check_sizes(shape)
        dtype = parse_dtype(dtype)
        # An empty tensor has strides all the same, and they must be numbers too.
        total = dtype.bytes * math.prod(dim or 1 for dim in shape)
        # A size beyond 64 bits would be cut off on its way into native code.
        fits = all(dim < MOST_BYTES for dim in shape)
        record = native().tensor_new(CODES[dtype], len(shape), _words(shape)) if fits else None
        if not record:
            raise OutOfMemoryError(f"no memory for {total} bytes: {list(shape)} {dtype}")
        return _adopt(record)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements along each axis."""
        return native().shape(self._handle)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return native().strides(self._handle)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return ALL[native().describe(self._handle)[1]]

    @property
    def ndim(self) -> int:
        """How many axes."""
        return native().describe(self._handle)[3]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return native().describe(self._handle)[2]

    @property
    def address(self) -> int:
        """Where the first element is; raises DonatedError (T0713) where that was donated to a call."""
        found = native().describe(self._handle)
        if found[4] & CONSUMED:
            self._check()
        return found[0]

    @property
    def is_contiguous(self) -> bool:
        """Whether elements follow one another in C order."""
        return bool(native().describe(self._handle)[4] & _CONTIGUOUS)

    @property
    def is_read_only(self) -> bool:
        """Whether the memory belongs to someone who does not want it changed."""
        return bool(native().describe(self._handle)[4] & _READ_ONLY)

    def contiguous(self) -> Tensor:
        """This tensor if it is contiguous, else a copy that is."""
        return self if self.is_contiguous else self.copy()

    def copy(self) -> Tensor:
        """A contiguous copy with memory of its own."""
        made, rank = Tensor.empty(self.shape, self.dtype), self.ndim
        native().copy_strided(
            made.address, self.address, rank, _words(self.shape), _words(self.strides), self.dtype.bytes
        )
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy array that shares this tensor's memory."""
        import numpy  # noqa: PLC0415 (executables run without NumPy)

        dtype = self.dtype
        if READERS:
            notify_readers(self)
        if dtype.name not in arrays.NARROW:
            return numpy.asarray(self)
        return numpy.asarray(_Raw(self, self._struct())).view(arrays.numpy_dtype(dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a tensor of {self.dtype} becomes an array of {dtype} only by a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __array_struct__(self) -> object:
        if self.dtype.name in arrays.NARROW:
            # The protocol has no name for these; NumPy then asks `__array__`, which has.
            raise AttributeError("__array_struct__")
        if READERS:
            notify_readers(self)
        return self._struct()

    def _struct(self) -> object:
        self._check()
        return native().array_struct(self._handle)

    def _check(self) -> None:
        """Raises DonatedError (T0713) where the elements were donated to a call."""
        if native().describe(self._handle)[4] & CONSUMED:
            from tessera.runtime.donation import donated_error  # noqa: PLC0415 - few tensors are donated

            raise donated_error(self.shape, self.dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        dtype = self.dtype
        if dtype.name in arrays.NARROW:
            raise AttributeError("__array_interface__")
        if READERS:
            notify_readers(self)
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides,
            "typestr": arrays.type_string(dtype),
            "data": (self.address, self.is_read_only),
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU, 0

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        if stream is not None:
            raise BufferError("tensors in host memory have no stream")
        if dl_device is not None and tuple(dl_device) != (dlpack.CPU, 0):
            raise BufferError(f"the tensor is in host memory, not on device {dl_device}")
        if READERS:
            notify_readers(self)
        source = self.copy() if copy else self
        versioned = max_version is not None and max_version[0] >= 1
        if source.is_read_only and not versioned:
            raise BufferError("a read-only tensor needs a consumer of DLPack 1.0 or newer")
        source._check()
        return native().dlpack_export(source._handle, int(versioned))

    def tobytes(self) -> bytes:
        """The elements in C order."""
        if READERS:
            notify_readers(self)
        source = self.contiguous()
        return ctypes.string_at(source.address, source.nbytes)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for rank 0."""
        values: list[Any] = list(decode(self.dtype, self.tobytes()))
        if self.ndim == 0:
            return values[0]
        shape = self.shape
        for axis in range(self.ndim - 1, 0, -1):
            # Where a dim of size 0 leaves nothing to group, the dims before it say how many empty lists there are.
            dim, count = shape[axis], math.prod(shape[:axis])
            values = [values[index * dim : (index + 1) * dim] for index in range(count)]
        return values

    def item(self) -> Scalar:
        """The only element, as a Python number."""
        if self.size != 1:
            raise OperatorError(
                f"only a tensor of one element has an item, this one has shape {list(self.shape)}",
                fix="reduce it first, a condition as in `(x > 0).any()`, or take all elements with `x.tolist()`",
            )
        return decode(self.dtype, self.tobytes())[0]

    def __reduce__(self) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
        return _rebuild, (self.dtype.name, self.shape, self.tobytes())

    def __repr__(self) -> str:
        return render(self.shape, self.strides, self.dtype, self.address)


class _Raw:
    """A tensor of narrow floats as NumPy sees it: plain bits."""

    __slots__ = ("__array_struct__", "_tensor")

    def __init__(self, tensor: Tensor, struct: object) -> None:
        self._tensor = tensor
        self.__array_struct__ = struct


_LARGEST = FORMATS_OF["f32"].largest


def number_maker(dtype: DType, *, is_given: bool = False) -> Callable[[float], Any]:
    """What makes Python floats scalars of a dtype, rounded once, as arguments of programs on the CPU.

    The last one is kept, as most numbers stay as they are; but not where it `is_given` to the call, and consumed.
    """
    kept: tuple[Any, Any] = (None, None)
    numpy: Any = None if is_given else sys.modules.get("numpy")

    def make(value: float) -> Any:
        nonlocal kept
        last = kept
        if last[0] is value and not is_given:
            return last[1]
        # NumPy's scalars are made in a tenth of the time; it warns where a number is beyond all others.
        if numpy is not None and (dtype is f64 or (dtype is f32 and -_LARGEST <= value <= _LARGEST)):
            made = numpy.array(value, numpy.float64 if dtype is f64 else numpy.float32)
        else:
            made = Tensor.of(value, dtype)
        kept = value, made
        return made

    return make


def _on_host(shared: Any) -> Tensor:
    if not isinstance(shared, Tensor):
        raise RuntimeArgumentError(
            f"the tensor is on {shared.device!r}, not in host memory",
            fix="copy it first: `x.cpu()`, or share it there with `tessera.cuda.array(x)`",
        )
    return shared


def check_sizes(shape: Sequence[int]) -> None:
    """Raises RuntimeArgumentError (T0701) for a size below 0, and for what is no shape."""
    try:
        has_negative = any(dim < 0 for dim in shape)
    except TesseraError:
        raise
    except TypeError:
        raise RuntimeArgumentError(f"a shape is a tuple of sizes, got {shape!r}", fix="write `(2, 3)`") from None
    if has_negative:
        raise RuntimeArgumentError(f"a size is negative in {list(shape)}", fix="sizes are 0 or more")


def _words(numbers: Sequence[SupportsIndex]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(numbers)))(*numbers)


def _record(
    data: int,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    owner: int,
    kind: int,
    flags: int,
) -> int:
    check_sizes(shape)
    span = dtype.bytes * math.prod(dim or 1 for dim in shape)
    if span >= MOST_BYTES or any(abs(stride) >= MOST_BYTES for stride in strides or ()):
        raise RuntimeArgumentError(f"sizes {list(shape)} and strides {list(strides or ())} of {dtype} exceed 64 bits")
    steps = None if strides is None else _words(strides)
    return native().tensor_make(data, CODES[dtype], len(shape), _words(shape), steps, owner, kind, flags)


def show_memory(data: int, dtype: DType, shape: tuple[int, ...], owner: object, flags: int) -> Tensor:
    """A tensor that shows contiguous memory of a Python object and keeps that object alive."""
    record = _record(data, dtype, shape, None, id(owner), _OWNER_OBJECT, flags)
    if record:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
    return _adopt(record)


def _adopt(record: int) -> Tensor:
    """The tensor that owns a native record (null raises MemoryError)."""
    tensor = object.__new__(Tensor)
    tensor._handle = native().tensor_handle(record)  # pyright: ignore[reportPrivateUsage]
    return tensor


def _rebuild(dtype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    made = Tensor.empty(shape, BY_NAME[dtype])
    ctypes.memmove(made.address, data, len(data))
    return made


def _from_values(values: Any, dtype: DType | None) -> Tensor:
    if not isinstance(cast("object", values), (bool, int, float, list, tuple)):
        raise RuntimeArgumentError(f"a {type(values).__name__} is not a tensor", fix=foreign.tensor_advice(values))
    if dtype is None:
        raise RuntimeArgumentError(f"a {type(values).__name__} has no dtype of its own", fix="give `dtype`")
    shape: list[int] = []
    level: list[Any] = [values]
    while level and isinstance(level[0], (list, tuple)):
        rows = [cast("Sequence[Any] | None", row if isinstance(row, (list, tuple)) else None) for row in level]
        widths = {-1 if row is None else len(row) for row in rows}
        if len(widths) != 1:
            raise RuntimeArgumentError(
                f"nested lists differ in length at depth {len(shape)}", fix="make all lists of one depth equally long"
            )
        shape.append(widths.pop())
        level = [item for row in rows if row is not None for item in row]
    for item in level:
        if not isinstance(item, (bool, int, float)):
            fix = "make one of them, as in `numpy.array(values)`" if arrays.is_array(item) else ""
            name = f"`{type(item).__name__}` of NumPy" if fix else type(item).__name__
            raise RuntimeArgumentError(f"a {name} is not a number", fix=fix or "elements are numbers or bools")
    return _rebuild(dtype.name, tuple(shape), encode(dtype, level))


def _introduce(support: Support) -> None:
    """Tell native code what a Tensor object looks like, from one made for the purpose."""
    probe, marker = object.__new__(Tensor), object()
    probe._handle = marker  # pyright: ignore[reportPrivateUsage]
    support.environment.handle_offset = slot_offset(probe, marker)
    support.environment.tensor_type = id(Tensor)
