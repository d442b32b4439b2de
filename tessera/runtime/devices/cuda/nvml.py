"""What a GPU says of itself while it runs (NVML): power, energy, clocks, and how busy its memory is.

NVML comes with the driver and is loaded when first asked for; where it is absent, or does not know a figure, that
figure is None. Nothing here raises for what is not there: tuning measures times without it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Self

from tessera.types.frozen import frozen
from tessera.types.settings import cuda_device

LIBRARY = "libnvidia-ml.so.1"
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
"""`NVML_CLOCK_SM` and `NVML_CLOCK_MEM` of nvml.h."""
_TRANSFERS = 2
"""Of a memory clock: data moves at both of its edges."""
_LINK_FIELDS = {"sent": 138, "received": 139}
"""`NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `_RX`: KiB that all links moved since the driver was loaded."""
_ALL_LINKS = 0xFFFFFFFF
"""The scope of such a field that means every link."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _FieldValue(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_uint),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


@frozen
class Readings:
    """Figures of one moment, or of a stretch of time; None is what this GPU or driver does not report.

    `power` is watts, `energy` joules since the driver was loaded, clocks are MHz, `bandwidth` is what the memory could
    move at its clock and `link` what the links between GPUs moved, both in bytes a nanosecond; `memory_busy` is the
    fraction of the last moments in which memory was read or written.
    """

    power: float | None = None
    energy: float | None = None
    clock: float | None = None
    memory_clock: float | None = None
    bandwidth: float | None = None
    memory_busy: float | None = None
    link: float | None = None

    @property
    def columns(self) -> Mapping[str, float | None]:
        """By name, as a record or a report has them."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = ("power", "energy", "clock", "memory_clock", "bandwidth", "memory_busy", "link")


class Monitor:
    """One GPU as NVML knows it."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library, self._handle = library, handle

    def _ask(self, name: str, *before: Any, kind: Any = ctypes.c_uint) -> Any:
        """What a function of NVML writes to its last argument; None where it has no such function, or no answer."""
        function = getattr(self._library, name, None)
        value = kind()
        if function is None or function(self._handle, *before, ctypes.byref(value)):
            return None
        return value

    def _number(self, name: str, *before: Any, kind: Any = ctypes.c_uint) -> float | None:
        found = self._ask(name, *before, kind=kind)
        return None if found is None else float(found.value)

    def read(self) -> Readings:
        """All figures of this moment; what links moved is known of a stretch of time alone."""
        power = self._number("nvmlDeviceGetPowerUsage")
        energy = self._number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong)
        memory_clock = self._number("nvmlDeviceGetClockInfo", _MEMORY_CLOCK)
        width = self._number("nvmlDeviceGetMemoryBusWidth")
        busy = self._ask("nvmlDeviceGetUtilizationRates", kind=_Utilization)
        return Readings(
            power=None if power is None else power / 1e3,
            energy=None if energy is None else energy / 1e3,
            clock=self._number("nvmlDeviceGetClockInfo", _SM_CLOCK),
            memory_clock=memory_clock,
            bandwidth=None if memory_clock is None or width is None else peak_bandwidth(memory_clock, width),
            memory_busy=None if busy is None else busy.memory / 100.0,
        )

    def link_bytes(self) -> float | None:
        """Bytes that links between GPUs moved since the driver was loaded, both ways; None without links."""
        function = getattr(self._library, "nvmlDeviceGetFieldValues", None)
        if function is None:
            return None
        values = (_FieldValue * len(_LINK_FIELDS))()
        for value, field in zip(values, _LINK_FIELDS.values(), strict=True):
            value.field, value.scope = field, _ALL_LINKS
        if function(self._handle, len(values), values) or any(value.code for value in values):
            return None
        return 1024.0 * sum(value.value for value in values)


def peak_bandwidth(clock: float, width: float) -> float:
    """Bytes a nanosecond that memory of such a clock (MHz) and width (bits) could move.

    >>> round(peak_bandwidth(3201.0, 6144.0))
    4917
    """
    return clock * 1e6 * _TRANSFERS * width / 8 / 1e9


@cache
def monitor() -> Monitor | None:
    """That of the GPU that this process works on; None where there is no NVML, or it knows no such GPU."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return open_monitor(library, _bus_of(cuda_device()))


def open_monitor(library: Any, bus: str | None) -> Monitor | None:
    """The GPU of a PCI bus number by a library; the first GPU without one, None where it is not there."""
    if library.nvmlInit_v2():
        return None
    handle = ctypes.c_void_p()
    if bus is None:
        code = library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    else:
        # Numbers of CUDA's devices depend on the environment, NVML's do not; the bus is the same for both.
        code = library.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle))
    return None if code else Monitor(library, handle)


def _bus_of(ordinal: int) -> str | None:
    """The PCI bus number of a device of CUDA's; None where there is no driver."""
    from tessera.diagnostics.codes import DeviceError  # noqa: PLC0415 - only where NVML is
    from tessera.runtime.devices.cuda.driver import driver  # noqa: PLC0415

    try:
        cuda = driver()
        text = ctypes.create_string_buffer(32)
        cuda.call("cuDeviceGetPCIBusId", text, len(text), cuda.device)
    except DeviceError:
        return None
    assert cuda.ordinal == ordinal
    return text.value.decode()


class Meter:
    """Readings over a block: `with Meter() as meter: ...`, then `meter.readings`; power is the mean of the block.

    Where the GPU counts energy the mean is exact; else it is that of the begin and the end.
    """

    def __init__(self, source: Monitor | None = None) -> None:
        self._monitor = source or monitor()
        self._before = Readings()
        self._links: float | None = None
        self._start = 0.0
        self.readings = Readings()
        """All None until the block has ended, and where there is no NVML."""

    def __enter__(self) -> Self:
        if self._monitor is not None:
            self._before, self._links = self._monitor.read(), self._monitor.link_bytes()
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        if self._monitor is None:
            return
        after, links = self._monitor.read(), self._monitor.link_bytes()
        energy = None if after.energy is None or self._before.energy is None else after.energy - self._before.energy
        both = [power for power in (self._before.power, after.power) if power is not None]
        # Energy is counted in steps of some ten milliseconds: a block without a step says nothing.
        power = energy / seconds if energy else (sum(both) / len(both) if both else None)
        moved = None if links is None or self._links is None else (links - self._links) / seconds / 1e9
        self.readings = Readings(
            power, energy, after.clock, after.memory_clock, after.bandwidth, after.memory_busy, moved
        )
