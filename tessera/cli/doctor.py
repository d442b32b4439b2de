"""`tessera doctor`: what this machine can do, and which parts of Tessera can use it."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.compiler.backend import machines
from tessera.diagnostics.error import InternalError, TesseraError
from tessera.runtime.cache import Store
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.settings import VARIABLES, Settings, unknown_variables

# What the cpu backend looks at, widest first; the rest of a CPU's flags would only hide these.
FEATURES = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx512f", "avx2", "fma", "f16c")
REQUIRED = ("numpy", "ml_dtypes", "xdsl", "llvmlite", "islpy", "typer", "rich")
OPTIONAL = {"torch": "to share tensors with it, and by benchmarks", "jax": "by benchmarks"}


@frozen
class Finding:
    """One line of the report: a name, what was found, and whether it stands in the way."""

    section: str
    name: str
    value: str
    is_problem: bool = False


def examine() -> list[Finding]:
    """Everything the report says, in order."""
    return [
        *examine_cpu(),
        *examine_runtime(),
        *examine_variables(),
        *examine_dependencies(),
        *examine_gpu(),
        *examine_line(),
    ]


def examine_cpu() -> list[Finding]:
    """The CPU, its vectors and its caches."""
    info = _cpu_info()
    flags = set(info.get("flags", "").split())
    found = [name for name in FEATURES if name in flags]
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    width = 512 if "avx512f" in flags else 256 if "avx2" in flags else 128
    return [
        Finding("cpu", "model", f"{info.get('model name', platform.processor() or 'unknown')} ({platform.machine()})"),
        Finding("cpu", "cores", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        Finding("cpu", "features", " ".join(found) or "none of " + " ".join(FEATURES)),
        Finding("cpu", "vector width", f"{width} bits, {width // 32} lanes of f32"),
        Finding("cpu", "caches", _caches()),
        Finding("cpu", "memory", f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"),
        Finding(
            "cpu",
            "cpu backend",
            "ready" if is_x86 and {"avx2", "fma"} <= flags else "needs an x86-64 CPU with AVX2 and FMA",
            is_problem=not (is_x86 and {"avx2", "fma"} <= flags),
        ),
    ]


def examine_runtime() -> list[Finding]:
    """Threads, the cache folder and what it holds, large pages."""
    found = [Finding("runtime", "python", f"{platform.python_version()} ({sys.executable})")]
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    found.append(Finding("runtime", "huge pages", pages.read_text().strip() if pages.exists() else "unknown"))
    try:
        settings = Settings.from_environment()
    except TesseraError as error:
        return [*found, Finding("runtime", "settings", error.message, is_problem=True)]
    source = "TESSERA_NUM_THREADS" if os.environ.get("TESSERA_NUM_THREADS") else "one per usable CPU"
    folder = settings.cache_dir
    if _is_writable(folder):
        cache = _examine_cache(Store(folder, settings.cache_bytes))
    else:
        cache = Finding("runtime", "cache", f"{folder} is not writable", is_problem=True)
    return [*found, Finding("runtime", "threads", f"{settings.threads} ({source})"), cache]


def _examine_cache(store: Store) -> Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            usage = store.usage()
    except (TesseraError, RuntimeWarning) as error:
        return Finding("runtime", "cache", getattr(error, "message", str(error)), is_problem=True)
    held = f"{usage.entries} entries, {usage.bytes / 2**20:.1f} of {store.limit / 2**20:.0f} MiB"
    return Finding("runtime", "cache", f"{store.folder} ({held})")


def examine_variables() -> list[Finding]:
    """The variables of ours that are set, and those that look like ours and are none."""
    known = [Finding("variables", name, os.environ[name]) for name in sorted(VARIABLES) if name in os.environ]
    strange = [Finding("variables", name, "no variable of this name is read", True) for name in unknown_variables()]
    return [*known, *strange] or [Finding("variables", "set", "none (`tessera explain T0705` lists them)")]


def examine_line() -> list[Finding]:
    """Whether a program really goes through: traced, compiled anew, loaded and run."""
    start = time.perf_counter()
    try:
        value = _trial()
    except (ImportError, OSError, TesseraError, InternalError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return [Finding("trial", "compile and run", text, is_problem=True)]
    is_right = value == 3.0
    text = f"a small program, in {time.perf_counter() - start:.1f} s" if is_right else f"1 + 2 gave {value}"
    return [Finding("trial", "compile and run", text, is_problem=not is_right)]


def _trial() -> float:
    """1 + 2 by native code that no cache had."""
    from tessera.api.eager import array  # noqa: PLC0415 - where something is missing, the others are still reported
    from tessera.api.jit import jit  # noqa: PLC0415

    def add(x: Any, y: Any) -> Any:
        return x + y

    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("TESSERA_CACHE_DIR")
        os.environ["TESSERA_CACHE_DIR"] = folder
        try:
            return jit(add)(array([1.0]), array([2.0])).tolist()[0]
        finally:
            if before is None:
                del os.environ["TESSERA_CACHE_DIR"]
            else:
                os.environ["TESSERA_CACHE_DIR"] = before


def examine_dependencies() -> list[Finding]:
    """Versions, read from metadata: nothing is imported."""
    findings = [Finding("dependencies", "tessera", _version("tessera") or "not installed, run from a checkout")]
    for name in REQUIRED:
        findings.append(Finding("dependencies", name, _version(name) or "missing", not _version(name)))
    for name, use in OPTIONAL.items():
        findings.append(Finding("dependencies", name, _version(name) or f"not installed (wanted only {use})"))
    return findings


def examine_gpu() -> list[Finding]:
    """NVIDIA and AMD devices, as the kernel's drivers show them."""
    nvidia = sorted(Path("/dev").glob("nvidia[0-9]*"))
    driver = Path("/proc/driver/nvidia/version")
    amd = Path("/dev/kfd").exists()
    text = driver.read_text().splitlines()[0] if driver.exists() else "no driver"
    return [
        Finding("gpu", "nvidia", f"{len(nvidia)} device(s), {text}" if nvidia else "none"),
        _cuda_backend(),
        Finding("gpu", "amd", "present, and not used" if amd else "none"),
        Finding("gpu", "compiles for", ", ".join(_machine_text(machine) for machine in machines().values())),
    ]


