"""How fast machines were measured to be, and what that says of a kernel: a bound of its time, and its share of it.

`rates.json` holds what micro-tests measured (`python -m benchmarks.rates`, `python -m benchmarks.gpu rates`) on one CPU
and one GPU; the records with every figure are in `benchmarks/results/`. The cost model, `explain()`, `tessera lint` and
the audit (`python -m benchmarks.roofline`) read them through here; the audit replaces them by those of its own machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from tessera.types.dim import parse_dim
from tessera.types.frozen import frozen

TABLE = Path(__file__).with_name("rates.json")
"""The figures, by machine: `cpu`, or the architecture of a GPU."""

Curve: TypeAlias = tuple[tuple[int, float], ...]
"""Rates by footprint, the smallest first."""


@frozen
class Rates:
    """A machine as measured; bytes and operations are of one nanosecond, times are nanoseconds.

    `curve` is bandwidth by the bytes that all `units` (cores, multiprocessors) touch together, `unit_curve` that of one
    unit alone, where that was measured. `flops` are operations of all units by what computes them (`f32`, `f64`, `bf16`
    of tensor cores). `launch` is what a kernel takes that does nothing, `latency` a load that another waits for (from
    memory on a CPU, from L2 on a GPU), `chain` an addition that waits for another; `link` is bandwidth from
    host to device, and back.
    """

    units: int
    curve: Curve
    unit_curve: Curve
    flops: tuple[tuple[str, float], ...]
    launch: float
    latency: float
    chain: float
    link: tuple[float, float] = (0.0, 0.0)
    machine: str = ""
    """What was measured, in words."""

    def bandwidth(self, touched: float, units: int | None = None) -> float:
        """Bytes a nanosecond that so many units move of a footprint: never more than all of them together."""
        whole = rate_at(self.curve, touched)
        if units is None or units >= self.units or not self.unit_curve:
            return whole
        return min(whole, units * rate_at(self.unit_curve, touched / max(units, 1)))

    def compute(self, kind: str, units: int | None = None) -> float:
        """Operations a nanosecond of so many units; what was not measured bounds nothing, as if it took no time."""
        share = 1.0 if units is None else min(1.0, units / self.units)
        return dict(self.flops).get(kind, math.inf) * share

    def on(self, units: int) -> Rates:
        """Such a machine of so many units, as a CPU by a number of threads; more of them share the same memory."""
        curve = tuple((size, self.bandwidth(size, units)) for size, _ in self.curve)
        flops = tuple((kind, rate * units / self.units) for kind, rate in self.flops)
        return replace(self, units=units, curve=curve, flops=flops)

    def as_json(self) -> dict[str, Any]:
        """Plain values, to three digits."""
        return {
            "units": self.units,
            "curve": [[size, _short(rate)] for size, rate in self.curve],
            "unit_curve": [[size, _short(rate)] for size, rate in self.unit_curve],
            "flops": {kind: _short(rate) for kind, rate in self.flops},
            **{name: _short(getattr(self, name)) for name in ("launch", "latency", "chain")},
            "link": [_short(rate) for rate in self.link],
            **({"machine": self.machine} if self.machine else {}),
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Rates:
        """What `as_json` was made from."""
        curves = {name: tuple((int(size), float(rate)) for size, rate in values[name]) for name in _CURVES}
        plain = {name: values[name] for name in ("units", "launch", "latency", "chain")}
        flops, link, machine = tuple(values["flops"].items()), tuple(values["link"]), values.get("machine", "")
        return Rates(**curves, **plain, flops=flops, link=link, machine=machine)


_CURVES = ("curve", "unit_curve")


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def rate_at(curve: Curve, size: float) -> float:
    """The rate of a footprint: between two measured ones by the logarithm of its size, outside that of the end."""
    if size <= curve[0][0]:
        return curve[0][1]
    for (low, slow), (high, fast) in pairwise(curve):
        if size <= high:
            part = math.log(size / low) / math.log(high / low)
            return slow + part * (fast - slow)
    return curve[-1][1]


@cache
def read_table() -> dict[str, Rates]:
    """The machines that were measured."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Rates.from_json(values) for name, values in table.items()}


def rates_of(machine: str) -> Rates | None:
    """Those of a machine by its name; None where nobody measured one like it."""
    return read_table().get(machine)


@frozen
class Work:
    """What a kernel does: operations and what computes them, bytes read and written, and blocks that may run apart."""

    flops: float
    bytes: float
    kind: str = "f32"
    blocks: int | None = None
    is_contraction: bool = False
    written: float = 0.0
    """Bytes that are written, of all of them."""


