"""Matmuls whose warps have roles, a producer beside consumers, and those in which every warp copies and multiplies.

    python -m benchmarks.gpu roles [--only SIZES] [--out FILE]

Both run in one process, interleaved, by events of the device, on the same operands. Those with roles are on `wgmma`,
those without on `mma.sync`, each in the block that the compiler would take for it: there is no kernel on `wgmma`
without a producer to compare with, as one thread starts all of its copies. So the gain is that of roles together with
the instruction that they are made for.
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
from benchmarks.gpu_warps import BLOCKS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options

SIZES: dict[str, tuple[str, tuple[int, int, int]]] = {
    f"{form}-{size}": (form, (size, size, size)) for form in ("nt", "nn") for size in (2048, 4096, 8192)
}
VARIANTS: dict[str, dict[str, Any]] = {
    "producer": {"matrix.instruction": "wgmma"},
    "uniform": BLOCKS,
    "producer again": {"matrix.instruction": "wgmma"},
}


def roles_of(form: str, size: Sequence[int], overrides: Mapping[str, Any]) -> set[str]:
    """The roles of the kernels of a matmul; nothing runs for that."""
    element = np.zeros((), ml_dtypes.bfloat16)
    arrays = [np.broadcast_to(element, shape) for shape in shapes_of(form, size)]
    asked = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    return {str(kernel.value("roles")) for kernel in lower(ts.jit(FORMS[form]).trace(*arrays).tape, asked).kernels}


def judged(times: Mapping[str, float]) -> dict[str, Any]:
    """What follows from seconds of each variant."""
    own = (times["producer"], times["producer again"])
    return {
        "microseconds": {name: round(1e6 * value, 3) for name, value in times.items()},
        "gain": round(times["uniform"] / max(own), 4),
        "noise": round(abs(own[0] - own[1]) / min(own), 4),
    }


def row_of(torch: Any, name: str) -> dict[str, Any]:
    """One matmul in all variants, checked before it is timed."""
    form, size = SIZES[name]
    x, w = (torch.randn(*shape, device="cuda").bfloat16() for shape in shapes_of(form, size))
    given = [ts.cuda.array(one) for one in (x, w)]
    made = {variant: ts.jit(FORMS[form], backend="cuda", overrides=asked) for variant, asked in VARIANTS.items()}
    wanted = x.double() @ (w.double().T if form == "nt" else w.double())
    for variant, function in made.items():
        found = torch.from_dlpack(function(*given)).double()
        if not float((found - wanted).norm() / wanted.norm()) < 1e-2:
            raise SystemExit(f"{name} is wrong by {variant}")
    del wanted
    runs = {variant: (lambda function=function: function(*given)) for variant, function in made.items()}
    times = timed(torch, runs, 2.0 * size[0] * size[1] * size[2])
    facts = {variant: sorted(roles_of(form, size, asked)) for variant, asked in VARIANTS.items()}
    return {"form": form, "size": list(size), "roles": facts, **judged(times)}


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
        print(f"{name:10} gain {rows[-1]['gain']:.3f} noise {rows[-1]['noise']:.3f}", flush=True)
    write(asked.out, {"least_gain": min(row["gain"] for row in rows), "rows": rows})


if __name__ == "__main__":
    main()