def _cuda_backend() -> Finding:
    """What `backend="cuda"` would run on, as the driver says itself."""
    from tessera.runtime.devices.cuda.driver import driver  # noqa: PLC0415 - loads a library where there is one

    try:
        found = driver()
        major, minor = divmod(found.version // 10, 100)
        text = f"ready: {found.name}, {found.architecture}, driver for CUDA {major}.{minor}"
    except TesseraError as error:
        text = f"compiles here and does not run: {error.message}"
    return Finding("gpu", "cuda backend", text)


def _machine_text(machine: Machine) -> str:
    return machine.cpu if machine.is_proven else f"{machine.cpu} (never executed)"


def show(*, as_json: bool) -> int:
    """Print the report; 1 when something stands in the way of compiling for this machine, else 0."""
    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_tables(findings)
    return 1 if any(finding.is_problem for finding in findings) else 0


def _print_tables(findings: list[Finding]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    section = ""
    for finding in findings:
        mark = Text("problem", style="red") if finding.is_problem else ""
        # As Text, because square brackets in a value are not markup.
        table.add_row(finding.section if finding.section != section else "", finding.name, Text(finding.value), mark)
        section = finding.section
    console.print(table)
    problems = [finding for finding in findings if finding.is_problem]
    console.print(f"\n{len(problems)} problem(s)" if problems else "\nready to compile for this machine")


def _cpu_info() -> Mapping[str, str]:
    """The first CPU's entries in /proc/cpuinfo; empty where there is none."""
    file = Path("/proc/cpuinfo")
    first = file.read_text().split("\n\n")[0] if file.exists() else ""
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _caches() -> str:
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    kinds = {"Data": "d", "Instruction": "i", "Unified": ""}
    parts = [[(folder / name).read_text().strip() for name in ("level", "type", "size")] for folder in folders]
    return ", ".join(f"L{level}{kinds.get(kind, '')} {size}" for level, kind, size in parts) or "unknown"


def _is_writable(folder: Path) -> bool:
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return True
    except OSError:
        return False


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
