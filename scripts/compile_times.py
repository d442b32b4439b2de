"""Prints what it takes to compile each kernel of each op for a GPU: python scripts/compile_times.py [OP ...].

Seconds are CPU time, so they do not depend on what else it does; the slowest kernels come first.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tessera.backends.nvptx.compile import NvptxCode
from tessera.compiler.compile import lower
from tessera.ir.target.worker import Generator
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.device.cases import OPTIONS, chosen, op_case

ARCHITECTURE = "sm_90a"


def kernels(names: set[str]) -> Iterator[tuple[str, NvptxCode]]:
    """Every op in a few dtypes, or those that are named."""
    for spec, dtype in chosen():
        case = op_case(spec, dtype) if not names or spec.short_name in names else None
        if case is not None:
            code = lower(case.jitted.trace(*case.inputs[0]).tape, OPTIONS).code
            assert isinstance(code, NvptxCode)
            yield f"{spec.short_name} {dtype}", code


def assembled(ptx: bytes) -> float:
    """Seconds of the assembler; 0 where there is none."""
    if assembler() is None:
        return 0.0
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assemble(ptx, ARCHITECTURE)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> None:
    """Print the table."""
    generator = Generator()
    rows: list[tuple[float, float, int, str]] = []
    for name, code in kernels(set(sys.argv[1:])):
        for text in code.texts:
            started = time.process_time()
            ptx, _ = generator.compile(asdict(code.backend.code_target), text)
            rows.append((time.process_time() - started, assembled(ptx), len(ptx), name))
    print("  LLVM  ptxas  bytes of PTX  op")
    for seconds, after, size, name in sorted(rows, key=lambda row: -row[0] - row[1]):
        print(f"{seconds:6.2f} {after:6.2f} {size:13,}  {name}")


if __name__ == "__main__":
    main()
