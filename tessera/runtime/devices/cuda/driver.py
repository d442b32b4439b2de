"""The CUDA driver by its C interface: loaded when first asked for, every call checked, nothing built or installed.

`driver()` gives the functions; modules, launches, memory and events are thin on top of it. Where there is no driver or
no device that is a DeviceError (T0720) that says so.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

from tessera.diagnostics.codes import CaptureError, DeviceError, OutOfMemoryError
from tessera.runtime.devices.cuda.metrics import hanging
from tessera.runtime.timeline import WATCH, HostWait
from tessera.types.settings import cuda_device

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2
UNCAPTURED = (900, 901)
"""Errors of what waits for a stream that a graph is captured from."""
NO_CONTEXT = 201
"""The error of a thread that has no context yet."""
_ADVICE = {
    OUT_OF_MEMORY: "free tensors that are no longer needed, or use smaller ones",
    700: "a kernel touched memory outside its buffers; run the program with `debug=True` to see where",
    701: "the kernel needs more registers or shared memory than a block may have; choose smaller tiles",
    715: "the kernel was compiled for another GPU; remove the cache folder and compile again",
    716: "a kernel read at an address that is not aligned to its access",
    209: "the code is for another GPU than this one",
    702: "the kernel ran too long for a device that drives a display; use another, or smaller arguments",
    719: "a kernel was stopped in the middle; run the program with `debug=True`, where waits that never end say where",
    222: "the driver is older than the code; update the NVIDIA driver",
    900: "a capture copies and waits for nothing: put values on the device before it, with `ts.cuda.array`",
}
_STOPPED = (702, 715, 718, 719)
"""What the driver says when a kernel stopped itself, or was stopped."""
_HANGING = "whoever opens the barrier does so too seldom: count arrivals, and stages acquired against stages released"
_ATTRIBUTES = {"blocks": 16, "major": 75, "minor": 76, "shared": 97, "l2": 38, "registers": 82}


class Driver:
    """The functions of libcuda, in the primary context of one device."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DeviceError(
                f"there is no CUDA driver here: {error}",
                fix='run on a machine with an NVIDIA GPU, or on the CPU: `jit(backend="cpu")`',
            ) from None
        self.ordinal = ordinal
        self.check(self.library.cuInit(0), "cuInit")
        count = ctypes.c_int()
        self.check(self.library.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
        if ordinal >= count.value:
            raise DeviceError(f"there is no device cuda:{ordinal}; this machine has {count.value}")
        device = ctypes.c_int()
        self.check(self.library.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        self.device = device.value
        context = ctypes.c_void_p()
        self.check(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        self.context = context
        self._threads = threading.local()
        self.enter()

    def enter(self) -> bool:
        """Make the context that of this thread, and say whether it was not; other libraries use the same one."""
        is_new = not getattr(self._threads, "entered", False)
        if is_new:
            self.check(self.library.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")
            self._threads.entered = True
        return is_new

    def address(self, name: str) -> int:
        """Where a function of the driver is, for native code that calls it."""
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and check what it answers."""
        self.enter()
        code = getattr(self.library, name)(*arguments)
        if code:
            self.check(code, name)

    def check(self, code: int, what: str) -> None:
        """Raises DeviceError (T0720) unless the driver succeeded, OutOfMemoryError (T0707) where memory is short."""
        if code:
            raise error_of(code, what, self.library)

    def attribute(self, name: str) -> int:
        """A number of the device: `blocks` (multiprocessors), `shared` bytes of a block, `major`, `minor`, `l2`."""
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), _ATTRIBUTES[name], self.device)
        return value.value

    @property
    def architecture(self) -> str:
        """What code must be made for: `sm_90a`, as instructions of one generation alone want it, from Hopper on."""
        major, minor = self.attribute("major"), self.attribute("minor")
        return f"sm_{major}{minor}" + ("a" if major >= 9 else "")

    @property
    def name(self) -> str:
        text = ctypes.create_string_buffer(128)
        self.call("cuDeviceGetName", text, len(text), self.device)
        return text.value.decode()

    @property
    def version(self) -> int:
        value = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(value))
        return value.value


def error_of(code: int, what: str, library: Any = None) -> Exception:
    """The error for a number of the driver: its name and sentence, where there is a driver to ask."""
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    described = f"error {code}"
    if library is not None and not library.cuGetErrorName(code, ctypes.byref(name)):
        library.cuGetErrorString(code, ctypes.byref(text))
        described = f"{(name.value or b'').decode()} ({code}): {(text.value or b'').decode()}"
    hangs = hanging() if code in _STOPPED else ""
    if hangs:
        return DeviceError(hangs, notes=(f"`{what}` failed: {described}",), fix=_HANGING)
    kind = CaptureError if code in UNCAPTURED else DeviceError
    return (OutOfMemoryError if code == OUT_OF_MEMORY else kind)(f"`{what}` failed: {described}", fix=_ADVICE.get(code))


@cache
def driver() -> Driver:
    """The driver with the device that `TESSERA_CUDA_DEVICE` names, 0 where it does not."""
    return Driver(cuda_device())


def is_available() -> bool:
    """Whether there is a driver with a device."""
    try:
        driver()
    except DeviceError:
        return False
    return True


class Module:
    """Machine code on the device, from a cubin or from PTX."""

    def __init__(self, data: bytes) -> None:
        self.driver = driver()
        self.handle = ctypes.c_void_p()
        # The driver reads PTX up to a null byte.
        self.driver.call("cuModuleLoadData", ctypes.byref(self.handle), ctypes.c_char_p(data + b"\0"))

    def function(self, name: str, shared: int = 0) -> int:
        """The handle of a kernel, allowed `shared` bytes of dynamic shared memory."""
        handle = ctypes.c_void_p()
        self.driver.call("cuModuleGetFunction", ctypes.byref(handle), self.handle, name.encode())
        if shared > 48 << 10:
            self.driver.call("cuFuncSetAttribute", handle, 8, shared)
        return handle.value or 0


def synchronize(stream: int | None = None) -> None:
    """Wait for a stream, or for all of the device."""
    if stream is None:
        driver().call("cuCtxSynchronize")
    else:
        driver().call("cuStreamSynchronize", ctypes.c_void_p(stream))
    if WATCH.note is not None:
        WATCH.note(HostWait(stream))
