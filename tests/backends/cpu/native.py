"""Run a tile kernel twice, on NumPy and as machine code, on memory that shows every byte written outside it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.cpu.emit_contraction import NUMBERED
from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import verify
from tessera.ir.target.architectures import host_features, machine_of
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.tile.interpret import run_kernel
from tessera.runtime.loader import LinkedCode, link
from tessera.types.dtype import DType
from tessera.types.machine import Machine

_MARGIN = 256
_NEVER_STOPPED = "define i1 @tessera_is_stopped() {\n  ret i1 false\n}\n"
"""What kernels ask the runtime."""
_CANARY = 0xFF
"""Not a number in every float, -1 in every integer: what is read outside shows in what is written."""


@cache
def machines() -> tuple[Machine, ...]:
    """The widths that this CPU runs: AVX-512 where present, with and without tiles, and always one without it."""
    features = host_features()
    plain = frozenset(name for name in features if not name.startswith("amx"))
    narrow = frozenset(name for name in plain if not name.startswith("avx512"))
    return tuple(dict.fromkeys((machine_of(features), machine_of(plain), machine_of(narrow))))


class Fenced:
    """A copy of an array that is aligned to its elements and no more, with canaries before and after."""

    def __init__(self, array: Array) -> None:
        self.like = array
        size, item = array.nbytes, array.dtype.itemsize
        self.memory = np.full(size + 2 * _MARGIN + 64, _CANARY, np.uint8)
        # As odd as an element may lie: no address is more aligned than it must be.
        self.start = _MARGIN + (-self.memory.ctypes.data - _MARGIN) % 64 + item
        self.memory[self.start : self.start + size] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + self.start

    def array(self) -> Array:
        """What the memory holds; fails where anything around it was written."""
        end = self.start + self.like.nbytes
        assert (self.memory[: self.start] == _CANARY).all(), "memory before the buffer was written"
        assert (self.memory[end:] == _CANARY).all(), "memory behind the buffer was written"
        return self.memory[self.start : end].view(self.like.dtype).reshape(self.like.shape)


class Walled:
    """A copy of an array that begins or ends at memory which may not be touched."""

    def __init__(self, array: Array, at_end: bool) -> None:
        page = mmap.PAGESIZE
        room = -(-max(array.nbytes, 1) // page) * page
        self.memory = mmap.mmap(-1, room + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for wall in (base, base + page + room):
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(page), 0) == 0
        self.address = base + page + (room - array.nbytes if at_end else 0)
        ctypes.memmove(self.address, array.ctypes.data, array.nbytes)


@dataclass
class Native:
    """A kernel as machine code."""

    kernel: SpecOp
    target: SpecOp
    code: LinkedCode

    def call(self, name: str, *arguments: int) -> int:
        types = [ctypes.c_int64] * len(arguments)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, *types)(self.code.address(name))(*arguments))

    def tasks(self, context: Array, threads: int) -> int:
        """How many tasks there are; whether the pool may run them in parts is nothing to us."""
        return self.call(f"{self.kernel.value('symbol')}_tasks", context.ctypes.data, threads) & ~NUMBERED

    def run(self, arrays: Sequence[Array], sizes: Mapping[str, int], threads: int = 1) -> list[Array]:
        """What the buffers hold after all tasks, run one after the other."""
        name = self.kernel.value("symbol")
        fenced = [Fenced(array) for array in arrays]
        slots = [part.address for part in fenced] + [sizes[symbol] for symbol in self.kernel.value("symbols")]
        context = np.array([*slots, 0], np.int64)
        tasks = self.tasks(context, threads)
        wanted = self.call(f"{name}_scratch", context.ctypes.data)
        room = np.full(wanted + 2 * _MARGIN, 0xFF, np.uint8)
        start = _MARGIN + (-room.ctypes.data - _MARGIN) % 64
        room[start + wanted :] = _CANARY
        for task in range(tasks):
            self.call(name, context.ctypes.data, task, tasks, room.ctypes.data + start)
        assert (room[start + wanted :] == _CANARY).all(), "memory behind the scratch was written"
        return [part.array() for part in fenced]

    def run_walled(self, arrays: Sequence[Array], sizes: Mapping[str, int], at_end: bool) -> Array:
        """What the last buffer holds after all tasks, where an access outside of any buffer ends the process."""
        name = self.kernel.value("symbol")
        walled = [Walled(array, at_end) for array in arrays]
        slots = [part.address for part in walled] + [sizes[symbol] for symbol in self.kernel.value("symbols")]
        context = np.array([*slots, 0], np.int64)
        tasks = self.tasks(context, 1)
        memory = np.empty(self.call(f"{name}_scratch", context.ctypes.data) + 64, np.uint8)
        scratch = memory.ctypes.data + -memory.ctypes.data % 64
        for task in range(tasks):
            self.call(name, context.ctypes.data, task, tasks, scratch)
        found = ctypes.string_at(walled[-1].address, arrays[-1].nbytes)
        return np.frombuffer(found, arrays[-1].dtype).reshape(arrays[-1].shape)


def build(kernel: SpecOp, machine: Machine) -> Native:
    """The machine code of a kernel; its Target IR is verified on the way."""
    backend = CpuBackend(machine)
    target = backend.lower(kernel)
    verify(ModuleOp([target]))
    (text,), shared = backend.parts([target])
    return Native(kernel, target, link(compile_texts([text, *shared.values(), _NEVER_STOPPED], backend.code_target)))


def interpret(kernel: SpecOp, arrays: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """What the buffers hold after a run on NumPy."""
    copies = [np.array(array) for array in arrays]
    run_kernel(kernel, copies, sizes)
    return copies


def shapes(kernel: SpecOp, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shapes of a kernel's buffers."""
    types = [argument.type for argument in kernel.regions[0].block.args]
    return [tuple(dim.evaluate(sizes) for dim in type.shape) for type in types if isinstance(type, BufferAttr)]


def fill(kernel: SpecOp, sizes: Mapping[str, int], seed: int = 0) -> list[Array]:
    """Buffers full of numbers; what is written starts as something else."""
    rng = np.random.default_rng(seed)
    types = [argument.type for argument in kernel.regions[0].block.args]
    found: list[Array] = []
    for type, shape in zip(types, shapes(kernel, sizes), strict=True):
        assert isinstance(type, BufferAttr)
        found.append(values_of(rng, shape, type.dtype))
    return found


def values_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small numbers of a dtype."""
    if dtype.is_float:
        return rng.normal(size=shape).astype(numpy_dtype(dtype))
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    low = 0 if dtype.kind == "uint" else -7
    return rng.integers(low, 8, shape).astype(numpy_dtype(dtype))


def assert_close(native: Sequence[Array], expected: Sequence[Array], ulps: int = 0) -> None:
    """Equal bits, or for floats at most `ulps` steps of the largest number apart; all NaN are one."""
    for number, (left, right) in enumerate(zip(native, expected, strict=True)):
        assert left.dtype == right.dtype
        dtype = dtype_of(right)
        if not dtype.is_float:
            np.testing.assert_array_equal(left, right, f"buffer {number}")
            continue
        wide, exact = (np.asarray(side, np.float64) for side in (left, right))
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
        step = dtype.epsilon * ulps
        np.testing.assert_allclose(wide, exact, rtol=step, atol=step * float(largest), err_msg=f"buffer {number}")
