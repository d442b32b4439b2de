"""`tessera doctor`: what this machine can do, and which parts of Tessera can use it."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.types.machine import GPUS, Machine
from tessera.types.settings import Settings

# What the x86 backend looks at, widest first; the rest of a CPU's flags would only hide these.
FEATURES = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx512f", "avx2", "fma", "f16c")
REQUIRED = ("numpy", "ml_dtypes", "xdsl", "llvmlite", "islpy", "typer", "rich")
OPTIONAL = ("cuda-bindings", "mpi4py", "torch", "jax", "onnx")


@dataclass(frozen=True)
class Finding:
    """One line of the report: a name, what was found, and whether it stands in the way."""

    section: str
    name: str
    value: str
    is_problem: bool = False


def examine() -> list[Finding]:
    """Everything the report says, in order."""
    return [*examine_cpu(), *examine_runtime(), *examine_dependencies(), *examine_gpu()]


def examine_cpu() -> list[Finding]:
    """The processor, its vectors and its caches."""
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
            "x86 backend",
            "ready" if is_x86 and {"avx2", "fma"} <= flags else "needs an x86-64 CPU with AVX2 and FMA",
            is_problem=not (is_x86 and {"avx2", "fma"} <= flags),
        ),
    ]


def examine_runtime() -> list[Finding]:
    """Threads, the cache folder, large pages."""
    settings = Settings.from_environment()
    source = "TESSERA_NUM_THREADS" if os.environ.get("TESSERA_NUM_THREADS") else "one per usable CPU"
    folder, is_writable = settings.cache_dir, _is_writable(settings.cache_dir)
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return [
        Finding("runtime", "python", f"{platform.python_version()} ({sys.executable})"),
        Finding("runtime", "threads", f"{settings.threads} ({source})"),
        Finding("runtime", "cache", f"{folder}{'' if is_writable else ' is not writable'}", not is_writable),
        Finding("runtime", "huge pages", pages.read_text().strip() if pages.exists() else "unknown"),
    ]


def examine_dependencies() -> list[Finding]:
    """Versions, read from metadata: nothing is imported."""
    findings = [Finding("dependencies", "tessera", _version("tessera") or "not installed, run from a checkout")]
    for name in REQUIRED:
        findings.append(Finding("dependencies", name, _version(name) or "missing", not _version(name)))
    findings += [Finding("dependencies", name, _version(name) or "not installed (optional)") for name in OPTIONAL]
    return findings


def examine_gpu() -> list[Finding]:
    """NVIDIA and AMD devices, as the kernel's drivers show them."""
    nvidia = sorted(Path("/dev").glob("nvidia[0-9]*"))
    driver = Path("/proc/driver/nvidia/version")
    amd = Path("/dev/kfd").exists()
    text = driver.read_text().splitlines()[0] if driver.exists() else "no driver"
    return [
        Finding("gpu", "nvidia", f"{len(nvidia)} device(s), {text}" if nvidia else "none"),
        Finding("gpu", "amd", "present" if amd else "none"),
        Finding("gpu", "compiles for", ", ".join(_machine_text(machine) for machine in GPUS.values())),
    ]


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
    """The first processor's entries in /proc/cpuinfo; empty where there is none."""
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
