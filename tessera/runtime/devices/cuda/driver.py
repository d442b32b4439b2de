"""The CUDA driver by its C interface: loaded when first asked for, every call checked, nothing built or installed.

`driver()` gives the functions; modules, launches, memory and events are thin on top of it. Where there is no driver or
no device that is a DeviceError (T0720) that says so.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any

from tessera.diagnostics.codes import CodegenError, DeviceError, OutOfMemoryError
from tessera.runtime.cache import Store, default_store, key_of
from tessera.runtime.devices.cuda.metrics import hanging
from tessera.runtime.timeline import WATCH, HostWait
from tessera.types.settings import cuda_device, usable_cpus

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2
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
    kind = OutOfMemoryError if code == OUT_OF_MEMORY else DeviceError
    return kind(f"`{what}` failed: {described}", fix=_ADVICE.get(code))


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


# PTX to machine code: by `ptxas` where there is one, else by the driver; kept in the store beside everything else.

PROBLEM = re.compile(r"\(C75\d\d\)|warning\s*:.*C75\d\d|C75\d\d")
"""What the assembler calls an advisory, and what costs half of the speed: wgmma serialized, setmaxnreg ignored."""

_ELF = b"\x7fELF"


@cache
def find_tool(name: str) -> str | None:
    """Where a program of NVIDIA's is: on PATH, or in a wheel of theirs (`nvidia-cuda-nvcc`, `nvidia-cuda-nvdisasm`)."""
    if found := shutil.which(name):
        return found
    wheels = find_spec("nvidia")
    folders = wheels.submodule_search_locations or () if wheels else ()
    files = [file for folder in folders for file in Path(folder).glob(f"*/bin/{name}") if os.access(file, os.X_OK)]
    return str(max(files)) if files else None


def assembler() -> str | None:
    """Where `ptxas` is, or None."""
    return os.environ.get("TESSERA_PTXAS") or find_tool("ptxas")


@cache
def _assembler_version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


def machine_code(ptx: bytes, architecture: str, store: Store | None = None) -> bytes:
    """The cubin of one PTX text: see `machine_codes`."""
    return machine_codes([ptx], architecture, store)[0]


def machine_codes(texts: Sequence[bytes], architecture: str, store: Store | None = None) -> list[bytes]:
    """The cubins of PTX texts, from the store where they were made before; a cubin itself is left as it is.

    Assemblers run side by side, one for each distinct text; the driver's takes one after the other. Raises CodegenError
    (T0603) where the assembler refuses a text, or says that it undid what the text asks for.
    """
    wanted = {ptx for ptx in texts if not ptx.startswith(_ELF)}
    if not wanted:
        return list(texts)
    kept, path = store or default_store(), assembler()
    maker = _assembler_version(path) if path else f"driver {driver().version}"
    keys = {ptx: key_of("cubin", architecture, maker, ptx) for ptx in wanted}
    made = {ptx: found for ptx, key in keys.items() if (found := kept.get(key)) is not None}
    # The longest text first: the last assembler to finish then finishes soonest.
    missing = sorted((ptx for ptx in keys if ptx not in made), key=len, reverse=True)
    if path and len(missing) > 1:
        with ThreadPoolExecutor(min(len(missing), usable_cpus())) as pool:
            cubins = list(pool.map(assemble, missing, repeat(architecture), repeat(path)))
    else:
        cubins = [assemble(ptx, architecture, path) if path else _assemble_by_driver(ptx) for ptx in missing]
    for ptx, cubin in zip(missing, cubins, strict=True):
        kept.put(keys[ptx], cubin)
        made[ptx] = cubin
    return [made.get(ptx, ptx) for ptx in texts]


def assemble(ptx: bytes, architecture: str, path: str | None = None) -> bytes:
    """The cubin that `ptxas` makes."""
    return assemble_with_words(ptx, architecture, path)[0]


def assemble_with_words(ptx: bytes, architecture: str, path: str | None = None) -> tuple[bytes, str]:
    """The cubin, and what the assembler says of registers, spills and shared memory."""
    program = path or assembler()
    if program is None:
        raise CodegenError(
            "there is no `ptxas` here",
            span=None,
            fix="`pip install nvidia-cuda-nvcc`, put it on PATH, or name it in TESSERA_PTXAS",
        )
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "kernel.ptx"), os.path.join(folder, "kernel.cubin")
        with open(source, "wb") as file:
            file.write(ptx)
        done = subprocess.run(
            [program, "-v", f"-arch={architecture}", source, "-o", target], capture_output=True, text=True, check=False
        )
        words = done.stderr + done.stdout
        check_words(words, done.returncode)
        with open(target, "rb") as file:
            return file.read(), words


def check_words(words: str, code: int) -> None:
    """Raises CodegenError (T0603) for what the assembler refuses, and for what it takes back."""
    if code:
        raise CodegenError(
            f"ptxas refused a kernel: {words.strip().splitlines()[0] if words.strip() else code}", span=None
        )
    for line in words.splitlines():
        if PROBLEM.search(line):
            raise CodegenError(f"ptxas undid what a kernel asks for: {line.strip()}", span=None)


_CUBIN, _PTX = 0, 1
_INFO, _INFO_SIZE, _ERROR, _ERROR_SIZE = 3, 4, 5, 6
_LOG = 16 << 10


def _assemble_by_driver(ptx: bytes) -> bytes:
    cuda = driver()
    info, error = ctypes.create_string_buffer(_LOG), ctypes.create_string_buffer(_LOG)
    options = (ctypes.c_int * 4)(_INFO, _INFO_SIZE, _ERROR, _ERROR_SIZE)
    values = (ctypes.c_void_p * 4)(ctypes.addressof(info), _LOG, ctypes.addressof(error), _LOG)
    state, cubin, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    cuda.call("cuLinkCreate_v2", 4, options, values, ctypes.byref(state))
    try:
        text = ctypes.c_char_p(ptx + b"\0")
        code = cuda.library.cuLinkAddData_v2(state, _PTX, text, ctypes.c_size_t(len(ptx) + 1), b"kernel", 0, None, None)
        if not code:
            code = cuda.library.cuLinkComplete(state, ctypes.byref(cubin), ctypes.byref(size))
        words = f"{error.value.decode(errors='replace')}{info.value.decode(errors='replace')}"
        check_words(words, code)
        return ctypes.string_at(cubin.value or 0, size.value)
    finally:
        cuda.library.cuLinkDestroy(state)
