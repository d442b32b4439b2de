"""A block of the transformer of the examples on an NVIDIA GPU, in bf16, beside the same in torch, op by op.

    python -m benchmarks.gpu blocks [--only NAMES] [--out FILE]

Each size is first compared with float64 on fresh random numbers. Then bursts of both are interleaved, with a pause
before each so that they see the same clocks, and medians are compared.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tessera as ts
from benchmarks.gpu_gemm import timed
from benchmarks.gpu_record import chosen, need_gpu, options, write
from examples.transformer import block, random_layer

SIZES = {"many": (8, 1024, 2048, 16), "long": (1, 4096, 2048, 16), "ragged": (3, 777, 1024, 16)}
"""Sequences, positions, width and heads."""


def by_torch(torch: Any, p: Mapping[str, Any], heads: int) -> Callable[[Any], Any]:
    """The block as a user of torch writes it; of f64 it is what both are compared with."""
    functional = torch.nn.functional

    def run(x: Any) -> Any:
        batch, length, width = x.shape
        rows = functional.layer_norm(x, (width,), p["norm1"], p["shift1"]) @ p["qkv"] + p["qkv_bias"]
        q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2) for part in rows.split(width, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + (mixed @ p["out"] + p["out_bias"])
        rows = functional.layer_norm(x, (width,), p["norm2"], p["shift2"]) @ p["up"] + p["up_bias"]
        return x + (functional.gelu(rows, approximate="tanh") @ p["down"] + p["down_bias"])

    return run


def block_row(torch: Any, name: str) -> dict[str, Any]:
    """One size: times of both, and how far each is from float64."""
    batch, length, width, heads = SIZES[name]
    layer: Any = random_layer(width, np.random.default_rng(0))
    parameters = {
        one: torch.tensor(np.asarray(value), device="cuda").bfloat16() for one, value in layer._asdict().items()
    }
    x = torch.randn(batch, length, width, device="cuda").bfloat16()
    given, weights = ts.cuda.array(x), type(layer)(**{one: ts.cuda.array(value) for one, value in parameters.items()})

    def one(x: Any, p: Any) -> Any:
        return block(x, p, heads)

    jitted, peer = ts.jit(one, backend="cuda"), by_torch(torch, parameters, heads)
    exact = by_torch(torch, {name: value.double() for name, value in parameters.items()}, heads)(x[:1].double())
    found = {"tessera": torch.from_dlpack(jitted(given, weights)), "torch": peer(x)}
    errors = {who: float(((made[:1].double() - exact).norm() / exact.norm()).item()) for who, made in found.items()}
    flops = batch * length * (24.0 * width + 2.0 * length) * width
    times = timed(torch, {"tessera": lambda: jitted(given, weights), "torch": lambda: peer(x)}, flops)
    rates = {who: flops / seconds / 1e12 for who, seconds in times.items()}
    microseconds = {who: seconds * 1e6 for who, seconds in times.items()}
    ratio = times["torch"] / times["tessera"]
    return {
        "name": name, "size": list(SIZES[name]), "errors": errors, "teraflops": rates, "microseconds": microseconds,
        "ratio": ratio,
    }  # fmt: skip


def main() -> None:
    """The command line."""
    parser = options("blocks", __doc__)
    asked = parser.parse_args()
    wanted = chosen(asked.only, list(SIZES), parser)
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    rows: list[dict[str, Any]] = []
    for name in wanted:
        rows.append(block_row(torch, name))
        times, errors = rows[-1]["microseconds"], rows[-1]["errors"]
        print(
            f"{name:8} {'x'.join(map(str, rows[-1]['size'])):18} tessera {times['tessera']:.0f} us, torch "
            f"{times['torch']:.0f} us, ratio {rows[-1]['ratio']:.3f}, errors {errors['tessera']:.1e} and "
            f"{errors['torch']:.1e}",
            flush=True,
        )
    write(asked.out, {"rows": rows})


if __name__ == "__main__":
    main()
