"""Matmuls whose warps have roles, a producer beside consumers, and those whose consumers copy for themselves.

    python -m benchmarks.gpu roles [--only SIZES] [--out FILE]

All run in one process, interleaved, by events of the device, on the same operands, with the same instructions
(`wgmma`, copies by TMA) in the same blocks and stages, and give the same bits. `producer` is what the compiler takes,
`plain` the same without clusters and with the epilogue after the dots, as `uniform` has it: what is left between the
two is the producer alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_clusters import FORMS, shapes_of
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.tile.typed_ops import DotOp, ForOp

SIZES: dict[str, tuple[str, tuple[int, int, int]]] = {
    f"{form}-{size}": (form, (size, size, size)) for form in ("nt", "nn") for size in (2048, 4096, 8192)
}
WGMMA = {"matrix.instruction": "wgmma"}
VARIANTS: dict[str, dict[str, Any]] = {
    "producer": WGMMA,
    "plain": {**WGMMA, "matrix.epilogue": "after", "matrix.multicast": "never"},
    "uniform": {**WGMMA, "matrix.roles": "uniform"},
    "producer again": WGMMA,
}


def facts_of(form: str, size: Sequence[int], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The roles of the kernels of a matmul, the instructions of their dots, and their blocks; nothing runs for that."""
    element = np.zeros((), ml_dtypes.bfloat16)
    arrays = [np.broadcast_to(element, shape) for shape in shapes_of(form, size)]
    asked = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    kernels = lower(ts.jit(FORMS[form]).trace(*arrays).tape, asked).kernels
    dots = [op for kernel in kernels for op in kernel.walk() if isinstance(op, DotOp)]
    loops = [op for kernel in kernels for op in kernel.walk() if isinstance(op, ForOp)]
    return {
        "roles": sorted({str(kernel.value("roles")) for kernel in kernels}),
        "instructions": sorted({f"{op.unit} {' x '.join(map(str, op.instruction))}" for op in dots}),
        "stages": sorted({op.value("stages") for op in loops}),
    }


def judged(times: Mapping[str, float]) -> dict[str, Any]:
    """What follows from seconds of each variant."""
    own = (times["producer"], times["producer again"])
    return {
        "microseconds": {name: round(1e6 * value, 3) for name, value in times.items()},
        "gain": round(times["uniform"] / max(own), 4),
        "plain_gain": round(times["uniform"] / times["plain"], 4),
        "noise": round(abs(own[0] - own[1]) / min(own), 4),
    }


def row_of(torch: Any, name: str) -> dict[str, Any]:
    """One matmul in all variants, checked before it is timed."""
    form, size = SIZES[name]
    x, w = (torch.randn(*shape, device="cuda").bfloat16() for shape in shapes_of(form, size))
    given = [ts.cuda.array(one) for one in (x, w)]
    made = {variant: ts.jit(FORMS[form], backend="cuda", overrides=asked) for variant, asked in VARIANTS.items()}
    wanted = x.double() @ (w.double().T if form == "nt" else w.double())
    first: Any = None
    for variant, function in made.items():
        found = torch.from_dlpack(function(*given))
        first = found if first is None else first
        if not float((found.double() - wanted).norm() / wanted.norm()) < 1e-2 or not bool((found == first).all()):
            raise SystemExit(f"{name} is wrong by {variant}")
    del wanted, first
    runs = {variant: (lambda function=function: function(*given)) for variant, function in made.items()}
    times = timed(torch, runs, 2.0 * size[0] * size[1] * size[2])
    facts = {variant: facts_of(form, size, asked) for variant, asked in VARIANTS.items()}
    return {"form": form, "size": list(size), "variants": facts, **judged(times)}


def main() -> None:
    """The command line."""
    parser = options("roles", __doc__)
    asked = parser.parse_args()
    names = chosen(asked.only, list(SIZES), parser)
    need_gpu()
    torch = need_torch()
    rows: list[dict[str, Any]] = []
    for name in names:
        rows.append(row_of(torch, name))
        shown = (f"{what} {rows[-1][what]:.3f}" for what in ("gain", "plain_gain", "noise"))
        print(f"{name:10} {' '.join(shown)}", flush=True)
    least = {f"least_{what}": min(row[what] for row in rows) for what in ("gain", "plain_gain")}
    write(asked.out, {**least, "rows": rows})


if __name__ == "__main__":
    main()
