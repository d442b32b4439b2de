"""Why a kernel is far from its roofline: limits computed from its machine code, or its PTX and its occupancy.

A limit is a time that the code as it is cannot beat, by itself. Of each innermost loop is known what it executes and
how many bytes it stores or touches, or multiply-adds it makes, in an iteration: if all of a kernel's went through it,
it would take so long. The loop that comes nearest to the measured time is the one that the kernel spends it in.
On a CPU `llvm-mca` says how many cycles an iteration takes, and whether its instructions wait for each other; where it
is not installed, an iteration takes as long as its busiest part: front end, vector arithmetic, loads, stores, dividers.
On a GPU it is what schedulers issue, and, by Little's law, the bytes that resident warps can have under way in the
latency of L2: that of memory is longer, so that this too is a time that nothing beats.
"""

from __future__ import annotations

import importlib
import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tessera.api.jit import Jit
from tessera.api.specialization import Specialization
from tessera.backends.nvptx.register_estimate import Resources, resources_in
from tessera.compiler.compile import lower
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.executable import Executable
from tessera.types.rates import Rates, Work

llvm: Any = importlib.import_module("llvmlite.binding")  # it has no types
FRONT_END, ARITHMETIC, LOADS, STORES = 6.0, 2.0, 2.0, 1.0
"""Of a cycle on a Golden Cove or Zen 4 core: instructions, vector operations, loads and stores of whole vectors.

Intel 64 and IA-32 Architectures Optimization Reference Manual, 2.1 (June 2024); older cores do less, which only makes
the limit easier to beat.
"""
DIVISION = {
    ("ps", 64): 16,
    ("ps", 32): 5,
    ("ps", 16): 3,
    ("pd", 64): 16,
    ("pd", 32): 8,
    ("pd", 16): 4,
    ("ss", 4): 3,
    ("sd", 8): 4,
}
"""Cycles of a division or a root, by format and bytes (uops.info, Alder Lake P); of an integer, `INTEGER_DIVISION`."""
INTEGER_DIVISION = 6
GATHERED = 1
"""Cycles of an element that is gathered: a load each."""
_REGISTER = {"zmm": 64, "ymm": 32, "xmm": 16}
_LABEL = re.compile(r"^(\.?[\w$.]+):")
_JUMP = re.compile(r"^j\w+\s+(\.?[\w$.]+)")
_MEMORY = re.compile(r"(-?\w*)\((%\w+)?(?:,\s*%\w+)?")
_STORED = re.compile(r"\)( \{%k\d\})?\s*$")
_SCALAR = {"ss": 4, "sd": 8}
_WIDTH = {"b": 1, "w": 2, "l": 4, "q": 8}


def newest(program: Jit) -> Specialization:
    """The last specialization of a program, on whatever device its arguments are."""
    return [made for one in program._all() for made in one.specializations][-1]  # pyright: ignore[reportPrivateUsage]


@dataclass
class Loop:
    """An innermost loop: what an iteration executes, by what executes it, and the bytes of memory that it touches."""

    instructions: int = 0
    arithmetic: int = 0
    loads: int = 0
    stores: int = 0
    busy: float = 0.0
    """Cycles of dividers and gathers."""
    bytes: int = 0
    stored: int = 0
    flops: int = 0
    """Of multiply-adds, each counted as two."""
    is_vector: bool = False
    calls: list[str] = field(default_factory=list[str])

    def cycles(self) -> tuple[float, str]:
        """Of an iteration, and what takes them."""
        parts = {
            "instructions": self.instructions / FRONT_END,
            "vector arithmetic": self.arithmetic / ARITHMETIC,
            "loads": self.loads / LOADS,
            "stores": self.stores / STORES,
            "divisions and gathers": self.busy,
        }
        name = max(parts, key=lambda one: parts[one])
        return parts[name], name


def loops_in(lines: Sequence[str], jump: re.Pattern[str] = _JUMP) -> Iterator[Sequence[str]]:
    """The innermost loops of a text: from a label to the jump back to it, with no such pair in between."""
    labels: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label.group(1)] = number
        back = jump.search(line)
        if back and back.group(1) in labels:
            spans.append((labels[back.group(1)], number))
    for start, end in spans:
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in spans):
            yield [line for line in lines[start + 1 : end + 1] if not _LABEL.match(line)]


def read_loop(lines: Sequence[str]) -> Loop:
    """What x86 instructions of a loop do, from AT&T syntax."""
    loop = Loop()
    for line in lines:
        name, _, operands = line.partition("\t")
        name = name.strip()
        if not name or name[0] in ".#":
            continue
        loop.instructions += 1
        if name.startswith("call"):
            loop.calls.append(operands.strip())
            continue
        _count(loop, name, operands)
    return loop