def bounds(work: Work, rates: Rates, units: int | None = None) -> dict[str, float]:
    """Nanoseconds below which nothing comes, by what holds it: `memory` and `compute` at measured rates."""
    return {
        "memory": work.bytes / rates.bandwidth(work.bytes, units),
        "compute": work.flops / rates.compute(work.kind, units),
    }


def bound(work: Work, rates: Rates) -> tuple[float, str]:
    """The roofline: the least time of a kernel on the whole machine, and what holds it there."""
    found = bounds(work, rates)
    name = max(found, key=lambda one: found[one])
    return found[name], name


def limits(work: Work, rates: Rates) -> dict[str, float]:
    """Nanoseconds that a kernel as it was made cannot beat, by cause: each by itself, over the roofline's bounds.

    Fewer blocks than units leave some without work. Outside of contractions additions and multiplications stay apart,
    as the reference has them, and use half of what multiply-adds can.
    """
    units = rates.units if work.blocks is None else min(rates.units, work.blocks)
    found = {"launch": rates.launch, "multiply and add apart": 0.0, "too few blocks": 0.0}
    if not work.is_contraction:
        found["multiply and add apart"] = 2 * work.flops / rates.compute(work.kind)
    if units < rates.units:
        found["too few blocks"] = max(bounds(work, rates, max(units, 1)).values())
    return found


def predict(work: Work, rates: Rates) -> tuple[float, str]:
    """How long a kernel takes at least as it was made, its launch included, and what keeps it from its roofline."""
    least, name = bound(work, rates)
    causes: Sequence[tuple[str, float]] = [
        item for item in limits(work, rates).items() if item[0] != "launch" and item[1] > least
    ]
    held = max(causes, key=lambda item: item[1], default=(name, least))
    time = held[1] + rates.launch
    return time, "launch" if rates.launch > held[1] else held[0]


# What `explain()` and `tessera lint` say of it.


def work_in(values: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> Work | None:
    """What a group of a program does, as its executable has it; None where that depends on sizes that are not given."""
    dims = [parse_dim(values[name]) for name in ("flops", "bytes", "blocks", "written")]
    if any(set(dim.symbols) - set(sizes or {}) for dim in dims):
        return None
    flops, moved, blocks, written = (dim.evaluate(sizes or {}) for dim in dims)
    return Work(flops, moved, values["dtype"], blocks, values["has_dots"], written)


def describe_share(work: Work, rates: Rates, unseen: str = "") -> str:
    """The bound of a kernel, and what it takes at least as it was made, which bounds its share; or what is unseen.

    >>> rates = Rates(2, ((1, 10.0),), ((1, 6.0),), (("f32", 100.0),), 1000.0, 0.0, 0.0)
    >>> describe_share(Work(1e6, 1e6, blocks=1), rates)
    'memory bounds it by 100 us (1 MB at 10 GB/s); at least 168 us, at most 60 % of the roofline: too few blocks'
    """
    least, by = bound(work, rates)
    time, cause = predict(work, rates)
    amount = f"{work.bytes / 1e6:.3g} MB" if by == "memory" else f"{work.flops / 1e6:.3g} Mflop"
    rate = f"{(work.bytes if by == 'memory' else work.flops) / least:.3g}"
    unit = "GB/s" if by == "memory" else "Gflop/s"
    why = f": {cause}" if cause != by else ""
    share = f"at least {format_time(time)}, at most {least / time:.0%} of the roofline".replace("%", " %") + why
    return f"{by} bounds it by {format_time(least)} ({amount} at {rate} {unit}); {unseen or share}"


def format_time(nanoseconds: float) -> str:
    """A time as people read it.

    >>> format_time(1234567.0)
    '1.23 ms'
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def describe_shares(
    groups: Sequence[Mapping[str, Any]], rates: Rates, sizes: Mapping[str, int] | None = None
) -> list[tuple[str, str]]:
    """What there is to say of the groups of a program, with their first kernels: nothing without sizes, or work."""
    lines: list[tuple[str, str]] = []
    for values in groups:
        work, unseen = work_in(values, sizes), values.get("unseen", "")
        if work is None or not work.bytes:
            continue
        reason = "its loops are not modeled" if unseen else ""
        if work.is_contraction and math.isinf(rates.compute(work.kind)):
            reason = f"no rate of {work.kind} was measured"
        text = describe_share(work, rates, reason and f"no share predicted: {reason}")
        if unseen == "values":
            text = (
                f"what it moves depends on values, as indices or the fill of a cache: {work.bytes / 1e6:.3g} MB counted"
            )
        lines.append((values["kernels"][0], text))
    return lines
