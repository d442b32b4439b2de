"""How a plan is measured: warmed up, in rounds with the safe plan, caches flushed before each run, bits compared.

A round runs both plans once, in random order: what slows a machine for a while slows both, and neither always has
the cache that the other left. A plan that is hopeless after a few rounds is not measured to the end.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self
from typing import Protocol as TypingProtocol

import numpy as np

from tessera.diagnostics.error import TesseraError
from tessera.tuner.records import Compiled, Plan, Trial, median_ratio
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.runtime.devices.cuda.nvml import Meter

LEAST_ROUNDS = 10
"""Runs that a plan must have to be compared with others: the protocol's."""
CACHE_BYTES = 64 << 20
"""Bytes that are written to evict a CPU's caches, where its last one is not known to be larger."""
SAME_CODE = "the same code as"
"""How the reason begins of a plan that was not measured because another, or the safe one, gives its code."""


@frozen
class Protocol:
    """How often a plan runs, and when it is left."""

    warmups: int = 3
    rounds: int = LEAST_ROUNDS
    hopeless: float = 2.0
    """A plan that takes so many times as long as the safe one is left."""
    hopeless_after: int = 3
    """Rounds before one is called hopeless."""
    seed: int = 0


class Workload(TypingProtocol):
    """What is tuned: something that can be compiled under a plan, with arguments to run it on."""

    def compile(self, plan: Plan) -> Compiled:
        """Compile it, ready to run; raises a TesseraError that says why a plan cannot be carried out."""
        ...

    def prepare(self, plan: Plan) -> str | None:
        """Compile it and keep the code where `compile` of another process finds it; needs no device.

        A digest of the code, where it knows one: a plan with the code of another is not measured again.
        """
        ...

    def flush(self) -> None:
        """Evict what a run left in caches."""
        ...

    def close(self) -> None:
        """Let memory go."""
        ...


class Measurer(TypingProtocol):
    """Whoever measures plans: in this process, or in children of it."""

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Compile plans, beginning none after so many seconds; the reasons of those that cannot be."""
        ...

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """Measure a plan; one that fails gives a trial with the reason."""
        ...


class Resumed:
    """A measurer that knows trials of an earlier search: what they measured in full is not measured first again."""

    def __init__(self, measurer: Measurer, trials: Sequence[Trial]) -> None:
        self._measurer, self._known = measurer, {trial.plan: trial for trial in trials if trial.samples}

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """As the other does: what is known may be measured again to confirm it."""
        return self._measurer.prepare(plans, seconds)

    def measure(self, plan: Plan, rounds: int) -> Trial:
        """What is known of a plan, once: who measures it again wants to know more."""
        known = self._known.pop(plan, None)
        is_whole = known is not None and (known.reason or len(known.samples) >= rounds)
        return known if known is not None and is_whole else self._measurer.measure(plan, rounds)


def interleave(
    candidate: Compiled, safe: Compiled, rounds: int, protocol: Protocol, flush: Callable[[], None], seed: str = ""
) -> tuple[list[float], list[float], str]:
    """Nanoseconds of both plans by round, and why it ended early, where it did."""
    rng = random.Random(f"{protocol.seed}:{seed}")
    for _ in range(protocol.warmups):
        candidate.run()
        safe.run()
    samples: list[float] = []
    baseline: list[float] = []
    for number in range(1, rounds + 1):
        order = [(candidate, samples), (safe, baseline)]
        rng.shuffle(order)
        for one, times in order:
            flush()
            times.append(one.run())
        if number == protocol.hopeless_after and number < rounds:
            slower = statistics.median(own / other for own, other in zip(samples, baseline, strict=True))
            if slower >= protocol.hopeless:
                return samples, baseline, f"{slower:.2f} times the safe plan's time after {number} rounds"
    return samples, baseline, ""


class InProcess:
    """Measures plans in this process: for functions that no import path names; a crash takes the process with it."""

    def __init__(self, workload: Workload, protocol: Protocol | None = None, *, is_distinct: bool = False) -> None:
        """`is_distinct` leaves plans whose code is that of a plan before them: they would differ by noise alone."""
        self._workload, self._is_distinct = workload, is_distinct
        self._protocol = protocol or Protocol()
        self._safe: Compiled | None = None
        self._bits = ""
        self._codes: dict[str, Plan] = {}
        """The first plan of each code, by its digest."""

    def prepare(self, plans: Sequence[Plan], seconds: float | None = None) -> Mapping[Plan, str]:
        """Nothing: each plan is compiled when it is measured."""
        del plans, seconds
        return {}

    @property
    def safe_bits(self) -> str:
        """The hash of what the safe plan gives, which is compiled where it was not yet."""
        self._start()
        return self._bits

    def time_safe(self) -> float:
        """Seconds that a run of the safe plan takes, with all that is around it."""
        safe = self._start()
        return host_time(safe.run) / 1e9

    def _start(self) -> Compiled:
        if self._safe is None:
            self._safe = self._workload.compile(Plan())
            self._bits = self._safe.bits()
            self._codes[_code_of(self._safe)] = Plan()
        return self._safe

    def measure(self, plan: Plan, rounds: int = LEAST_ROUNDS) -> Trial:
        """Compile a plan, compare its bits with the safe plan's, and run both; with other bits it never runs."""
        safe = self._start()
        try:
            candidate = self._workload.compile(plan)
        except TesseraError as error:
            return Trial(plan, reason=f"not compiled: {first_line(error)}")
        try:
            same = self._codes.setdefault(_code_of(candidate) or plan.digest, plan)
            if same != plan and self._is_distinct:
                return Trial(plan, reason=f"{SAME_CODE} {same}")
            return self._compare(candidate, safe, plan, rounds)
        except TesseraError as error:
            return Trial(plan, reason=f"failed: {first_line(error)}")
        finally:
            candidate.close()

    def _compare(self, candidate: Compiled, safe: Compiled, plan: Plan, rounds: int) -> Trial:
        bits = candidate.bits()
        if bits != self._bits:
            return Trial(
                plan, bits=bits, reason=f"its bits differ from the safe plan's: {bits[:12]}, {self._bits[:12]}"
            )
        meter: Meter | None = getattr(self._workload, "meter", _no_meter)()
        with meter or nullcontext():
            samples, baseline, reason = interleave(
                candidate, safe, rounds, self._protocol, self._workload.flush, plan.digest
            )
        readings = () if meter is None else tuple(sorted(meter.readings.columns.items()))
        return Trial(plan, tuple(samples), tuple(baseline), bits=bits, reason=reason, readings=readings)

    def close(self) -> None:
        """Let the safe plan and the workload go."""
        if self._safe is not None:
            self._safe.close()
            self._safe = None
        self._workload.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _no_meter() -> None:
    """Of workloads that know of none: `meter` is no part of what each must have."""


