"""Micro-tests of a GPU: HBM and L2 by footprint, one SM, PCIe both ways, arithmetic, latency, and empty launches.

    python -m benchmarks.gpu rates [--out FILE] [--adopt]

Kernels are PTX of their own, timed by events of the driver; no other library takes part. With `--adopt` the figures
that the cost model reads (`tessera/types/rates.json`) become those of this run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.gpu_record import facts, need_gpu, options, write
from benchmarks.rates import adopt, curve_of, machine_of
from tessera.runtime.devices.cuda.driver import driver
from tessera.tuner.device_probe import CTAS, FOOTPRINTS, DeviceProbe, nanoseconds
from tessera.types.rates import Rates
from tessera.types.rates import rates_of as known_rates


class Machine(DeviceProbe):
    """A GPU with memory to read and write, the kernels that do, and matmuls of the compiler."""

    def matmul_flops(self, dtype: str, size: int = 8192) -> float:
        """Operations a nanosecond of a large matmul: what the tensor cores of this GPU give at its own clock."""
        x = ts.cuda.array(np.ones((size, size), np.float32))
        x = ts.ops.cast(x, getattr(ts, dtype))
        function: Any = ts.jit(_product)
        return 2.0 * size**3 / nanoseconds(lambda: function(x, x))


def _product(x: Any, y: Any) -> Any:
    return ts.ops.matmul(x, y)


def measure(say: Callable[[str], None] = print, footprints: Sequence[int] = FOOTPRINTS) -> dict[str, Any]:
    """Everything, as plain values."""
    machine = Machine(footprints[-1])
    rows: list[dict[str, float]] = []
    for footprint in footprints:
        whole = {name: machine.bandwidth(name, footprint, machine.sms * CTAS) for name in ("read", "copy")}
        one = {f"{name} by one SM": machine.bandwidth(name, footprint, 1) for name in ("read", "copy")}
        rows.append({"bytes": footprint, **whole, **one})
        say(", ".join(f"{name} {value:.0f}" for name, value in rows[-1].items()))
    found: dict[str, Any] = {
        "sms": machine.sms,
        "curve": rows,
        "flops": {"f32": machine.flops(), **{name: machine.matmul_flops(name) for name in ("bf16", "f16")}},
        "launch": machine.launch(),
        "latency": machine.latency(),
        "link": machine.link(),
    }
    say(str({name: value for name, value in found.items() if name != "curve"}))
    return found


def rates_of(found: Mapping[str, Any]) -> Rates:
    """What the model reads of a record."""
    names = ("read", "copy")
    link = found["link"]
    return Rates(
        units=found["sms"],
        curve=curve_of(found["curve"], names),
        unit_curve=curve_of(found["curve"], [f"{name} by one SM" for name in names]),
        flops=tuple(found["flops"].items()),
        launch=found["launch"],
        latency=found["latency"],
        chain=0.0,
        link=(link["pinned to device"], link["pinned to host"]),
    )


def main() -> None:
    """Measure, and write it down."""
    parser = options("rates", __doc__)
    parser.add_argument("--adopt", action="store_true", help="let the cost model read these figures")
    asked = parser.parse_args()
    need_gpu()
    found = measure()
    write(asked.out, found)
    if asked.adopt:
        # What a launch takes is that of replays, which no host holds up (`benchmarks.gpu launch`).
        known = known_rates(driver().architecture)
        launch = min(found["launch"], known.launch if known is not None else math.inf)
        adopt(driver().architecture, replace(rates_of(found), launch=launch, machine=machine_of(facts()["hardware"])))


if __name__ == "__main__":
    main()
