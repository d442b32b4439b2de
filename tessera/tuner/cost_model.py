"""How long a plan should take: flops, bytes at each level of memory, occupancy, waves and launches at measured rates.

The compiler says what each kernel of a plan does (`KernelWork`), micro-benchmarks how fast the machine is (`Rates`).
Each thing that a kernel needs bounds its time by itself; they overlap, but not wholly, so the bounds are joined by a
norm in which the largest counts most. What is left out of it, a correction learns from trials (`learned`), and for
that a prediction carries what it was made of as features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tessera.tuner.records import Plan
from tessera.types.frozen import frozen
from tessera.types.machine import Multiprocessor, Usage, occupancy
from tessera.types.rates import Rates, Work

OVERLAP = 4.0
"""The exponent of the norm that joins bounds: two equal ones take 19 % longer than one, and a tenth adds nothing.

A choice of the model, not a measurement; the learned correction has every bound as a feature and may weigh it anew.
"""


@frozen
class KernelWork:
    """What a kernel of a plan does: operations, bytes at each level, and how it is cut into blocks.

    Bytes of `memory` are those that must come from and go to the memory of the device, `l2` those that multiprocessors
    ask for (a tile that several blocks read counts for each), `shared` those that go through shared memory or a
    core's own cache, `link` those of a link between devices. `in_flight` are the bytes that one block has asked for
    while it waits, `steps` the loads of a block that wait for one another.
    """

    flops: float = 0.0
    kind: str = "f32"
    memory: float = 0.0
    l2: float = 0.0
    shared: float = 0.0
    link: float = 0.0
    blocks: int = 1
    usage: Usage | None = None
    in_flight: float = 0.0
    steps: int = 1
    launches: int = 1

    @staticmethod
    def of(work: Work) -> KernelWork:
        """What the roofline knows of a kernel, as this model reads it."""
        # Additions and multiplications that stay apart use half of what multiply-adds can.
        flops = work.flops if work.is_contraction else 2 * work.flops
        return KernelWork(flops, work.kind, work.bytes, blocks=work.blocks or 1)


@frozen
class Hardware:
    """A machine for this model: its rates, what a multiprocessor holds, and rates of levels that a curve does not have.

    `shared` and `link` are bytes a nanosecond, of one unit and of the device; 0, where nobody measured, bounds nothing.
    """

    rates: Rates
    multiprocessor: Multiprocessor | None = None
    shared: float = 0.0
    link: float = 0.0

    @property
    def l2(self) -> float:
        """Bytes a nanosecond of what all units share before memory: the best of the curve."""
        return max(rate for _, rate in self.rates.curve)


@frozen
class Prediction:
    """Nanoseconds by the model, what bounds them, and what the prediction was made of."""

    time: float
    features: tuple[tuple[str, float], ...] = ()
    """Logarithms of bounds, waves and such; names are the same for all predictions of a program."""
    bound: str = ""

    @staticmethod
    def of(time: float, features: Mapping[str, float] | None = None, bound: str = "") -> Prediction:
        """With features as a mapping."""
        return Prediction(time, tuple(sorted((features or {}).items())), bound)


Predict: TypeAlias = Callable[[Plan], "Prediction | None"]
"""Predicts a plan without running anything; None where it cannot say."""


def blocks_at_once(work: KernelWork, hardware: Hardware) -> int:
    """Blocks that one unit runs at a time: 1 on a CPU, as occupancy has it on a GPU, 0 where not even one fits."""
    if hardware.multiprocessor is None or work.usage is None:
        return 1
    return occupancy(hardware.multiprocessor, work.usage).blocks


def bounds(work: KernelWork, hardware: Hardware) -> dict[str, float]:
    """Nanoseconds of a kernel by each thing that it needs, launches apart; infinite where no block of it fits."""
    rates, held = hardware.rates, blocks_at_once(work, hardware)
    if held == 0:
        return {"occupancy": math.inf}
    units = max(1, min(rates.units, work.blocks))
    # The unit with the most blocks ends last: of 133 blocks on 132 units one unit has two of them.
    uneven = -(-work.blocks // rates.units) * rates.units / work.blocks
    busy = min(uneven, rates.units)
    found = {
        "compute": work.flops / rates.compute(work.kind) * busy if work.flops else 0.0,
        "memory": work.memory / rates.bandwidth(work.memory, units) if work.memory else 0.0,
        "l2": work.l2 / (hardware.l2 * units / rates.units) if work.l2 else 0.0,
        "shared": work.shared / (hardware.shared * rates.units) * busy if hardware.shared else 0.0,
        "link": work.link / hardware.link if hardware.link else 0.0,
    }
    found["latency"] = _waiting(work, rates, held)
    return found


def _waiting(work: KernelWork, rates: Rates, held: int) -> float:
    """Nanoseconds that loads take by waiting: waves of blocks, each with loads one after another.

    A load brings at most what a block has in flight, so many bytes take so many of them at least.
    """
    loads = work.steps
    if work.in_flight:
        loads = max(loads, math.ceil((work.l2 or work.memory) / work.blocks / work.in_flight))
    return waves(work, rates, held) * loads * rates.latency


def waves(work: KernelWork, rates: Rates, held: int) -> int:
    """How many times the machine is filled with blocks, the last perhaps in part."""
    return -(-work.blocks // max(1, rates.units * held))


def predict_kernel(work: KernelWork, hardware: Hardware) -> Prediction:
    """The time of one kernel, its launches included."""
    found = bounds(work, hardware)
    slowest = max(found, key=lambda name: found[name])
    if math.isinf(found[slowest]):
        return Prediction.of(math.inf, {}, "no block of it fits a multiprocessor")
    inside = found[slowest] * sum((value / found[slowest]) ** OVERLAP for value in found.values()) ** (1 / OVERLAP)
    launch = work.launches * hardware.rates.launch
    time = inside + launch
    held = blocks_at_once(work, hardware)
    features = {f"log {name}": _log(value) for name, value in found.items()}
    features |= {
        "log launch": _log(launch),
        "log waves": math.log(waves(work, hardware.rates, held)),
        "log blocks": math.log(max(1, work.blocks)),
        "log steps": math.log(max(1, work.steps)),
        "log warps": math.log(max(1, _warps(work, hardware))),
    }
    return Prediction.of(time, features, "launch" if launch > inside else slowest)


def _warps(work: KernelWork, hardware: Hardware) -> int:
    """Warps that a multiprocessor holds of it."""
    if hardware.multiprocessor is None or work.usage is None:
        return 1
    return occupancy(hardware.multiprocessor, work.usage).warps


def _log(nanoseconds: float) -> float:
    """A feature of a time: nothing below a nanosecond tells plans apart."""
    return math.log(max(1.0, nanoseconds))


def predict_program(kernels: Sequence[KernelWork], hardware: Hardware) -> Prediction:
    """The time of kernels one after another; features are those of the kernels, weighed by their share of the time."""
    found = [predict_kernel(work, hardware) for work in kernels]
    time = sum(one.time for one in found)
    if not found or math.isinf(time):
        impossible = next((one.bound for one in found if math.isinf(one.time)), "")
        return Prediction.of(time, {}, impossible)
    features: dict[str, float] = {}
    for one in found:
        for name, value in one.features:
            features[name] = features.get(name, 0.0) + value * one.time / time
    features["log kernels"] = math.log(len(found))
    return Prediction.of(time, features, max(found, key=lambda one: one.time).bound)
