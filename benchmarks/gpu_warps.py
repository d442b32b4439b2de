"""Matmuls and attention on `mma.sync`, the kernels of sm_80, beside cuBLAS and FlashAttention 2.

    PYTHONPATH=. python3 -m benchmarks.gpu_warps [--out FILE]

On a Hopper GPU this is not how matmuls are done: cuBLAS has matmuls of warpgroups there, and single warps reach
some six tenths of them at best. It says how far the kernels for older machines are from what their units can do.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import tessera as ts
from benchmarks.environment import describe
from benchmarks.gpu_gemm import FUNCTIONS, causal, full, nn, nt, product_row, show, timed
from benchmarks.gpu_record import need_gpu

UNITS = {"matrix.instruction": "mma.sync"}
BLOCKS = {**UNITS, "contraction.block": (128, 128, 64)}
"""The block that machines with single warps choose for these sizes."""
PRODUCTS = (("nt", nt, (4096, 4096, 4096)), ("nn", nn, (4096, 4096, 4096)), ("nt", nt, (8192, 8192, 8192)))
HEADS = (4, 16, 4096, 128)


def attention(torch: Any, form: Any) -> dict[str, Any]:
    """Attention beside FlashAttention 2, which runs on the same units."""
    backend = importlib.import_module("torch.nn.attention")
    q, k, v = (torch.randn(HEADS, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    given = [ts.cuda.array(one) for one in (q, k, v)]
    jitted: Any = ts.jit(form, backend="cuda", overrides=UNITS)

    def peer() -> Any:
        with backend.sdpa_kernel(backend.SDPBackend.FLASH_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=form is causal)

    scores = q.double() @ k.double().transpose(-1, -2) / HEADS[-1] ** 0.5
    if form is causal:
        scores.masked_fill_(torch.ones_like(scores[0, 0]).triu(1).bool(), -torch.inf)
    wanted = torch.softmax(scores, -1) @ v.double()
    made, again = (torch.from_dlpack(jitted(*given)) for _ in range(2))
    same = bool((made == again).all())
    error = float(((made.double() - wanted).norm() / wanted.norm()).item())
    del scores, wanted, made, again
    flops = 4.0 * HEADS[0] * HEADS[1] * HEADS[2] ** 2 * HEADS[3] / (2 if form is causal else 1)
    times = timed(torch, {"tessera": lambda: jitted(*given), "torch": peer}, flops)
    return {
        "form": form.__name__,
        "size": list(HEADS),
        "error": error,
        "same_bits": same,
        **{name: flops / seconds / 1e12 for name, seconds in times.items()},
        "ratio": times["torch"] / times["tessera"],
    }


def main() -> None:
    """Run all rows and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    FUNCTIONS.update({name: ts.jit(form, backend="cuda", overrides=BLOCKS) for name, form, _ in PRODUCTS})
    rows = [show(product_row(torch, name, size)) for name, _, size in PRODUCTS]
    rows += [show(attention(torch, form)) for form in (full, causal)]
    facts = describe()
    facts["hardware"]["gpu"] = torch.cuda.get_device_name()
    facts["versions"]["cuda"] = torch.version.cuda
    if asked.out:
        Path(asked.out).write_text(json.dumps({**facts, "units": "mma.sync", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
