"""Ordinary ops on a GPU at sizes that people use, beside torch: reductions, rows, order, movement, products.

    python -m benchmarks.gpu ops [--only sum,topk] [--jobs 8] [--compiled] [--out FILE]

Both sides run in one process, interleaved, timed by events of the device around bursts after a pause; medians. Values
are compared with torch in float64 first, in memory that was full of NaN. `--jobs` compiles in so many processes before,
and `--compiled` adds torch.compile.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tessera as ts
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from benchmarks.harness import time_on_device
from tests.device.poison import poisoned

BF16, F32 = "bfloat16", "float32"
ROUNDS, BURST, PAUSE = 9, 2e-3, 0.01
"""Rounds; seconds of a burst, and of the pause before it."""
BITS = {BF16: 8, F32: 18}
"""Of a result that must be right: of bf16 all, of f32 all but what long sums and products of tf32 size leave."""


@dataclass(frozen=True)
class Work:
    """An op as both sides say it, of `x`, `y` and `z`; their shapes, and other dtypes: `i64:N` has indices below N.

    `exact` says it for float64 where the peer's own function takes none.
    """

    name: str
    ours: str
    peer: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = F32
    others: tuple[tuple[int, str], ...] = ()
    exact: str = ""

    def function(self, text: str, torch: Any) -> Callable[..., Any]:
        """One side, compiled from its text."""
        names = {"ops": ts.ops, "ts": ts, "torch": torch, "nn": torch.nn.functional}
        return eval(f"lambda {', '.join('xyz'[: len(self.shapes)])}: {text}", names)


def product(name: str, m: int, k: int, n: int, *, form: str = "nn", dtype: str = BF16) -> Work:
    """A matmul [m, k] @ [k, n], of transposed operands where `form` says so."""
    shapes = ((k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n))
    text = f"{'x.T' if form[0] == 't' else 'x'} @ {'y.T' if form[1] == 't' else 'y'}"
    return Work(name, text, text, shapes, dtype)


def grouped(experts: int) -> Work:
    """A matmul for each expert, of rows that lie one group behind the other."""
    each, shapes = 16384 // experts, ((16384, 2048), (experts, 2048, 4096), (experts,))
    sizes = f"z * 0 + {each}"
    peer = f"torch._grouped_mm(x, y, ({sizes}).cumsum(0).to(torch.int32))"
    exact = f"torch.cat([rows @ matrix for rows, matrix in zip(x.split({each}), y)])"
    name = f"grouped, {experts} experts"
    return Work(name, f"ops.ragged_dot(x, y, {sizes})", peer, shapes, BF16, ((2, "i64:2"),), exact)


def dequantized(rows: int, bits: int) -> Work:
    """A matmul with weights of 8 bits, or with two of 4 bits in each byte, and a scale for each column."""
    size = 8192
    weights = "y" if bits == 8 else "{}([(y & 15) - 8, y >> 4], 0)"
    ours = f"x @ ops.dequantize({weights.format('ops.concat')}, z, dtype=ts.bf16)"
    peer = f"x @ ({weights.format('torch.cat')}.to(z.dtype) * z).to(x.dtype)"
    shapes = ((rows, size), (size * bits // 8, size), (1, size))
    return Work(f"W{bits}A16, {rows} rows", ours, peer, shapes, BF16, ((1, "i8:127"), (2, F32)))


def softmax(width: int, lines: int, dtype: str = BF16) -> Work:
    """Softmax of rows."""
    return Work(f"softmax {lines}x{width} {dtype}", "ops.softmax(x)", "nn.softmax(x, -1)", ((lines, width),), dtype)


def layernorm(width: int, lines: int) -> Work:
    """Layer norm of rows of bf16."""
    peer = f"nn.layer_norm(x, ({width},), y, z, 1e-5)"
    return Work(
        f"layernorm {lines}x{width}", "ops.layernorm(x, y, z)", peer, ((lines, width), (width,), (width,)), BF16
    )


WORDS = ((1, "i64:50257"),)
PICTURES = ((64, 64, 224, 224),)
EDGES = "[(0, 0), (0, 0), (1, 1), (1, 1)]"
WORKS = [
    Work("mean of all", "ops.mean(x)", "x.mean()", ((1 << 28,),)),
    Work("sum of rows", "x.sum(axis=1)", "x.sum(1)", ((16384, 5000),), BF16),
    Work("sum of columns", "x.sum(axis=0)", "x.sum(0)", ((65536, 1000),)),
    Work("variance of channels", "ops.var(x, (0, 2, 3))", "x.var((0, 2, 3), False)", ((64, 256, 56, 56),)),
    Work("argmax", "ops.argmax(x, 1)", "x.argmax(1)", ((8192, 32000),)),
    softmax(50257, 4096),
    softmax(781, 4096),
    softmax(1024, 65536, F32),
    Work("log_softmax", "ops.log_softmax(x)", "nn.log_softmax(x, -1)", ((8192, 32000),), BF16),
    Work("cross_entropy", "ops.cross_entropy(x, y)", "nn.cross_entropy(x, y)", ((8192, 50257), (8192,)), F32, WORDS),
    layernorm(12288, 8192),
    layernorm(1000, 32768),
    layernorm(4096, 16384),
    Work("cumsum", "ops.cumsum(x, 1)", "x.cumsum(1)", ((8192, 4096),)),
    Work("cumsum of one row", "ops.cumsum(x, 0)", "x.cumsum(0)", ((1 << 25,),)),
    Work("sort", "ops.sort(x, 1)", "x.sort(1)[0]", ((8192, 4096),)),
    Work("topk 50", "ops.topk(x, 50)[0]", "x.topk(50)[0]", ((8192, 32000),), BF16),
    Work(
        "scatter_add",
        "ops.scatter_add(x, y, z)",
        "x.index_add(0, y, z)",
        ((50000, 512), (65536,), (65536, 512)),
        others=((1, "i64:50000"),),
    ),
    Work("pad", f"ops.pad(x, {EDGES})", "nn.pad(x, (1, 1, 1, 1))", PICTURES, BF16),
    Work("max_pool", "ops.max_pool(x, 2)", "nn.max_pool2d(x, 2)", PICTURES, BF16),
    Work("transpose", "x.T + 0", "x.t().contiguous()", ((8192, 8192),), BF16),
    Work("transpose, odd", "x.T + 0", "x.t().contiguous()", ((8191, 4097),)),
    Work("concat", "ops.concat([x, y], 1)", "torch.cat([x, y], 1)", ((16384, 1000),) * 2, BF16),
    Work("embedding", "ops.embedding(x, y)", "nn.embedding(y, x)", ((50257, 1024), (16384,)), BF16, WORDS),
    Work("swiglu", "ops.silu(x) * y", "nn.silu(x) * y", ((16384, 11008),) * 2, BF16),
    Work("add, one row", "x + y", "x + y", ((1, 1600003),) * 2),
    product("gemm 3000 nn", 3000, 3000, 3000),
    product("gemm 3000 tn", 3000, 3000, 3000, form="tn"),
    product("gemm 3000 nt", 3000, 3000, 3000, form="nt"),
    product("gemm 777x4000x5000", 777, 4000, 5000),
    product("gemm 512x512, K 32768", 512, 32768, 512),
    product("gemm tn 768x768, K 8192", 768, 8192, 768, form="tn"),
    product("gemm tn 768x3072, K 8192", 768, 8192, 3072, form="tn"),
    product("gemm f32 2048", 2048, 2048, 2048, dtype=F32),
    product("gemv f32 8192", 1, 8192, 8192, dtype=F32),
    *(dequantized(rows, bits) for bits in (8, 4) for rows in (1, 16, 64)),
    *(grouped(experts) for experts in (8, 16, 64)),
]


def arguments_of(torch: Any, work: Work) -> list[Any]:
    """Fresh random numbers of the dtypes that a work takes."""
    others, found = dict(work.others), list[Any]()
    for at, shape in enumerate(work.shapes):
        kind, _, below = others.get(at, work.dtype).partition(":")
        if below:
            dtype = torch.int8 if kind == "i8" else torch.int64
            low = -int(below) if kind == "i8" else 0
            found.append(torch.randint(low, int(below), shape, device="cuda", dtype=dtype))
        else:
            found.append(torch.randn(*shape, device="cuda").to(getattr(torch, kind)))
    return found


def error_of(torch: Any, work: Work, arguments: Sequence[Any], given: Any) -> float:
    """How far a result is from torch's in float64, relative to it."""
    wide = [one.double() if one.is_floating_point() else one for one in arguments]
    expected = work.function(work.exact or work.peer, torch)(*wide)
    given = given.double()
    if tuple(given.shape) != tuple(expected.shape):
        raise SystemExit(f"{work.name} has the shape {tuple(given.shape)}, not {tuple(expected.shape)}")
    return float((given - expected).norm() / expected.double().norm())


