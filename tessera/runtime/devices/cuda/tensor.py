"""`CudaTensor`: elements in the memory of a GPU, shared with other libraries without copies."""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.diagnostics.frames import guard_class
from tessera.runtime import arrays, dlpack
from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.memory import LARGE, POOL, FreeList, copy_in, copy_out, copy_within
from tessera.runtime.devices.cuda.streams import CURRENT, Event, current_stream, wait_for
from tessera.runtime.donation import donated_error
from tessera.runtime.operators import Operators
from tessera.runtime.tensor import Tensor
from tessera.runtime.timeline import WATCH, Launch
from tessera.types.device import Device, gpu
from tessera.types.dtype import ALL, BY_NAME, DType, parse_dtype

if TYPE_CHECKING:
    import numpy as np


_DEVICES = (dlpack.CUDA, dlpack.CUDA_MANAGED)
_LEGACY = 1
"""How other libraries call the default stream."""
_NO_WAIT = -1
"""The stream of DLPack for whom nobody has to wait."""
_UNNAMED = arrays.NARROW | {"i4"}
"""Dtypes that `__cuda_array_interface__` has no name for."""
ALIGNED = 16
"""Bytes that kernels take arguments to begin at a multiple of."""
NOWHERE = -1
"""The lane of a tensor that does not begin so: it fits no call as it is."""


