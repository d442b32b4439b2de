"""Whether a profiler sees a range for each kernel of the library, and for other kernels: by CUPTI, `nsys` or `ncu`.

    python -m benchmarks.gpu ranges [--tool ncu] [--only NAMES] [--out FILE]

CUPTI lists ranges, launches and kernels of this process, which runs all cases one after the other. `nsys` lists the
ranges it saw. `ncu` is run twice for each case: first it lists the kernels that are launched, then, for each of them,
only what is launched inside of the range of that name.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT
from benchmarks.gpu_cases import ATTENTION, LIBRARY, PRODUCTS, ROWS, Case
from benchmarks.gpu_record import absent, chosen, need_gpu, need_tool, options, write
from benchmarks.gpu_timeline import Timeline, library
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.runtime.devices.cuda.driver import driver

CASES: dict[str, Case] = {
    **LIBRARY,
    **{name: PRODUCTS[name] for name in ("nt", "layer")},
    **{name: ATTENTION[name] for name in ("causal", "decode")},
    **{name: ROWS[name] for name in ("softmax", "sort")},
}
TOOLS = ("cupti", "nsys", "ncu")
_METRIC = "gpu__time_duration.sum"


def kernels_of(case: Case, architecture: str = "sm_90a") -> list[str]:
    """The kernels that a case may launch, by name."""
    options_ = Options.of(backend="cuda", features=(architecture,), overrides=case.overrides)
    lowering = lower(case.jitted("cuda").trace(*case.arrays()).tape, options_)
    return [str(target.value("symbol")) for target in lowering.targets]


def own(case: str) -> list[str]:
    """How a case is run under a profiler."""
    return [sys.executable, "-m", "benchmarks.gpu_ranges", "--run", case]


def table(text: str, column: str) -> list[dict[str, str]]:
    """The rows of a table in what a tool prints, which begins with the line that has this column; others are words."""
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if any(column in cells for cells in csv.reader([line]))]
    return list(csv.DictReader(lines[heads[0] :])) if heads else []


def launched(text: str, names: Sequence[str]) -> dict[str, int]:
    """How often each of our kernels stands in what `ncu` prints."""
    found = [row["Kernel Name"].split("(")[0] for row in table(text, "Kernel Name") if row.get("Kernel Name")]
    return {name: found.count(name) for name in names if name in found}


def ranges(text: str) -> list[str]:
    """The ranges in what `nsys stats` prints; a range of no domain begins with a colon there."""
    return [row["Range"].lstrip(":") for row in table(text, "Range") if row.get("Range")]


def by_cupti(names: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Which of the kernels that cases launch are in a range of their name, all in this process."""
    found: dict[str, dict[str, bool]] = {}
    with Timeline() as timeline:
        for name in names:
            CASES[name].run()
            found[name] = timeline.cut().in_ranges()
            print(f"{name:20} {found[name]}", flush=True)
    return found


def by_tool(kind: str, tool: str, names: Sequence[str]) -> dict[str, dict[str, bool]]:
    """The same by a program that runs each case under its eyes."""
    found: dict[str, dict[str, bool]] = {}
    for name in names:
        CASES[name].run()  # compiled, and kept on disk
        kernels = kernels_of(CASES[name], driver().architecture)
        found[name] = (by_ncu if kind == "ncu" else by_nsys)(tool, name, kernels)
        print(f"{name:20} {found[name]}", flush=True)
    return found


def first_tool() -> str | None:
    """The first that is available."""
    if library() is not None:
        return "cupti"
    return next((tool for tool in TOOLS if shutil.which(tool)), None)


def by_ncu(tool: str, case: str, names: Sequence[str]) -> dict[str, bool]:
    """Which of the kernels that a case launches are in a range of their name."""

    def run(*filters: str) -> dict[str, int]:
        words = [tool, "--nvtx", *filters, "--csv", "--clock-control", "none", "--metrics", _METRIC, *own(case)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        return launched(done.stdout, names)

    return {name: bool(run("--nvtx-include", f"{name}/").get(name)) for name in run()}


def by_nsys(tool: str, case: str, names: Sequence[str]) -> dict[str, bool]:
    """The same by the list of ranges; which kernels are launched is in the list of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        report = str(Path(folder) / "report")
        profile = [tool, "profile", "--trace=cuda,nvtx", "--force-overwrite=true", f"--output={report}", *own(case)]
        subprocess.run(profile, cwd=ROOT, capture_output=True, check=False)
        texts: list[str] = []
        for kind in ("nvtx_pushpop_sum", "cuda_gpu_kern_sum"):
            words = [tool, "stats", f"--report={kind}", "--format=csv", f"{report}.nsys-rep"]
            texts.append(subprocess.run(words, capture_output=True, text=True, check=False).stdout)
    seen = ranges(texts[0])
    kernels = [row["Name"].split("(")[0] for row in table(texts[1], "Name") if row.get("Name")]
    return {name: name in seen for name in names if name in kernels}


def record_of(tool: str, rows: dict[str, dict[str, bool]]) -> dict[str, Any]:
    """The record but for where it was made; a case of which no kernel was seen says nothing good."""
    missing = [case for case, seen in rows.items() if not seen or not all(seen.values())]
    listed = [{"case": case, "is_library": case in LIBRARY, "ranges": seen} for case, seen in rows.items()]
    return {"tool": tool, "is_complete": not missing, "missing": missing, "rows": listed}


def main() -> None:
    """The command line; `--run` is how it calls itself under a profiler."""
    parser = options("ranges", __doc__)
    parser.add_argument("--tool", choices=TOOLS, default=None, help="the profiler; the first that is there by default")
    parser.add_argument("--run", default="", help="run this case here")
    asked = parser.parse_args()
    if asked.run:
        CASES[asked.run].run()
        return
    names = chosen(asked.only, list(CASES), parser)
    need_gpu()
    kind = asked.tool or first_tool()
    if kind is None:
        absent("there is no CUPTI, and neither `nsys` nor `ncu` on the PATH: nothing was measured, and nothing written")
    tools = [] if kind == "cupti" else [need_tool(kind)]
    rows = by_tool(kind, tools[0], names) if tools else by_cupti(names)
    record = record_of(kind, rows)
    write(asked.out, record, tools)
    raise SystemExit(0 if record["is_complete"] else 1)


if __name__ == "__main__":
    main()