def measure(torch: Any, work: Work, is_compiled: bool) -> dict[str, Any]:
    """One row: checked, then timed by turns."""
    arguments = arguments_of(torch, work)
    function: Any = ts.jit(work.function(work.ours, torch), backend="cuda")
    peer = work.function(work.peer, torch)
    tensors = [ts.cuda.array(one) for one in arguments]
    start = time.perf_counter()
    with poisoned():
        found = torch.from_dlpack(function(*tensors))
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    error = error_of(torch, work, arguments, found)
    if not error < 2.0 ** -BITS[work.dtype]:
        return {"name": work.name, "wrong": error if math.isfinite(error) else str(error)}
    runs: dict[str, Callable[[], Any]] = {
        "tessera": lambda: function(*tensors),
        "torch": lambda: peer(*arguments),
    }
    if is_compiled:
        compiled = torch.compile(peer)
        runs["torch.compile"] = lambda: compiled(*arguments)
    samples = {name: list[float]() for name in runs}
    calls = {name: _calls(torch, run) for name, run in runs.items()}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            time.sleep(PAUSE)
            samples[name].append(1e6 * time_on_device(torch, run, calls[name]))
    medians = {name: statistics.median(one) for name, one in samples.items()}
    best = min(value for name, value in medians.items() if name != "tessera")
    ratio = best / medians["tessera"]
    return {"name": work.name, "us": medians, "ratio": ratio, "error": error, "first_s": seconds, "samples": samples}