class Form:
    """A dtype and a shape, the same object each time: whether two tensors are alike is one comparison."""

    __slots__ = ("bytes", "dtype", "shape")

    def __init__(self, dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self.bytes = dtype.bytes * math.prod(shape)


_FORMS: dict[tuple[str, tuple[int, ...]], Form] = {}


def form_of(dtype: DType, shape: tuple[int, ...]) -> Form:
    """The one form of a dtype and a shape."""
    key = (dtype.name, shape)
    found = _FORMS.get(key)
    return found if found is not None else _FORMS.setdefault(key, Form(dtype, shape))


class Shared:
    """A block of the pool that others look at, too: it goes back when the tensor dies that they hold on to."""

    __slots__ = ("address", "free_list")

    def __init__(self, free_list: FreeList, address: int) -> None:
        self.free_list, self.address = free_list, address

    def __del__(self) -> None:
        self.free_list.free.append(self.address)


class Borrowed:
    """Memory of another library: it is let go once the work is done that had been put into the stream by then.

    That library may use the memory again in a stream of its own, which does not wait for this one. Where it
    `is_ordered`, the library works in this very stream, and what it does with the memory next comes after all that is
    in it. What is borrowed while a graph is captured, or dies meanwhile, belongs to the graph: its replays read it.
    """

    __slots__ = ("_capture", "_is_ordered", "_owner", "_stream")
    waiting: ClassVar[deque[tuple[Event, Any]]] = deque()
    """What is let go next, in the order in which it was borrowed no more."""

    def __init__(self, owner: object, stream: int, *, is_ordered: bool = False) -> None:
        self._owner, self._stream, self._is_ordered = owner, stream, is_ordered
        self._capture = None if CURRENT.capture is None else weakref.ref(CURRENT.capture)
        self.release()

    @classmethod
    def release(cls) -> None:
        """Let go what no work needs any more; an entry is taken before it is looked at, since other threads do, too."""
        while cls.waiting:
            try:
                entry = cls.waiting.popleft()
            except IndexError:
                return
            if not entry[0].is_done:
                cls.waiting.appendleft(entry)
                return

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_ending():
            return
        made_in = None if self._capture is None else self._capture()
        for graph in (CURRENT.capture, made_in):
            if graph is not None:
                graph.keep(self._owner)
        # A stream that is captured runs nothing, and an event in it would be part of the graph. Others go on, and what
        # was put into them before the capture is not the graph's.
        if not self._is_ordered and (made_in is None or not made_in.is_capturing):
            self.waiting.append((Event(timed=False).record(self._stream), self._owner))
            self.release()


class Donated:
    """The owner of a tensor whose memory was donated to a call."""

    __slots__ = ()


@guard_class
class CudaTensor(Operators):
    """A block of elements on a GPU, contiguous, with a shape and a dtype; `stream` is the one that made it.

    They come from compiled functions and from `CudaTensor.of`. Their memory goes back to the pool when they die.
    Operators, methods and functions of them run on the GPU, and wait for nothing.
    """

    __slots__ = ("__weakref__", "_owner", "address", "form", "lane", "stream")

    def __init__(self, address: int, form: Form, stream: int, owner: object) -> None:
        # Whose memory it is: a free list, which it goes back to, or whatever keeps it.
        self.address, self.form, self.stream, self._owner = address, form, stream, owner
        self.lane = NOWHERE if address % ALIGNED else stream

    def __del__(self, free_list: type[FreeList] = FreeList) -> None:
        owner = self._owner
        if owner.__class__ is free_list:
            owner.free.append(self.address)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def __getattr__(self, name: str) -> Any:
        """A tensor that was donated to a call has no address any more; raises DonatedError (T0713)."""
        if name == "address" and self._owner.__class__ is Donated:
            raise donated_error(self.shape, self.dtype)
        return getattr(super(), "__getattr__")(name)  # noqa: B009 - which checkers do not know of

    @property
    def is_own(self) -> bool:
        """Whether its memory is from our pool, and nobody else knows where it is."""
        return self._owner.__class__ is FreeList

    @property
    def is_borrowed(self) -> bool:
        """Whether its memory is that of another library."""
        return self._owner.__class__ is Borrowed

    def give_to(self, other: CudaTensor | None, stream: int | None = None) -> None:
        """Let its memory be that of another tensor, which had none, or go back to the pool; from now on it is consumed.

        The memory goes to the pool of `stream` later, where that is given, or to the one that it came from.
        """
        owner: Any = self._owner
        if other is None:
            if owner.__class__ is FreeList:
                owner.free.append(self.address)
        else:
            if isinstance(other._owner, FreeList):
                other._owner.free.append(other.address)  # a block of no bytes
            other.address = self.address
            free_list = owner if stream is None else POOL.free_list(self.nbytes, stream)
            other.move(free_list, self.stream if stream is None else stream)
        self._consume()

    def _consume(self) -> None:
        self._owner, self.lane = Donated(), NOWHERE
        del self.address

    def give_up(self) -> list[tuple[FreeList, int]]:
        """Its memory, if it is a small block of the pool, and nothing if that went back there; it is consumed."""
        owner: Any = self._owner
        if owner.__class__ is not FreeList or not 0 < owner.size <= LARGE:
            self.give_to(None)
            return []
        found = [(owner, self.address)]
        self._consume()
        return found

    @staticmethod
    def empty(shape: Sequence[int], dtype: DType | str) -> CudaTensor:
        """Memory with nothing in it; raises OutOfMemoryError (T0707)."""
        try:
            form = form_of(parse_dtype(dtype), tuple(shape))
        except TypeError:
            raise RuntimeArgumentError(f"a shape is a tuple of sizes, got {shape!r}", fix="write `(2, 3)`") from None
        stream = current_stream()
        free_list = POOL.free_list(form.bytes, stream)
        return CudaTensor(free_list.take(), form, stream, free_list)

    @staticmethod
    def of(value: Any, dtype: DType | str | None = None) -> CudaTensor:
        """A tensor on the device: itself, one of another library's there (shared), or a copy of one in host memory."""
        if isinstance(value, CudaTensor):
            return value
        if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _DEVICES:
            return _share_producer(value)
        if hasattr(value, "__cuda_array_interface__"):
            return _from_interface(value)
        host = Tensor.of(value, dtype).contiguous()
        made = CudaTensor.empty(host.shape, host.dtype)
        copy_in(made.address, host.address, host.nbytes, made.stream)
        return made

    @staticmethod
    def borrow(owner: object, facts: tuple[int, int, int, int], shape: tuple[int, ...]) -> CudaTensor:
        """Another library's contiguous tensor: address, dtype code, device, and the stream that library works in."""
        address, code, device, theirs = facts
        _check_ordinal(device)
        stream = current_stream()
        is_ordered = theirs == stream or (theirs, stream) == (_LEGACY, 0)
        if not is_ordered and CURRENT.capture is None:
            wait_for(stream, theirs)
        return CudaTensor(address, form_of(ALL[code], shape), stream, Borrowed(owner, stream, is_ordered=is_ordered))

    @property
    def shape(self) -> tuple[int, ...]:
        """How many elements along each axis."""
        return self.form.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.form.dtype

    @property
    def device(self) -> Device:
        """The GPU that it is on."""
        return gpu[driver().ordinal]

    @property
    def nbytes(self) -> int:
        return self.form.bytes

    def write(self, value: Any) -> None:
        """Elements of a tensor in host memory into this one."""
        if not isinstance(self, CudaTensor):  # pyright: ignore[reportUnnecessaryIsInstance] - also called as `cuda.write`
            raise RuntimeArgumentError(
                f"`write` writes into a tensor of a GPU, got {type(self).__name__}",
                fix="make one with `cuda.array(...)`",
            )
        host = Tensor.of(value, self.dtype if isinstance(value, list) else None).contiguous()
        if host.shape != self.shape or host.dtype != self.dtype:
            raise RuntimeArgumentError(
                f"{list(host.shape)} {host.dtype} is not written into {list(self.shape)} {self.dtype}"
            )
        copy_in(self.address, host.address, host.nbytes, self.stream)

    def cpu(self) -> Tensor:
        """A copy in host memory, once the device has come so far."""
        made = Tensor.empty(self.shape, self.dtype)
        copy_out(made.address, self.address, self.nbytes, self.stream)
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy as a NumPy array."""
        return self.cpu().numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a tensor of a GPU becomes an array only by a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def item(self) -> Any:
        return self.cpu().item()

    def copy(self) -> CudaTensor:
        """A copy with memory of its own, on the device."""
        made = CudaTensor.empty(self.shape, self.dtype)
        if made.stream != self.stream:
            wait_for(made.stream, self.stream)
        copy_within(made.address, self.address, self.nbytes, made.stream)
        if made.stream != self.stream:
            wait_for(self.stream, made.stream)  # its memory may be used again there as soon as it is not held
        return made

    def move(self, free_list: FreeList, stream: int) -> None:
        """Let it, and its memory, belong to another stream from now on; what is consumed has no memory."""
        if self._owner.__class__ is Donated:
            return
        if isinstance(self._owner, Shared):
            self._owner.free_list = free_list
        elif not self.is_borrowed:
            self._owner = free_list
        self.stream = stream
        self.lane = NOWHERE if self.address % ALIGNED else stream

    def share(self) -> None:
        """Others know its address from now on: its memory stays where it is as long as it lives itself."""
        if isinstance(self._owner, FreeList):
            self._owner = Shared(self._owner, self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = self.dtype
        if dtype.name in _UNNAMED:
            raise AttributeError(f"the interface has no name for {dtype}; DLPack has")
        self.share()
        return {
            "version": 3,
            "shape": self.shape,
            "strides": None,
            "typestr": arrays.type_string(dtype),
            "data": (self.address, False),
            "stream": self.stream or _LEGACY,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, driver().ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.__dlpack_device__()}, not on device {dl_device}")
        source = self.copy() if copy else self
        source.share()
        consumer = 0 if stream in (None, _LEGACY) else stream
        if stream != -1 and consumer != source.stream:
            wait_for(consumer, source.stream)
        return dlpack.export(source, source.address, source.dtype, source.shape, self.__dlpack_device__())

    def __repr__(self) -> str:
        # Lines after the first stand under the elements.
        return repr(self.cpu()).replace("Tensor(", "CudaTensor(", 1).replace("\n", "\n    ")

    def __reduce__(self) -> tuple[Callable[..., CudaTensor], tuple[Any, ...]]:
        return CudaTensor.of, (self.cpu(),)


def _share_producer(producer: Any) -> CudaTensor:
    """Another library's tensor; its capsule stays with ours, so that its memory does too."""
    stream = current_stream()
    # What is being captured waits for nothing outside: `capture` has waited for all before.
    consumer = stream or _LEGACY if CURRENT.capture is None else _NO_WAIT
    capsule = dlpack.request_capsule(producer, stream=consumer)
    taken = dlpack.Import(capsule, _DEVICES)
    _check_ordinal(taken.device[1])
    if not dlpack.is_contiguous(taken.shape, taken.strides, taken.dtype.bytes):
        return _share_producer(_contiguous(producer, taken.shape, taken.strides))
    return CudaTensor(taken.data, form_of(taken.dtype, taken.shape), stream, Borrowed(capsule, stream))


def _check_ordinal(number: int) -> None:
    own = driver().ordinal
    if number != own:
        raise DeviceError(
            f"the tensor is on cuda:{number}, and this process computes on cuda:{own}",
            fix=f'copy it there first, as in `x.to("cuda:{own}")`',
        )


def _contiguous(producer: Any, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """A contiguous copy by the library that the tensor belongs to, in its own stream; raises where it has no word."""
    copy = getattr(producer, "contiguous", None)
    if not callable(copy):
        raise RuntimeArgumentError(
            f"a tensor of a GPU with shape {list(shape)} and strides {list(strides)} is not contiguous",
            fix="make a contiguous copy of it with the library that it belongs to",
        )
    return copy()


def _from_interface(producer: Any) -> CudaTensor:
    """The older protocol: numbers in a dict."""
    given = producer.__cuda_array_interface__
    kinds = {arrays.type_string(dtype)[1:]: dtype for dtype in BY_NAME.values() if dtype.name not in _UNNAMED}
    dtype = kinds.get(given["typestr"].lstrip("<|"))
    shape = tuple(given["shape"])
    if dtype is None:
        raise RuntimeArgumentError(f"elements of type `{given['typestr']}` have no Tessera dtype")
    strides = given.get("strides")
    if strides is not None and not dlpack.is_contiguous(shape, tuple(strides), dtype.bytes):
        return CudaTensor.of(_contiguous(producer, shape, strides))
    other, stream = given.get("stream"), current_stream()
    # Streams that are made here do not wait for the legacy one, which is stream 0 by another number.
    is_ordered = other == stream or (other, stream) == (_LEGACY, 0)
    if other is not None and not is_ordered and CURRENT.capture is None:
        wait_for(stream, other)
    return CudaTensor(given["data"][0] or 0, form_of(dtype, shape), stream, Borrowed(producer, stream))


# Single numbers beside tensors of a GPU: each is copied there once, and found there the next time.

KEPT = 256
"""Numbers that are kept; the oldest are let go."""
_NUMBERS: dict[tuple[int, str, bytes], CudaTensor] = {}


def number(value: Any) -> Any:
    """A tensor of no dims in host memory as one of the device, of the current stream; all else as it is."""
    if isinstance(value, CudaTensor) or value.shape:
        return value
    host = Tensor.of(value)
    key = current_stream(), host.dtype.name, host.tobytes()
    found = _NUMBERS.get(key)
    if found is None and CURRENT.capture is not None:
        return value  # a copy that is captured has not been made
    if found is None:
        found = _NUMBERS[key] = CudaTensor.of(host)
        if len(_NUMBERS) > KEPT:
            _NUMBERS.pop(next(iter(_NUMBERS)), None)
    return found


_FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async", 8: "cuMemsetD32Async"}


def _fill(value: float, dtype: DType) -> CudaTensor:
    """A scalar whose value goes to the device with the command itself: nobody waits, and a capture contains it."""
    made, data, item = CudaTensor.empty((), dtype), arrays.encode(dtype, [value]), min(4, dtype.bytes)
    if WATCH.note is not None:
        WATCH.note(Launch("a number", made.stream, (), ((made.address, made.address + made.nbytes),)))
    for start in range(0, dtype.bytes, item):
        bits = ctypes.c_uint32(int.from_bytes(data[start : start + item], "little"))
        where = ctypes.c_uint64(made.address + start)
        driver().call(_FILLS[item], where, bits, ctypes.c_size_t(1), ctypes.c_void_p(made.stream))
    return made


def number_maker(dtype: DType, *, is_given: bool = False) -> Callable[[float], Any]:
    """What makes Python floats scalars of the device, in the current stream; the last one of each stream is kept.

    A new value is in another block than the last one, which is free then: two blocks alternate, so that a call with
    numbers that change has one of two sets of addresses, and is replayed.
    """
    kept: dict[int, tuple[float, CudaTensor]] = {}

    def make(value: float) -> CudaTensor:
        stream = current_stream()
        last = kept.get(stream)
        if last is not None and last[0] is value and not is_given:
            return last[1]
        made = _fill(value, dtype)
        # What is being captured runs later, and not for others.
        if CURRENT.capture is None and not is_given:
            kept[stream] = value, made
        return made

    return make


class WithNumbers:
    """A program that takes numbers from host memory; see `CudaProgram`."""

    def __init__(self, program: Any) -> None:
        self.program = program

    @property
    def calls(self) -> int:
        """How often it ran."""
        return self.program.calls

    def call(self, *tensors: Any) -> Any:
        """NotImplemented where the program gives it."""
        return self.program.call(*[number(tensor) for tensor in tensors])

    def run(self, arguments: Sequence[Any]) -> Any:
        """For all that can be made to fit."""
        return self.program.run([number(argument) for argument in arguments])
