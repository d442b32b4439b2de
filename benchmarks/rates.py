"""Micro-tests of a CPU: bandwidth by footprint, arithmetic, latency and what a kernel costs before it does anything.

    python -m benchmarks.rates [--threads N,...] [--out FILE] [--adopt]

The loops are LLVM IR of their own, compiled for this CPU and run by as many threads: they owe nothing to the compiler
that is measured by them. With `--adopt` the figures that the cost model reads (`tessera/types/rates.json`) become
those of this run. The same of a GPU is `python -m benchmarks.gpu rates`.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tessera as ts
from benchmarks.environment import ROOT, describe
from tessera.runtime.timeline import record_timeline
from tessera.types.rates import TABLE, Curve, Rates, rate_at
from tessera.types.settings import usable_cpus

llvm: Any = importlib.import_module("llvmlite.binding")  # it has no types
RESULTS = ROOT / "benchmarks" / "results"
FOOTPRINTS = tuple(1 << power for power in range(14, 30))
"""Bytes that all threads touch together: from a part of one first-level cache to many times the last one."""
_SAMPLE, _ROUNDS, _SWEEPS = 4e-3, 3, 3
"""Seconds that a sample lasts at least, samples and sweeps of which the best counts: others only ever slow it down."""
_CHAINS = 12
"""Sums that do not wait for each other: more than the latency of a multiply-add times those begun in a cycle."""
_FMAS = 1 << 20

_LOOP = """
define void @{name}(ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %n, i64 %reps) {{
entry:
  br label %again
again:
  %r = phi i64 [0, %entry], [%r1, %done]
  call void asm sideeffect "", "~{{memory}}"()
  br label %loop
loop:
  %i = phi i64 [0, %again], [%i1, %loop]
  {carried}
  %pb = getelementptr float, ptr %b, i64 %i
  {body}
  %i1 = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  {end}
  %r1 = add nuw nsw i64 %r, 1
  %again1 = icmp ult i64 %r1, %reps
  br i1 %again1, label %again, label %out
out:
  ret void
}}
"""
_TRIAD = """%pa = getelementptr float, ptr %a, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %pb
  %y = load float, ptr %pc
  %z = fmul float %y, 3.0
  %s = fadd float %x, %z
  store float %s, ptr %pa"""
_COPY = """%pa = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %pb
  store float %x, ptr %pa"""
_READ = "%x = load float, ptr %pb\n  %s1 = fadd {flags} float %s, %x"
_CARRIED = "%s = phi float [0.0, %again], [%s1, %loop]"
_CHASE = "%p = inttoptr i64 %at to ptr\n  %at1 = load i64, ptr %p"
_STARTED = "%at = phi i64 [%start, %again], [%at1, %loop]"


def _text() -> str:
    """All loops, and multiply-adds of `float` and `double` in registers of this CPU."""
    keep = "store float %s1, ptr %a"
    parts = [
        _LOOP.format(name="copy", carried="", body=_COPY, end=""),
        _LOOP.format(name="triad", carried="", body=_TRIAD, end=""),
        _LOOP.format(name="read", carried=_CARRIED, body=_READ.format(flags="reassoc"), end=keep),
        _LOOP.format(name="chain", carried=_CARRIED, body=_READ.format(flags=""), end=keep),
        _LOOP.format(name="chase", carried=_STARTED, body=_CHASE, end="store i64 %at1, ptr %a").replace(
            "entry:\n", "entry:\n  %start = ptrtoint ptr %b to i64\n"
        ),
    ]
    return "\n".join([*parts, _multiply_adds("float", 4), _multiply_adds("double", 8)])


def _multiply_adds(kind: str, size: int) -> str:
    """Chains of multiply-adds whose numbers stay finite, of whole vector registers."""
    vector = f"<{vector_bytes() // size} x {kind}>"
    suffix = f"v{vector_bytes() // size}f{8 * size}"
    numbers = range(_CHAINS)
    phis = [f"%s{k} = phi {vector} [zeroinitializer, %entry], [%t{k}, %loop]" for k in numbers]
    steps = [f"%t{k} = call {vector} @llvm.fma.{suffix}({vector} %s{k}, {vector} %x, {vector} %x)" for k in numbers]
    sums = [f"%u{k} = fadd {vector} {f'%u{k - 1}' if k else 'zeroinitializer'}, %t{k}" for k in numbers]
    lines = "\n  ".join([*phis, "%i = phi i64 [0, %entry], [%i1, %loop]", *steps])
    joined = "\n  ".join(sums)
    return f"""
declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})
define void @fma_{kind}(ptr %a, ptr %b, ptr %c, i64 %n, i64 %reps) {{
entry:
  %x = load {vector}, ptr %b, align {size}
  br label %loop
loop:
  {lines}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %reps
  br i1 %more, label %loop, label %out
out:
  {joined}
  store {vector} %u{_CHAINS - 1}, ptr %a, align {size}
  ret void
}}"""


def vector_bytes() -> int:
    """Bytes of the widest vectors of this CPU."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") else 16


@cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Else LLVM halves the vectors of CPUs that once lowered their clock for wide ones.
    wide = "+prefer-256-bit" if vector_bytes() < 64 else "-prefer-256-bit"
    features = f"{llvm.get_host_cpu_features().flatten()},{wide}"
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3
    )
    module = llvm.parse_assembly(_text())
    module.verify()
    builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    made = llvm.create_mcjit_compiler(module, target)
    made.finalize_object()
    return made


Loop: TypeAlias = Callable[[int, int, int, int, int], None]


def loop_of(name: str) -> Loop:
    """A loop as a function of addresses, elements and repetitions; other threads run beside it."""
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    return kind(_engine().get_function_address(name))


@dataclass(frozen=True)
class Memory:
    """Three arrays that every measurement takes its parts of, so that pages are there before any clock runs."""

    arrays: tuple[Any, ...]

    @staticmethod
    def of(size: int) -> Memory:
        return Memory(tuple(np.ones(size // 4, np.float32) for _ in range(3)))

    def parts(self, elements: int, threads: int) -> list[tuple[int, int, int]]:
        """The addresses that each thread works on."""
        step, (a, b, c) = elements // threads * 4, (array.ctypes.data for array in self.arrays)
        return [(a + k * step, b + k * step, c + k * step) for k in range(threads)]


def seconds_of(name: str, memory: Memory, elements: int, threads: int, pool: ThreadPoolExecutor) -> float:
    """One pass of a loop over so many elements of an array, shared by threads; the best of several samples."""
    run, each = loop_of(name), max(1, elements // threads)
    parts = memory.parts(elements, threads)

    def alone(reps: int) -> float:
        start = time.thread_time()
        run(*parts[0], each, reps)
        return time.thread_time() - start

    def sample(reps: int) -> float:
        if threads == 1:  # its own CPU time: what other processes take of the machine does not count
            return pool.submit(alone, reps).result()
        start = time.perf_counter()
        for started in [pool.submit(run, *part, each, reps) for part in parts]:
            started.result()
        return time.perf_counter() - start

    reps = 1
    while (taken := sample(reps)) < _SAMPLE:
        reps = max(2 * reps, int(reps * _SAMPLE / max(taken, 1e-7)))
    return min(sample(reps) for _ in range(_ROUNDS)) / reps


ARRAYS = {"read": 1, "copy": 2, "triad": 3}
"""Arrays that each loop goes over."""


def bandwidth(memory: Memory, footprint: int, threads: int, pool: ThreadPoolExecutor) -> dict[str, float]:
    """Bytes a nanosecond of each loop over so many bytes in all."""
    found: dict[str, float] = {}
    for name, arrays in ARRAYS.items():
        elements = footprint // (4 * arrays) // (16 * threads) * (16 * threads)
        seconds = seconds_of(name, memory, elements, threads, pool)
        found[name] = elements * 4 * arrays / seconds / 1e9
    return found


def latency(memory: Memory, footprint: int, pool: ThreadPoolExecutor) -> float:
    """Nanoseconds of a load whose address is what the load before it gave, in random order of cache lines."""
    lines = footprint // 64
    order = np.random.default_rng(1).permutation(lines)
    words = memory.arrays[1].view(np.int64)
    words[order * 8] = memory.arrays[1].ctypes.data + 64 * np.roll(order, -1)
    try:
        return seconds_of("chase", memory, lines, 1, pool) / lines * 1e9
    finally:
        memory.arrays[1][:] = 1.0


def flops(memory: Memory, kind: str, threads: int, pool: ThreadPoolExecutor) -> float:
    """Operations a nanosecond of multiply-adds that wait for nothing; each counts as two.

    Each thread is timed by the CPU time that it had: threads share nothing here, and other processes do not count.
    """
    lanes = vector_bytes() // {"float": 4, "double": 8}[kind]
    run = loop_of(f"fma_{kind}")

    def rate(a: int, b: int, c: int) -> float:
        start = time.thread_time()
        run(a, b, c, 1, _FMAS)
        return 2.0 * lanes * _CHAINS * _FMAS / (time.thread_time() - start) / 1e9

    def sample() -> float:
        return sum(one.result() for one in [pool.submit(rate, *part) for part in memory.parts(1024 * threads, threads)])

    return max(sample() for _ in range(_ROUNDS))


def launch() -> float:
    """Nanoseconds that a kernel takes for one element: what is left when there is nothing to do."""
    function: Any = ts.jit(_increment)
    one = ts.array(np.ones(1, np.float32))
    function(one)
    with record_timeline() as timeline:
        for _ in range(200):
            function(one)
    return float(min(span.end - span.start for span in timeline.spans if span.kind == "kernel"))


def _increment(x: Any) -> Any:
    return x + 1.0


def measure(threads: int, say: Callable[[str], None] = print, footprints: Sequence[int] = FOOTPRINTS) -> dict[str, Any]:
    """Everything for one number of threads, as plain values."""
    memory = Memory.of(footprints[-1])
    with ThreadPoolExecutor(threads) as pool:
        # Sweeps apart from each other: what disturbs one footprint for a while spares it in another sweep.
        sweeps = [[bandwidth(memory, footprint, threads, pool) for footprint in footprints] for _ in range(_SWEEPS)]
        curve: list[dict[str, float]] = []
        for footprint, found in zip(footprints, zip(*sweeps, strict=True), strict=True):
            curve.append({"bytes": footprint, **{name: max(one[name] for one in found) for name in ARRAYS}})
            rates = ", ".join(f"{name} {curve[-1][name]:.1f} GB/s" for name in ARRAYS)
            say(f"{threads} threads, {footprint:>10} bytes: {rates}")
        found = {
            "threads": threads,
            "curve": curve,
            "flops": {name: flops(memory, kind, threads, pool) for name, kind in (("f32", "float"), ("f64", "double"))},
            "chain": seconds_of("chain", memory, 1 << 12, 1, pool) / (1 << 12) * 1e9,
            "latency": latency(memory, footprints[-1], pool),
            "launch": launch(),
        }
    plain = {name: value for name, value in found.items() if name != "curve"}
    say(", ".join(f"{name} {value}" for name, value in plain.items()))
    return found


def curve_of(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Curve:
    """The best of some loops at each footprint; what a larger one allows, a smaller one does."""
    found: list[tuple[int, float]] = []
    for row in reversed(rows):
        rate = max(row[name] for name in names)
        found.insert(0, (int(row["bytes"]), max(rate, found[0][1] if found else 0.0)))
    return tuple(found)


def rates_of(found: Sequence[Mapping[str, Any]]) -> Rates:
    """What the model reads of a record: the best loop at each footprint, of one thread and of all of them."""
    one, most = min(found, key=_threads_of), max(found, key=_threads_of)
    each, whole = (curve_of(part["curve"], tuple(ARRAYS)) for part in (one, most))
    return Rates(
        units=int(most["threads"]),
        curve=tuple((size, max(rate, rate_at(each, size))) for size, rate in whole),
        unit_curve=each,
        flops=tuple(most["flops"].items()),
        launch=most["launch"],
        latency=most["latency"],
        chain=most["chain"],
    )


def _threads_of(found: Mapping[str, Any]) -> int:
    return int(found["threads"])


def machine_of(hardware: Mapping[str, Any]) -> str:
    """A machine in words, by what a record says of it."""
    plain = f"{hardware['processor']} ({hardware['model']}, {hardware['cores']} cores)"
    return str(hardware.get("gpu", plain))


def adopt(name: str, rates: Rates, file: Path = TABLE) -> None:
    """Let the cost model read these figures of a machine."""
    table = json.loads(file.read_text(encoding="utf-8"))
    table[name] = rates.as_json()
    file.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rates", description=__doc__)
    parser.add_argument("--threads", default="", help="numbers of threads, separated by commas; 1 and all by itself")
    parser.add_argument("--out", type=Path, default=RESULTS / "rates-cpu.json", help="the file that is written")
    parser.add_argument("--adopt", action="store_true", help="let the cost model read these figures")
    asked = parser.parse_args()
    counts = [int(part) for part in asked.threads.split(",") if part] or sorted({1, usable_cpus()})
    found = [measure(count) for count in counts]
    asked.out.write_text(json.dumps({**describe(), "rows": found}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {asked.out}")
    if asked.adopt:
        adopt("cpu", replace(rates_of(found), machine=machine_of(describe()["hardware"])))


if __name__ == "__main__":
    main()
