"""All measurements on an NVIDIA GPU behind one command: `python -m benchmarks.gpu NAME [options]`.

Each writes a record with date, commit, hardware and versions; `--help` behind its name says what else it takes. Where
there is no GPU, those that need one say so and leave with status 2.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

NAMES = {
    "rows": "kernels that memory bounds, against a copy of the same bytes and against torch",
    "ops": "ordinary ops at sizes that people use, against torch: reductions, order, movement, products",
    "widths": "rows of many widths, static and dynamic, against a copy of the same bytes",
    "symbolic": "programs with symbolic dims against those compiled for the exact sizes: bits and times",
    "products": "matmuls against cuBLAS",
    "attention": "attention against cuDNN",
    "flex": "attention with functions of scores and masks against torch.compile(flex_attention)",
    "ports": "recurrences, long convolutions and fused norms against kernels that were written for them",
    "blocks": "a block of a transformer against torch, op by op",
    "warps": "matmuls and attention on single warps",
    "launch": "what a cached call costs the host, and what it does",
    "maps": "stages that are filled by TMA in a second, and waits that stall",
    "decode": "a decode step of GPT-2-small over caches, against torch eager in a CUDA graph",
    "replay": "what it costs the host to run a captured decode step again",
    "streams": "launches that do not need each other, in one CUDA stream and side by side",
    "ranges": "whether a profiler sees a range for each kernel of the library",
    "clusters": "whether 2-CTA clusters are chosen where they are faster",
    "roles": "a producer warp against consumers that copy for themselves, in one process",
    "train": "training beside torch.compile: steps, first calls, memory, losses, backward ops, AdamW",
    "rates": "bandwidth of HBM, L2 and PCIe, arithmetic, latency and empty launches: what the cost model reads",
    "peaks": "how near matmuls come to the peak of the tensor cores, and at which clock",
    "choices": "what is chosen by itself against what is asked for: schedules, stages, epilogues",
    "compile": "how long it takes to compile each kernel; needs no GPU",
    "sanitize": "memcheck, racecheck and synccheck of every kind of kernel",
}
_MODULES = {"products": "gpu_gemm"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the measurement that the first argument names with the others."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in NAMES:
        wrong = bool(given) and given[0] not in ("-h", "--help")
        lines = [f"there is no measurement `{given[0]}`"] if wrong else []
        lines += ["usage: python -m benchmarks.gpu NAME [options]", *(f"  {name:10} {NAMES[name]}" for name in NAMES)]
        print("\n".join(lines), file=sys.stderr if wrong or not given else sys.stdout)
        raise SystemExit(2 if wrong or not given else 0)
    name, *rest = given
    module = importlib.import_module(f"benchmarks.{_MODULES.get(name, f'gpu_{name}')}")
    sys.argv = [f"python -m benchmarks.gpu {name}", *rest]
    module.main()


if __name__ == "__main__":
    main()
