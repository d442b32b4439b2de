"""Whether 2-CTA clusters are chosen where they are faster: matmuls with clusters, without, and as the compiler chooses.

    python -m benchmarks.gpu clusters [--only SIZES] [--out FILE]

All three run in one process, interleaved, by events of the device. A choice is right where it is no slower than the
better of both by more than what two measurements of one kernel differ in, which is measured too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_gemm import nn, nt, timed
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from tessera.compiler.compile import lower
from tessera.compiler.options import Options

FORMS = {"nt": nt, "nn": nn}
SIZES: dict[str, tuple[str, tuple[int, int, int]]] = {
    f"{form}-{m}x{n}x{k}": (form, (m, n, k))
    for form, sizes in {
        "nt": (
            *((1024, 1024, 1024), (2048, 2048, 2048), (3072, 3072, 3072), (4096, 4096, 4096), (8192, 8192, 8192)),
            *((4096, 4096, 512), (8192, 14336, 4096), (1024, 8192, 4096), (12288, 1536, 4096), (6144, 6144, 6144)),
        ),
        "nn": ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (5120, 2560, 10240)),
    }.items()
    for m, n, k in sizes
}
VARIANTS = {
    "clusters": {"matrix.multicast": "always"},
    "single": {"matrix.multicast": "never"},
    "model": {},
    "model again": {},
}


def shapes_of(form: str, size: Sequence[int]) -> list[tuple[int, int]]:
    """The shapes of both operands."""
    m, n, k = size
    return [(m, k), (n, k) if form == "nt" else (k, n)]


def has_clusters(form: str, size: Sequence[int], overrides: Mapping[str, Any]) -> bool:
    """Whether the kernel of a matmul has clusters; nothing runs for that."""
    # The shapes and dtype are all that counts, and an array that repeats one element takes no memory.
    element = np.zeros((), ml_dtypes.bfloat16)
    arrays = [np.broadcast_to(element, shape) for shape in shapes_of(form, size)]
    options_ = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    targets = lower(ts.jit(FORMS[form]).trace(*arrays).tape, options_).targets
    return any(op.name == "ttarget.matrix_kernel" and op.value("multicast") for op in targets)


def judged(times: Mapping[str, float], model_clusters: bool, can_cluster: bool) -> dict[str, Any]:
    """What follows from seconds of each variant: whether the choice is the better one, or as good as one can tell."""
    noise = abs(times["model"] - times["model again"]) / min(times["model"], times["model again"])
    best = min(times["clusters"], times["single"])
    own = times["clusters" if model_clusters else "single"]
    return {
        "microseconds": {name: round(1e6 * value, 3) for name, value in times.items()},
        "chosen": "clusters" if model_clusters else "single",
        "can_cluster": can_cluster,
        "gain_of_clusters": round(times["single"] / times["clusters"], 4),
        "lost": round(own / best - 1, 4),
        "noise": round(noise, 4),
        "is_right": own <= best * (1 + max(noise, 0.005)),
    }


def row_of(torch: Any, name: str) -> dict[str, Any]:
    """One matmul in all variants."""
    form, size = SIZES[name]
    x, w = (torch.randn(*shape, device="cuda").bfloat16() for shape in shapes_of(form, size))
    given = [ts.cuda.array(one) for one in (x, w)]
    made = {
        variant: ts.jit(FORMS[form], backend="cuda", overrides=overrides) for variant, overrides in VARIANTS.items()
    }
    wanted = x.double() @ (w.double().T if form == "nt" else w.double())

    def run(function: Any) -> Any:
        return function(*given)

    with ThreadPoolExecutor() as pool:  # kernels are compiled side by side
        results: list[Any] = list(pool.map(run, made.values()))
    for variant, result in zip(made, results, strict=True):
        found = torch.from_dlpack(result).double()
        if not float((found - wanted).norm() / wanted.norm()) < 1e-2:
            raise SystemExit(f"{name} is wrong by {variant}")
    del wanted
    runs = {variant: (lambda function=function: function(*given)) for variant, function in made.items()}
    times = timed(torch, runs, 2.0 * size[0] * size[1] * size[2])
    facts = [has_clusters(form, size, overrides) for overrides in ({}, VARIANTS["clusters"])]
    return {"form": form, "size": list(size), **judged(times, *facts)}


def record_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record but for where it was made."""
    wrong = [f"{row['form']} {row['size']}" for row in rows if not row["is_right"]]
    most = max((row["lost"] for row in rows), default=0.0)
    return {"right": len(rows) - len(wrong), "of": len(rows), "wrong": wrong, "most_lost": most, "rows": list(rows)}


def main() -> None:
    """The command line."""
    parser = options("clusters", __doc__)
    asked = parser.parse_args()
    names = chosen(asked.only, list(SIZES), parser)
    need_gpu()
    torch = need_torch()
    rows: list[dict[str, Any]] = []
    for name in names:
        rows.append(row_of(torch, name))
        row = rows[-1]
        print(f"{name:24} {row['chosen']:7} gain {row['gain_of_clusters']:.3f} lost {row['lost']:.3f}", flush=True)
    write(asked.out, record_of(rows))


if __name__ == "__main__":
    main()