def _calls(torch: Any, run: Callable[[], Any]) -> int:
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    return max(1, min(200, round(BURST / max(1e-7, time_on_device(torch, run, 3)))))


def compile_ahead(jobs: int, names: Sequence[str]) -> None:
    """Bring every work into the cache of compiled code, in several processes."""
    parts = [",".join(names[at::jobs]) for at in range(jobs) if names[at::jobs]]
    command = [sys.executable, "-m", "benchmarks.gpu", "ops", "--warm", "--only"]
    for job in [subprocess.Popen([*command, part]) for part in parts]:
        job.wait()


def _parse(names: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = options("ops", __doc__)
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile before anything is timed")
    parser.add_argument("--compiled", action="store_true", help="measure torch.compile too")
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    return given, chosen(given.only, names, parser)


def _show(row: dict[str, Any]) -> None:
    if "wrong" in row:
        print(f"{row['name']:26} WRONG: error {row['wrong']}", flush=True)
        return
    times = "  ".join(f"{name} {value:9.1f} us" for name, value in row["us"].items())
    print(f"{row['name']:26} {times}  {row['ratio']:5.2f}  first call {row['first_s']:.1f} s", flush=True)


def main() -> None:
    """Measure all works, print a table, and write what was found."""
    need_gpu()
    torch = need_torch()
    works = {work.name.replace(",", ""): work for work in WORKS}
    given, names = _parse(list(works))
    if given.warm:
        for name in names:
            work = works[name]
            ts.jit(work.function(work.ours, torch), backend="cuda")(*map(ts.cuda.array, arguments_of(torch, work)))
        return
    if given.jobs > 1:
        compile_ahead(given.jobs, names)
    found = list[dict[str, Any]]()
    for name in names:
        try:
            row = measure(torch, works[name], given.compiled)
        except ts.TesseraError as error:
            row = {"name": name, "wrong": str(error).splitlines()[0]}
        _show(row)
        found.append(row)
        torch.cuda.empty_cache()
    ratios = [row["ratio"] for row in found if "ratio" in row]
    print(f"{len(ratios)} of {len(found)} right; geometric mean {statistics.geometric_mean(ratios or [1.0]):.2f}")
    write(given.out, {"rows": found})


if __name__ == "__main__":
    main()