def _narrowing(name: str) -> int:
    """How many times smaller what an instruction stores is than its register."""
    parts = re.match(r"vpmovu?s?([qdw])([dwb])", name)
    if parts:
        sizes = {"q": 8, "d": 4, "w": 2, "b": 1}
        return sizes[parts.group(1)] // sizes[parts.group(2)]
    return 2 if name.startswith(("vcvtps2ph", "vcvtneps2bf16")) else 1


def _count(loop: Loop, name: str, operands: str) -> None:
    vectors = [size for kind, size in _REGISTER.items() if f"%{kind}" in operands]
    scalar = _SCALAR.get(name[-2:]) if name.startswith("v") and "cvt" not in name else None
    width = scalar or max(vectors, default=_WIDTH.get(name[-1], 8))
    loop.is_vector |= bool(vectors) and scalar is None
    memory = _MEMORY.search(operands)
    is_move = name.startswith(("vmov", "mov", "lea"))
    if memory and memory.group(2) not in ("%rsp", "%rip") and not name.startswith("lea"):
        is_store = bool(_STORED.search(operands)) and not re.match(r"cmp|test|vucom|vp?gather", name)
        loop.stores, loop.loads = loop.stores + is_store, loop.loads + (not is_store)
        touched = 4 if "broadcast" in name else width // _narrowing(name) if is_store else width
        loop.bytes, loop.stored = loop.bytes + touched, loop.stored + touched * is_store
    if vectors and not is_move:
        loop.arithmetic += 1
    if re.match(r"vf[n]?m(add|sub)", name):
        loop.flops += 2 * width // (8 if name.endswith("d") else 4)
    if "gather" in name:
        loop.busy += GATHERED * width / 4
    elif re.match(r"v?(div|sqrt)", name):
        loop.busy += DIVISION.get((name[-2:], width), INTEGER_DIVISION)
    elif re.match(r"i?div", name):
        loop.busy += INTEGER_DIVISION


@cache
def simulate(text: str) -> tuple[float, str] | None:
    """Cycles of an iteration, and what takes them, as `llvm-mca` has it; None where there is none."""
    tool = shutil.which("llvm-mca")
    if tool is None:
        return None
    # Older tools do not know newer CPUs: then the nearest one that they do.
    for cpu in (llvm.get_host_cpu_name(), "sapphirerapids", "skylake-avx512", "haswell"):
        flags = ["-mtriple=x86_64", f"-mcpu={cpu}", f"-iterations={_ITERATIONS}", "-bottleneck-analysis"]
        done = subprocess.run([tool, *flags], input=text, capture_output=True, text=True, check=False)
        total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        if total is not None:
            break
    else:
        return None
    parts = {name: re.search(rf"{name}:?\s+\[ ([\d.]+)% \]", done.stdout) for name in _PRESSURES}
    shares = {name: float(found.group(1)) for name, found in parts.items() if found}
    busiest = max(shares, key=lambda name: shares[name], default="")
    return int(total.group(1)) / _ITERATIONS, _PRESSURES.get(busiest, "instructions")


_ITERATIONS, _SLACK = 100, 1.5
_PRESSURES = {"Resource Pressure": "execution ports", "Data Dependencies": "instructions that wait for each other"}


def cpu_limits(program: Jit, kernels: Sequence[str], work: Work, rates: Rates, taken: float) -> dict[str, float]:
    """The loop of a kernel's machine code that comes nearest to the time it took, and how long that takes at least."""
    assembly = assembly_of(program, kernels)
    is_wide = any("%zmm" in line for text in assembly for line in text)
    # Two multiply-adds of whole vectors a cycle are what was measured.
    clock = rates.compute("f32") / rates.units / (4 * (16 if is_wide else 8))
    speed = clock * min(rates.units, work.blocks or rates.units)
    found: dict[str, float] = {}
    for lines in (lines for text in assembly for lines in loops_in(text)):
        loop = read_loop(lines)
        cycles, name = simulate("\n".join(lines) + "\n") or loop.cycles()
        kind = "" if loop.is_vector else "no vector instruction; "
        for trips, each in _trips(loop, work):
            found[f"{kind}{name}: {cycles:.3g} cycles for {each}"] = trips * cycles / speed
    # A model of a CPU is not the CPU: what is computed may be some more than what was measured.
    near = {name: value for name, value in found.items() if 0 < value <= _SLACK * taken}
    nearest = min(near, key=lambda name: abs(math.log(near[name] / taken)), default="")
    return {nearest: near[nearest]} if nearest else {}


