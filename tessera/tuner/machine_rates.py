"""Rates of this machine, measured once by micro-benchmarks and kept in the cache folder; `rates.json` where nobody did.

A probe measures: `HostProbe` a CPU, by NumPy alone; `device_probe.DeviceProbe` a GPU; tests one that is made up. What
is kept is checked when it is read, and measured anew where it is damaged or of another machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tessera.runtime.durable_files import write_durable
from tessera.runtime.private_files import make_folder
from tessera.types.rates import Curve, Rates, rate_at, rates_of
from tessera.types.settings import Settings, usable_cpus

HOST_FOOTPRINTS = tuple(1 << power for power in range(15, 28))
"""Bytes that all threads touch together: from a part of a first-level cache to more than most last ones hold."""
DEVICE_FOOTPRINTS = tuple(1 << power for power in range(20, 32, 2))
"""The same of a GPU: from a part of its L2 to gigabytes."""
VERSION = 1
"""Of the files: others are measured anew."""
_SAMPLE, _ROUNDS = 1e-3, 4
"""Seconds that a sample lasts at least, and samples of which the best counts: others only ever slow it down."""
_SIZE = 1024
"""Rows and columns of the matmul that finds what a CPU computes."""


class Probe(Protocol):
    """Whoever measures one machine."""

    @property
    def units(self) -> int:
        """Cores, or multiprocessors."""
        ...

    @property
    def machine(self) -> str:
        """What it is, in words."""
        ...

    @property
    def key(self) -> str:
        """What tells it from others: rates are kept under this."""
        ...

    def move(self, footprint: int, is_whole: bool) -> float:
        """Bytes a nanosecond over a footprint, by all units or by one."""
        ...

    def compute(self) -> Mapping[str, float]:
        """Operations a nanosecond of all units, by what computes them."""
        ...

    def launch(self) -> float:
        """Nanoseconds of a kernel that does nothing."""
        ...

    def latency(self) -> float:
        """Nanoseconds of a load that another waits for."""
        ...

    def chain(self) -> float:
        """Nanoseconds of an addition that waits for another."""
        ...

    def links(self) -> tuple[float, float]:
        """Bytes a nanosecond from host to device, and back."""
        ...

    def close(self) -> None:
        """Let memory go."""
        ...


def measure_rates(probe: Probe, footprints: Sequence[int]) -> Rates:
    """Everything that the model reads of a machine."""
    whole = smooth([(size, probe.move(size, True)) for size in footprints])
    each = smooth([(size, probe.move(size, False)) for size in footprints])
    return Rates(
        units=probe.units,
        curve=tuple((size, max(rate, rate_at(each, size))) for size, rate in whole),
        unit_curve=each,
        flops=tuple(sorted(probe.compute().items())),
        launch=probe.launch(),
        latency=probe.latency(),
        chain=probe.chain(),
        link=probe.links(),
        machine=probe.machine,
    )


def smooth(measured: Sequence[tuple[int, float]]) -> Curve:
    """A curve that never rises: what a larger footprint allows, a smaller one does; a dip was a disturbance.

    >>> smooth([(1, 8.0), (2, 5.0), (4, 6.0)])
    ((1, 8.0), (2, 6.0), (4, 6.0))
    """
    found: list[tuple[int, float]] = []
    for size, rate in reversed(measured):
        found.insert(0, (size, max(rate, found[0][1] if found else 0.0)))
    return tuple(found)


def machine_rates(
    name: str,
    open_probe: Callable[[], Probe] | None = None,
    *,
    key: str = "",
    footprints: Sequence[int] = (),
    folder: Path | None = None,
) -> Rates | None:
    """Those of the machine `name` (`cpu`, or an architecture): kept ones, else measured ones, else the shipped table's.

    `open_probe` is called where nothing is kept, and the result is kept; without it nothing is ever measured. `key`
    tells machines of one name apart.
    """
    file = file_of(name, key, folder)
    kept = read_rates(file)
    if kept is not None or open_probe is None:
        return kept or rates_of(name)
    probe = open_probe()
    try:
        sizes = footprints or (HOST_FOOTPRINTS if name == "cpu" else DEVICE_FOOTPRINTS)
        found = complete(measure_rates(probe, sizes), rates_of(name))
    finally:
        probe.close()
    write_rates(file, found)
    return found


def kept_rates(name: str) -> Rates | None:
    """Rates that were measured on this machine; None where nobody did, or on another CPU with the same folder."""
    found = read_rates(file_of(name))
    return found if found is None or name != "cpu" or found.machine.startswith(host_name()) else None


def complete(measured: Rates, shipped: Rates | None) -> Rates:
    """Rates with those of the shipped table for kinds that this probe cannot measure, scaled to this machine.

    Tensor cores take a compiler to be measured: of a machine of the same architecture theirs follow its f32's.
    """
    if shipped is None:
        return measured
    own, known = dict(measured.flops), dict(shipped.flops)
    scale = own["f32"] / known["f32"] if own.get("f32") and known.get("f32") else 1.0
    missing = {kind: rate * scale for kind, rate in known.items() if kind not in own}
    return replace(measured, flops=tuple(sorted({**own, **missing}.items())))


def file_of(name: str, key: str = "", folder: Path | None = None) -> Path:
    """Where rates of a machine are kept: `rates-NAME-HASH.json` of the folder of tuning."""
    digest = hashlib.sha256(f"{name}\0{key}".encode()).hexdigest()[:12]
    return (folder or Settings.from_environment().cache_dir / "tuning") / f"rates-{name}-{digest}.json"


def write_rates(file: Path, rates: Rates) -> None:
    """Keep rates, complete or not at all."""
    make_folder(str(file.parent))
    text = json.dumps({"version": VERSION, "rates": rates.as_json()}, indent=1) + "\n"
    write_durable(str(file), [text.encode()])


def read_rates(file: Path) -> Rates | None:
    """What was kept; None where nothing was, and with a warning where it is damaged."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        values = json.loads(text)
        if values["version"] != VERSION:
            return None
        found = Rates.from_json(values["rates"])
        _check(found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(f"rates in {file} are damaged and measured anew: {error}", RuntimeWarning, stacklevel=2)
        return None
    return found


def _check(rates: Rates) -> None:
    """Raises ValueError for numbers that no machine has."""
    rated = [rate for _, rate in (*rates.curve, *rates.unit_curve, *rates.flops)]
    if rates.units < 1 or not rates.curve or not all(math.isfinite(rate) and rate > 0 for rate in rated):
        raise ValueError("rates are more than 0")
    if list(rates.curve) != sorted(rates.curve, key=_size_of):
        raise ValueError("footprints are in order, the smallest first")
    if not all(math.isfinite(value) and value >= 0 for value in (rates.launch, rates.latency, rates.chain)):
        raise ValueError("times are not negative")


def _size_of(point: tuple[int, float]) -> int:
    return point[0]


class HostProbe:
    """Measures this CPU by NumPy: its loops run beside each other in threads, its matmul is the BLAS of the machine.

    `launch` is what a kernel takes before it does anything, which a compiler knows; else that of the shipped table.
    """

    def __init__(self, launch: float | None = None, units: int = 0, most: int = HOST_FOOTPRINTS[-1]) -> None:
        shipped = rates_of("cpu")
        self._units = units or usable_cpus()
        self._launch = launch if launch is not None else shipped.launch if shipped is not None else 0.0
        self._arrays = [np.ones(most // 8, np.float32) for _ in range(2)]
        self._pool = ThreadPoolExecutor(self._units)

    @property
    def units(self) -> int:
        """Threads that run together."""
        return self._units

    @property
    def machine(self) -> str:
        """The CPU in words."""
        return f"{host_name()} ({self._units} threads)"

    @property
    def key(self) -> str:
        """The CPU and its threads."""
        return self.machine

    def move(self, footprint: int, is_whole: bool) -> float:
        """Bytes a nanosecond of a copy, half of them read and half written."""
        threads = self._units if is_whole else 1
        each = max(16, footprint // 8 // threads)
        source, target = self._arrays
        parts = [(source[k * each : (k + 1) * each], target[k * each : (k + 1) * each]) for k in range(threads)]
        moved = sum(a.nbytes + b.nbytes for a, b in parts)

        def sweep(count: int) -> None:
            tasks = [self._pool.submit(_copy, a, b, count) for a, b in parts]
            for task in tasks:
                task.result()

        return moved / best_time(sweep)

    def compute(self) -> dict[str, float]:
        """Operations a nanosecond of a large matmul, f32 and f64."""
        found: dict[str, float] = {}
        for name, dtype in (("f32", np.float32), ("f64", np.float64)):
            a = np.ones((_SIZE, _SIZE), dtype)
            result = np.empty_like(a)
            found[name] = 2.0 * _SIZE**3 / best_time(lambda count, a=a, c=result: _multiply(a, c, count))
        return found

    def launch(self) -> float:
        """Of a kernel of the compiler."""
        return self._launch

    def latency(self) -> float:
        """Of a load from memory, by what one thread copies: a line of 64 bytes with ten others under way."""
        # A core has about ten lines under way; a dependent chain in Python would time the interpreter.
        return 64.0 * 10 / self.move(self._arrays[0].nbytes * 2, False)

    def chain(self) -> float:
        """Of an addition that waits for another: a running sum waits for each of its own."""
        values, result = np.ones(1 << 16), np.empty(1 << 16)
        return best_time(lambda count: _accumulate(values, result, count)) / len(values)

    def links(self) -> tuple[float, float]:
        """There is one memory."""
        return 0.0, 0.0

    def close(self) -> None:
        """End the threads, and let the arrays go."""
        self._pool.shutdown()
        self._arrays = []


def _copy(source: Any, target: Any, count: int) -> None:
    for _ in range(count):
        np.copyto(target, source)


def _multiply(a: Any, result: Any, count: int) -> None:
    for _ in range(count):
        np.matmul(a, a, out=result)


def _accumulate(values: Any, result: Any, count: int) -> None:
    for _ in range(count):
        np.cumsum(values, out=result)


def best_time(sweep: Callable[[int], None]) -> float:
    """Nanoseconds of one of several repetitions that last a millisecond; the best of some samples."""
    count = 1
    while (taken := _seconds_of(sweep, count)) < _SAMPLE:
        count = max(2 * count, int(count * _SAMPLE / max(taken, 1e-7)))
    return min(_seconds_of(sweep, count) for _ in range(_ROUNDS)) / count * 1e9


def _seconds_of(sweep: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    sweep(count)
    return time.perf_counter() - start


def host_name() -> str:
    """The CPU's model, as the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine() or os.uname().machine
