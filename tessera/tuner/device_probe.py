"""Micro-kernels of a GPU, as PTX of their own: memory and L2 by footprint, one SM, the link, arithmetic, launches.

They owe nothing to the compiler that is measured by them; events of the driver time them. Tuning reads them through
`machine_rates`, `python -m benchmarks.gpu rates` writes every figure down.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

from tessera.runtime.devices.cuda.assembler import machine_code
from tessera.runtime.devices.cuda.device import CudaDevice
from tessera.runtime.devices.cuda.driver import Module, driver, synchronize
from tessera.runtime.devices.cuda.streams import Event, current_stream

FOOTPRINTS = tuple(1 << power for power in range(20, 33))
"""Bytes that a kernel reads again and again: what an L2 holds, up to gigabytes."""
THREADS, CTAS = 1024, 2
"""Of a CTA, and CTAs for each SM: all of its warps."""
LOADS = 4
"""Loads of 16 bytes that a thread has under way."""
FMAS, CHAINS = 4096, 8
_ROUNDS, _LINK, _MOVED = 5, 1 << 28, 1 << 33
"""Samples of which the best counts, and bytes that are moved over the link and in memory."""

_HEAD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 n, .param .u64 reps)
.maxntid {threads}, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .f32 %f<32>;
    .reg .b64 %d<32>;
    ld.param.u64 %d0, [a];
    ld.param.u64 %d1, [b];
    ld.param.u64 %d2, [n];
    ld.param.u64 %d3, [reps];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %nctaid.x;
    mad.lo.u32 %r4, %r0, %r1, %r2;
    mul.lo.u32 %r5, %r3, %r1;
    mul.wide.u32 %d4, %r4, 16;
    mul.wide.u32 %d5, %r5, 16;
"""
_STREAM = """
    mov.u32 %r40, 0;
    mov.u64 %d6, 0;
    mov.u64 %d7, %d4;
    sub.u64 %d2, %d2, 1;
LOOP:
    {accesses}
    mad.lo.u64 %d7, %d5, {loads}, %d7;
    add.u64 %d6, %d6, 1;
    setp.lt.u64 %p1, %d6, %d3;
    @%p1 bra LOOP;
    setp.eq.u32 %p2, %r40, 0x12345678;
    @%p2 st.global.u32 [%d1], %r40;
    ret;
}}
"""


def _stream(name: str, *, is_copy: bool) -> str:
    """A grid-stride loop with some 16-byte loads under way, which writes them elsewhere or keeps one word of each.

    The footprint is a power of two: what lies behind its end begins again in front.
    """
    lines: list[str] = []
    registers = [", ".join(f"%r{8 + 4 * k + part}" for part in range(4)) for k in range(LOADS)]
    for k in range(LOADS):
        lines += [f"mad.lo.u64 %d{8 + k}, %d5, {k}, %d7;", f"and.b64 %d{8 + k}, %d{8 + k}, %d2;"]
        lines += [f"add.u64 %d{16 + k}, %d0, %d{8 + k};"]
        lines += [f"ld.volatile.global.v4.u32 {{{registers[k]}}}, [%d{16 + k}];"]
    for k in range(LOADS):
        if is_copy:
            lines += [f"add.u64 %d{24 + k}, %d1, %d{8 + k};", f"st.global.v4.u32 [%d{24 + k}], {{{registers[k]}}};"]
        else:
            lines += [f"xor.b32 %r40, %r40, %r{8 + 4 * k};"]
    text = _HEAD.format(name=name, threads=THREADS)
    return text + _STREAM.format(accesses="\n    ".join(lines), loads=LOADS)


def _multiply_adds() -> str:
    """Chains of multiply-adds of one thread."""
    lines = [
        "cvt.rn.f32.u32 %f0, %r2;",
        *(f"mov.f32 %f{1 + k}, %f0;" for k in range(CHAINS)),
        "mov.u64 %d6, 0;",
        "LOOP:",
    ]
    lines += [f"fma.rn.f32 %f{1 + k}, %f{1 + k}, %f0, %f0;" for _ in range(16) for k in range(CHAINS)]
    lines += ["add.u64 %d6, %d6, 16;", "setp.lt.u64 %p0, %d6, %d3;", "@%p0 bra LOOP;"]
    lines += [f"add.f32 %f1, %f1, %f{1 + k};" for k in range(1, CHAINS)]
    lines += ["setp.eq.f32 %p1, %f1, 0f12345678;", "@%p1 st.global.f32 [%d1], %f1;", "ret;"]
    return _HEAD.format(name="multiply_add", threads=THREADS) + "    " + "\n    ".join(lines) + "\n}\n"


def _chase() -> str:
    """One thread that reads where to read next."""
    lines = ["mov.u64 %d6, 0;", "mov.u64 %d7, %d0;", "LOOP:", "ld.volatile.global.u64 %d7, [%d7];"]
    lines += [
        "add.u64 %d6, %d6, 1;",
        "setp.lt.u64 %p0, %d6, %d3;",
        "@%p0 bra LOOP;",
        "st.global.u64 [%d1], %d7;",
        "ret;",
    ]
    return _HEAD.format(name="chase", threads=THREADS) + "    " + "\n    ".join(lines) + "\n}\n"


def _empty() -> str:
    return _HEAD.format(name="empty", threads=THREADS) + "    ret;\n}\n"


TEXTS: Mapping[str, Callable[[], str]] = {
    "read": lambda: _stream("read", is_copy=False),
    "copy": lambda: _stream("copy", is_copy=True),
    "multiply_add": _multiply_adds,
    "chase": _chase,
    "empty": _empty,
}