def _trips(loop: Loop, work: Work) -> Iterator[tuple[float, str]]:
    """How many iterations a loop makes if all of a kernel's work goes through it, by what is counted."""
    if work.is_contraction:
        if loop.flops:
            yield work.flops / loop.flops, f"{loop.flops} flops"
    elif loop.stored and work.written >= work.bytes / 4:
        yield work.written / loop.stored, f"{loop.stored} bytes written"
    elif loop.bytes:
        yield work.bytes / loop.bytes, f"{loop.bytes} bytes"
    if not loop.is_vector and loop.bytes and not work.is_contraction:
        yield work.flops, "one operation"


def assembly_of(program: Jit, kernels: Sequence[str]) -> list[list[str]]:
    """Lines of the machine code of kernels."""
    made = newest(program)
    lowering: Any = lower(made.traced.tape, program.options)
    target = replace(lowering.code.backend.code_target, emit="assembly")
    texts = {one.value("symbol"): text for one, text in zip(lowering.targets, lowering.texts, strict=False)}
    found = [text for symbol, text in texts.items() if symbol.split("__")[0] in kernels]
    return [[line.strip() for line in compile_text(text, target).decode().splitlines()] for text in found]


# A GPU: PTX, and what its kernels have of an SM.

ISSUED = 4
"""Instructions that an SM begins in a cycle: one in each of its quarters (CUDA C++ Programming Guide, 8.2.2)."""
PTX_JUMP = re.compile(r"\bbra(?:\.uni)?\s+(\$?[\w$.]+)")
_PTX_ACCESS = re.compile(r"^(?:@!?%\w+\s+)?(ld|st)\.(?:[\w:]+\.)*?global(\S*)")
_ASYNCHRONOUS = ("cp.async", "wgmma", "mbarrier")


def read_ptx_loop(lines: Sequence[str]) -> Loop:
    """What a thread does in an iteration of a loop of PTX."""
    loop = Loop()
    for line in lines:
        if not line or line[0] in ".{}/":
            continue
        loop.instructions += 1
        access = _PTX_ACCESS.match(line)
        if access:
            width = _ptx_width(access.group(2))
            loop.bytes += width
            if access.group(1) == "ld":
                loop.loads += width
    return loop


def _ptx_width(suffix: str) -> int:
    """Bytes of an access by its suffix, as `.v4.b32`."""
    count = re.search(r"\.v(\d)", suffix)
    bits = re.search(r"\.[bufs](\d+)\b", suffix)
    return (int(count.group(1)) if count else 1) * (int(bits.group(1)) if bits else 32) // 8


def gpu_limits(program: Jit, work: Work, rates: Rates) -> dict[str, float]:
    """What the PTX of a program's kernels takes at least; of several kernels the largest, as all of them run."""
    loaded: Any = newest(program).loaded
    return executable_limits(loaded.executable, work, rates)


def executable_limits(executable: Executable, work: Work, rates: Rates) -> dict[str, float]:
    """The same of an executable for a GPU that need not be here."""
    texts = [code.decode() for code in executable.objects[1:-1] if b".version" in code[:400]]
    resources = resources_in(executable.metadata, executable.objects)
    found: dict[str, float] = {}
    for text, one in zip(texts, resources, strict=False):
        for name, value in _of_ptx(text, one, work, rates).items():
            found[name] = max(value, found.get(name, 0.0))
    return found


def _of_ptx(text: str, resources: Resources, work: Work, rates: Rates) -> dict[str, float]:
    lines = [line.strip() for line in text.splitlines()]
    body = read_ptx_loop(lines)
    loops = [loop for loop in (read_ptx_loop(part) for part in loops_in(lines, PTX_JUMP)) if loop.bytes] or [body]
    cheapest = min(loops, key=lambda loop: loop.instructions / max(loop.bytes, 1))
    units = min(rates.units, work.blocks or rates.units)
    clock = rates.compute("f32") / rates.units / 256
    found: dict[str, float] = {}
    if cheapest.bytes and not any(word in text for word in _ASYNCHRONOUS):
        issued = work.bytes / (32 * cheapest.bytes) * cheapest.instructions
        label = f"instructions: {cheapest.instructions} for {cheapest.bytes} bytes of a thread"
        found[label] = issued / (ISSUED * units * clock)
        most = max(loop.loads for loop in (*loops, body if len(loops) == 1 else loops[0]))
        blocks = -(-(work.blocks or rates.units) // rates.units)
        warps = min(resources.occupancy.warps, blocks * -(-resources.threads // 32))
        if most and rates.latency:
            flying = warps * 32 * most * units
            label = f"latency of L2: {warps} warps a SM, {most} bytes of a thread under way"
            found[label] = work.bytes / (flying / rates.latency)
    if resources.registers.spills:
        found[f"spills: {resources.registers}"] = 0.0
    return found