def _code_of(compiled: Compiled) -> str:
    """A digest of the code, of those that have one: `code` is no part of what every workload must know."""
    return str(getattr(compiled, "code", ""))


def first_line(error: BaseException) -> str:
    """What an error says, on one line: with its code, or the name of its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, TesseraError) and lines:
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def relative_time(trial: Trial) -> float:
    """What fraction of the safe plan's time a plan takes, or its nanoseconds where there is nothing to compare with."""
    if trial.baseline:
        return 1.0 / median_ratio(trial)
    if trial.time is None:
        raise ValueError(f"{trial.plan} was not measured: {trial.reason}")
    return trial.time


def join(one: Trial, other: Trial) -> Trial:
    """Two measurements of one plan as one of all rounds; where the later failed, its reason stays."""
    samples, baseline = one.samples + other.samples, one.baseline + other.baseline
    return replace(other, samples=samples, baseline=baseline, predicted=other.predicted or one.predicted)


class CacheEviction:
    """Evicts a CPU's caches: writes more than they hold."""

    def __init__(self, size: int = CACHE_BYTES) -> None:
        self._array = np.zeros(size // 8, np.int64)

    def __call__(self) -> None:
        """Write all of it."""
        self._array += 1


class DeviceEviction:
    """Evicts the L2 of a GPU: fills twice the bytes that it holds, in the current stream, without waiting for it.

    That takes longer than the host takes to launch what follows, so events around a run see no gap of the host.
    """

    def __init__(self) -> None:
        from tessera.runtime.devices.cuda.driver import driver  # noqa: PLC0415 - a CPU's tuning loads no driver
        from tessera.runtime.devices.cuda.memory import POOL  # noqa: PLC0415
        from tessera.runtime.devices.cuda.streams import current_stream  # noqa: PLC0415

        self._driver, self._stream = driver(), current_stream()
        self.size = 2 * self._driver.attribute("l2")
        self._blocks = POOL.free_list(self.size, self._stream)
        self._address = self._blocks.take()

    def __call__(self) -> None:
        """Fill all of it."""
        address, words = ctypes.c_uint64(self._address), ctypes.c_size_t(self.size // 4)
        self._driver.call("cuMemsetD32Async", address, ctypes.c_uint(0), words, ctypes.c_void_p(self._stream))

    def close(self) -> None:
        """Let the memory go."""
        if self._address:
            self._blocks.free.append(self._address)
            self._address = 0


def host_time(run: Callable[[], object]) -> float:
    """Nanoseconds of a call by this machine's clock."""
    start = time.perf_counter_ns()
    run()
    return float(time.perf_counter_ns() - start)


def device_time(run: Callable[[], object]) -> float:
    """Nanoseconds on the device of what a call puts into the current stream, by events around it."""
    from tessera.runtime.devices.cuda.streams import Event  # noqa: PLC0415 - a CPU's tuning loads no driver

    before, after = Event(), Event()
    before.record()
    run()
    after.record().synchronize()
    return after.milliseconds_since(before) * 1e6


def capture_calls(run: Callable[[], object]) -> Callable[[], object]:
    """What calls put into the current stream as a CUDA graph, which the host launches by one call; nothing runs yet."""
    from tessera.runtime.devices.cuda.streams import capture  # noqa: PLC0415 - a CPU's tuning loads no driver

    with capture() as graph:
        run()
    return graph.replay