class Kernel:
    """One of the kernels, loaded."""

    def __init__(self, name: str) -> None:
        self.module = Module(machine_code(TEXTS[name]().encode(), driver().architecture))
        self.function = ctypes.c_void_p(self.module.function(name))

    def launch(self, ctas: int, a: int, b: int, n: int, reps: int, threads: int = THREADS) -> None:
        """Put it into the current stream."""
        values = [ctypes.c_uint64(value) for value in (a, b, n, reps)]
        given = (ctypes.c_void_p * 4)(*(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in values))
        stream = ctypes.c_void_p(current_stream())
        driver().call("cuLaunchKernel", self.function, ctas, 1, 1, threads, 1, 1, 0, stream, given, None)


def nanoseconds(run: Callable[[], None], count: int = 1, rounds: int = _ROUNDS) -> float:
    """Of one of so many runs in the current stream, by events; the best of several samples."""
    run()
    best = float("inf")
    for _ in range(rounds):
        begin, end = Event(), Event()
        begin.record()
        for _ in range(count):
            run()
        end.record()
        best = min(best, end.milliseconds_since(begin) * 1e6 / count)
    return best


class DeviceProbe:
    """A GPU with memory to read and write, and the kernels that do."""

    def __init__(self, most: int = FOOTPRINTS[-1]) -> None:
        self.device, self.sms, self.most = CudaDevice(), driver().attribute("blocks"), most
        self.a, self.b = self.device.allocate(most), self.device.allocate(most)
        for address in (self.a, self.b):
            driver().call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(1), ctypes.c_size_t(most))
        self.kernels = {name: Kernel(name) for name in TEXTS}

    def bandwidth(self, name: str, footprint: int, ctas: int) -> float:
        """Bytes a nanosecond of so many CTAs over a footprint; a copy's is half read and half written."""
        part, each = (footprint // 2, 2) if name == "copy" else (footprint, 1)
        trip = ctas * THREADS * LOADS * 16
        # All of it several times, and for some milliseconds.
        trips = max(part, _MOVED if ctas > 1 else _MOVED >> 6) // trip
        taken = nanoseconds(lambda: self.kernels[name].launch(ctas, self.a, self.b, part, trips))
        return each * trips * trip / taken

    def flops(self) -> float:
        """Operations a nanosecond of f32 multiply-adds, each counted as two."""
        ctas = self.sms * CTAS
        taken = nanoseconds(lambda: self.kernels["multiply_add"].launch(ctas, self.a, self.b, 0, FMAS))
        return 2.0 * CHAINS * FMAS * THREADS * ctas / taken

    def latency(self) -> float:
        """Nanoseconds of a load whose address another load gave, of lines that all fit L2."""
        step, count = 1 << 16, 1 << 14
        order = np.random.default_rng(1).permutation(min(count, self.most // step)).astype(np.uint64)
        words = np.zeros(self.most // 8 if self.most < step * count else step * count // 8, np.uint64)
        words[order * np.uint64(step // 8)] = np.uint64(self.a) + np.roll(order, -1) * np.uint64(step)
        self.device.copy_in(self.a, words.ctypes.data, words.nbytes)
        synchronize()
        taken = nanoseconds(lambda: self.kernels["chase"].launch(1, self.a, self.b, 0, len(order), 1))
        return taken / len(order)

    def launch(self) -> float:
        """Nanoseconds between kernels that do nothing, as fast as this process launches them one by one."""
        return nanoseconds(lambda: self.kernels["empty"].launch(1, 0, 0, 0, 0, 32), 200)

    def link(self) -> dict[str, float]:
        """Bytes a nanosecond between host and device, from memory that stays in place and from pages that may move."""
        pinned = ctypes.c_void_p()
        driver().call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(_LINK), 0)
        pages = np.ones(_LINK, np.uint8)
        found: dict[str, float] = {}
        for name, host in (("pinned", pinned.value or 0), ("pageable", pages.ctypes.data)):
            taken_in = nanoseconds(lambda host=host: self.device.copy_in(self.a, host, _LINK))
            taken_out = nanoseconds(lambda host=host: self.device.copy_out(host, self.a, _LINK))
            found |= {f"{name} to device": _LINK / taken_in, f"{name} to host": _LINK / taken_out}
        driver().call("cuMemFreeHost", pinned)
        return found

    # What `machine_rates` asks of a probe.

    @property
    def units(self) -> int:
        """Multiprocessors."""
        return self.sms

    @property
    def machine(self) -> str:
        """The GPU in words."""
        return driver().name

    @property
    def key(self) -> str:
        """What tells this GPU from others."""
        return f"{driver().name} {driver().architecture} {self.sms} {driver().version}"

    def move(self, footprint: int, is_whole: bool) -> float:
        """Bytes a nanosecond of a footprint, by all multiprocessors or by one: the better of reading and copying."""
        return max(self.bandwidth(name, footprint, self.sms * CTAS if is_whole else 1) for name in ("read", "copy"))

    def compute(self) -> dict[str, float]:
        """Operations a nanosecond by kind; those of tensor cores take a compiler, and come from elsewhere."""
        return {"f32": self.flops()}

    def chain(self) -> float:
        """Not measured on a GPU."""
        return 0.0

    def links(self) -> tuple[float, float]:
        """Bytes a nanosecond to the device and back, from pinned memory."""
        found = self.link()
        return found["pinned to device"], found["pinned to host"]

    def close(self) -> None:
        """Let the memory go."""
        for address in (self.a, self.b):
            self.device.free(address)
