"""Fourier transforms by cuFFT, where that library is here: its plans are made once for each size, and kept.

Making a plan takes longer than most transforms run, so a call with a length, a number of rows and a kind that were seen
before makes none. Plans are kept in the order of their last use, and the oldest is destroyed when there are too many.
Complex tensors are interleaved, as cuFFT has them: real and imaginary parts are a last axis of 2. Nothing that is
compiled calls this; `ts.ops.fft` is compiled, and needs no library. (cuFFT Library User's Guide, API reference.)
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from typing import Any

from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import driver
from tessera.runtime.devices.cuda.streams import wait_for
from tessera.runtime.devices.cuda.tensor import CudaTensor
from tessera.types.dtype import DType, f32, f64
from tessera.types.frozen import frozen

LIBRARIES = ("libcufft.so.12", "libcufft.so.11", "libcufft.so")
MOST_PLANS = 64
"""Plans that are kept: each has workspace of its own on the device."""
FORWARD, INVERSE = -1, 1
_KINDS = {
    ("real", f32): (0x2A, "cufftExecR2C"),
    ("half", f32): (0x2C, "cufftExecC2R"),
    ("complex", f32): (0x29, "cufftExecC2C"),
    ("real", f64): (0x6A, "cufftExecD2Z"),
    ("half", f64): (0x6C, "cufftExecZ2D"),
    ("complex", f64): (0x69, "cufftExecZ2Z"),
}
"""By what is transformed: the number of the type, and the function that executes its plans."""
_ERRORS = {
    1: "the plan is invalid",
    2: "memory of the device is short",
    5: "an internal error",
    6: "the transform failed on the device",
    7: "the library cannot be set up",
    8: "the size is not one that it takes",
}


@frozen
class Shape:
    """What a plan is for: rows of `n` elements, of which `batch` lie one behind the other."""

    kind: str
    dtype: DType
    n: int
    batch: int


class Cufft:
    """The library, with plans by what they are for; `created` and `reused` count how they were had."""

    def __init__(self, library: Any, most: int = MOST_PLANS) -> None:
        self._library, self._most = library, most
        self._plans: OrderedDict[Shape, int] = OrderedDict()
        # A plan has one stream at a time, which is set before each use.
        self._lock = threading.Lock()
        self.created = self.reused = 0

    def execute(self, shape: Shape, source: int, target: int, stream: int, direction: int = FORWARD) -> None:
        """Transform what is at an address to another, in a stream; raises DeviceError (T0720)."""
        name = _KINDS[shape.kind, shape.dtype][1]
        words: list[Any] = [ctypes.c_void_p(source), ctypes.c_void_p(target)]
        if shape.kind == "complex":
            words.append(ctypes.c_int(direction))
        with self._lock:
            plan = self._plan(shape)
            self._call("cufftSetStream", ctypes.c_int(plan), ctypes.c_void_p(stream))
            self._call(name, ctypes.c_int(plan), *words)

    def _plan(self, shape: Shape) -> int:
        found = self._plans.get(shape)
        if found is not None:
            self._plans.move_to_end(shape)
            self.reused += 1
            return found
        while len(self._plans) >= self._most:
            self._call("cufftDestroy", ctypes.c_int(self._plans.popitem(last=False)[1]))
        made, size = ctypes.c_int(), (ctypes.c_int * 1)(shape.n)
        # Without layouts rows are contiguous, and one behind the other.
        layout = [None, ctypes.c_int(1), ctypes.c_int(0)]
        kind, batch = ctypes.c_int(_KINDS[shape.kind, shape.dtype][0]), ctypes.c_int(shape.batch)
        self._call("cufftPlanMany", ctypes.byref(made), ctypes.c_int(1), size, *layout, *layout, kind, batch)
        self._plans[shape] = made.value
        self.created += 1
        return made.value

    def close(self) -> None:
        """Destroy all plans."""
        with self._lock:
            while self._plans:
                self._call("cufftDestroy", ctypes.c_int(self._plans.popitem()[1]))

    def _call(self, name: str, *words: Any) -> None:
        code = getattr(self._library, name)(*words)
        if code:
            raise DeviceError(
                f"`{name}` failed: {_ERRORS.get(code, 'see the guide of cuFFT')} ({code})",
                fix="`ts.ops.fft` computes the same without the library",
            )


def _paths() -> Iterator[str]:
    yield from LIBRARIES
    for package in ("nvidia.cufft", "nvidia.cu13"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        for folder in () if spec is None else spec.submodule_search_locations or ():
            yield from (os.path.join(folder, "lib", name) for name in LIBRARIES)


@cache
def cufft() -> Cufft:
    """The library of this machine; raises DeviceError (T0720) where there is none."""
    for path in _paths():
        try:
            return Cufft(ctypes.CDLL(path))
        except OSError:
            continue
    raise DeviceError(
        f"there is no cuFFT: none of {', '.join(LIBRARIES)} can be loaded",
        fix="install it with the CUDA toolkit, or use `ts.ops.fft`, which needs no library",
    )


def rfft(x: CudaTensor) -> CudaTensor:
    """The transform of real rows [..., n], as [..., n / 2 + 1, 2]."""
    *lead, n = _check("rfft", x, is_complex=False)
    return _run(x, "real", n, (*lead, n // 2 + 1, 2), FORWARD)


def irfft(x: CudaTensor, n: int) -> CudaTensor:
    """`n` times the real rows [..., n] whose transform is [..., n / 2 + 1, 2]: cuFFT scales nothing."""
    *lead, half = _check("irfft", x, is_complex=True)
    if half != n // 2 + 1:
        raise RuntimeArgumentError(f"`irfft` of n = {n} takes {n // 2 + 1} elements of a row, got {half}")
    return _run(x, "half", n, (*lead, n), INVERSE)


def fft(x: CudaTensor, *, inverse: bool = False) -> CudaTensor:
    """The transform of complex rows [..., n, 2]; the inverse one is not scaled by one over n."""
    *lead, n = _check("fft", x, is_complex=True)
    return _run(x, "complex", n, (*lead, n, 2), INVERSE if inverse else FORWARD)


def _check(op: str, x: CudaTensor, *, is_complex: bool) -> tuple[int, ...]:
    """The sizes of a tensor, of a complex one without its parts; raises where it is none that cuFFT takes."""
    form = "[..., n, 2]" if is_complex else "[..., n]"
    is_right = len(x.shape) > is_complex and (not is_complex or x.shape[-1] == 2)
    if x.dtype not in (f32, f64) or not is_right or 0 in x.shape:
        raise RuntimeArgumentError(
            f"`{op}` takes {form} of f32 or f64 with at least one element, got {list(x.shape)} {x.dtype}",
            fix="cast it, or stack the parts along a last axis of 2",
        )
    return x.shape[:-1] if is_complex else x.shape


def _run(x: CudaTensor, kind: str, n: int, shape: tuple[int, ...], direction: int) -> CudaTensor:
    driver().enter()
    made = CudaTensor.empty(shape, x.dtype)
    if x.stream != made.stream:
        wait_for(made.stream, x.stream)
    rows = x.nbytes // x.dtype.bytes // (x.shape[-1] if kind == "real" else 2 * x.shape[-2])
    cufft().execute(Shape(kind, x.dtype, n, rows), x.address, made.address, made.stream, direction)
    return made
