"""How long it takes to compile each kernel for a GPU: to target IR, to PTX, and to machine code by `ptxas`.

    python -m benchmarks.gpu compile [--architecture sm_90a] [--only NAMES] [--out FILE]

Nothing is taken from a cache. No GPU is needed; without `ptxas` the last step is left out, and the record says so.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from typing import Any

from benchmarks.gpu_cases import CASES, Case
from benchmarks.gpu_record import chosen, options, write
from tessera.backends.nvptx.compile import NvptxCode
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble, assembler


def rows_of(name: str, case: Case, architecture: str) -> list[dict[str, Any]]:
    """The kernels of a case, each with the seconds of every step; lowering is that of the whole case."""
    options_ = Options.of(backend="cuda", features=(architecture,), overrides=case.overrides)
    tape = case.jitted("cuda").trace(*case.arrays()).tape
    begun = time.perf_counter()
    lowering = lower(tape, options_)
    lowered = time.perf_counter() - begun
    parts = lowering.code
    assert isinstance(parts, NvptxCode)
    found: list[dict[str, Any]] = []
    for code in parts.codes:
        begun = time.perf_counter()
        ptx = compile_text(code.text, parts.backend.code_target)
        generated = time.perf_counter() - begun
        begun = time.perf_counter()
        size = len(assemble(ptx, parts.backend.machine.cpu)) if assembler() else 0
        assembled = time.perf_counter() - begun
        found.append(
            {
                "case": name,
                "kernel": code.name,
                "lower_seconds": round(lowered, 4),
                "ptx_seconds": round(generated, 4),
                "assemble_seconds": round(assembled, 4) if size else None,
                "ptx_lines": ptx.count(b"\n"),
                "code_bytes": size or None,
            }
        )
    return found


def main() -> None:
    """The command line."""
    parser = options("compile", __doc__)
    parser.add_argument("--architecture", default="sm_90a", choices=sorted(GPUS), help="what is compiled for")
    asked = parser.parse_args()
    names = chosen(asked.only, list(CASES), parser)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        # A folder of its own, so that nothing is found that was made before; one compilation loads all that is loaded.
        os.environ["TESSERA_CACHE_DIR"] = folder
        rows_of("warm", replace(CASES["joined"], shapes=((5, 7),)), asked.architecture)
        for name in names:
            rows += rows_of(name, CASES[name], asked.architecture)
            for row in rows[-1:]:
                print(
                    f"{name:20} lower {row['lower_seconds']:6.3f} s  ptx {row['ptx_seconds']:6.3f} s  "
                    f"machine code {row['assemble_seconds'] or 0:6.3f} s  {row['ptx_lines']} lines",
                    flush=True,
                )
    steps = ("lower_seconds", "ptx_seconds", "assemble_seconds")
    longest = {step: max(rows, key=lambda row: row[step] or 0.0)["case"] for step in steps}
    write(asked.out, {"architecture": asked.architecture, "longest": longest, "rows": rows})


if __name__ == "__main__":
    main()
