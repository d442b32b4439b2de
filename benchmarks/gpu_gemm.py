"""Matmuls on an NVIDIA GPU, through `ts.jit`, beside cuBLAS in one process.

    PYTHONPATH=. python3 -m benchmarks.gpu_gemm [--quick] [--jobs N] [--out FILE]

Each function is first compared with float64 on fresh random numbers, and run again for the same bits. Then bursts of
contenders are interleaved, with a pause before each so that all see the same clocks, and medians are compared.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.environment import describe
from benchmarks.gpu_record import need_gpu
from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.api.compilation import load
from tessera.ir.base.tape import Tape

Run = Callable[[], Any]
_PAUSE, _ROUNDS, _HELD = 0.05, 7, 3_000_000

SQUARE = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (8192, 14336, 4096))
RAGGED = ((4097, 4097, 4097), (4095, 4100, 4104), (3001, 5003, 2008))
SKINNY = ((16, 4096, 4096), (16, 8192, 8192), (128, 8192, 8192), (256, 4096, 4096), (512, 4096, 4096))
UNNAMED = (
    *((6144, 6144, 6144), (5120, 2560, 10240), (1024, 8192, 4096), (3072, 12288, 3072), (768, 3072, 16384)),
    *((1536, 4608, 2048), (3840, 3840, 3840), (2304, 9216, 1536), (640, 5120, 5120), (1792, 7168, 3584)),
    *((12288, 1536, 4096), (384, 6144, 6144), (96, 11008, 4096), (32, 5120, 13824), (2560, 1280, 20480)),
)


def nt(x: Any, w: Any) -> Any:
    """Rows by rows."""
    return ts.ops.matmul(x, ts.ops.transpose(w))


def nn(x: Any, w: Any) -> Any:
    """Rows by columns."""
    return ts.ops.matmul(x, w)


def gelu(x: Any, w: Any, b: Any) -> Any:
    """A layer: its epilogue stays in the kernel."""
    return ts.ops.gelu(ts.ops.matmul(x, ts.ops.transpose(w)) + b, approximate="tanh")


def full(q: Any, k: Any, v: Any) -> Any:
    """Attention to all keys."""
    return ts.ops.attention(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    """Attention to the keys so far."""
    return ts.ops.attention(q, k, v, causal=True)


@kernel.schedule(Schedule(block=(128, 256, 64), warps=8))
def matmul(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16]) -> KTile["M", "N", bf16]:
    """A matmul in the kernel language."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return tile.cast(acc, bf16)


def by_hand(x: Any, w: Any) -> Any:
    """A matmul that a user wrote as a kernel."""
    return matmul(x, w)


def e4m3(x: Any, w: Any, s: Any, t: Any) -> Any:
    """8-bit floats, summed in f32, with a scale for each operand."""
    return ts.ops.cast(ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32) * (s * t), ts.bf16)


def f16(x: Any, w: Any) -> Any:
    """The other float of two bytes."""
    return ts.ops.matmul(x, ts.ops.transpose(w))


def i8(x: Any, w: Any) -> Any:
    """Integers of 8 bits, summed in 32."""
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32)


def f32_by_tf32(x: Any, w: Any) -> Any:
    """Matmuls of f32 that is rounded to tf32 first, which takes kernels of its own."""
    return ts.ops.matmul(x, ts.ops.transpose(w))


FUNCTIONS: dict[str, Any] = {
    function.__name__: ts.jit(function, backend="cuda")
    for function in (nt, nn, gelu, by_hand, e4m3, f16, i8, full, causal)
}
FUNCTIONS["tf32"] = ts.jit(f32_by_tf32, backend="cuda", policy=ts.compute(ts.tf32))


def timed(torch: Any, runs: dict[str, Run], flops: float, rounds: int = _ROUNDS) -> dict[str, float]:
    """Median seconds of one run for each contender; bursts are interleaved."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    count = max(3, min(20, int(6e-3 / (flops / 7e14) + 1)))
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(_PAUSE)
            for _ in range(2):
                run()
            # The stream is held until all is in it: what is compared is the device's time.
            torch.cuda.synchronize()
            torch.cuda._sleep(_HELD)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(count):
                run()
            end.record()
            torch.cuda.synchronize()
            found[name].append(begin.elapsed_time(end) / count / 1e3)
    return {name: statistics.median(times) for name, times in found.items()}


def error_of(torch: Any, made: Any, wanted: Any) -> float:
    """The distance to the wanted values, in parts of their size; NaN where any element is."""
    given = torch.from_dlpack(made).double()
    return float(((given - wanted).norm() / wanted.norm()).item())


def shared(torch: Any, value: Any) -> Any:
    """A tensor of torch as one of ours; 8-bit floats go as what they are to the compiler, by their bits."""
    if value.dtype != torch.float8_e4m3fn:
        return ts.cuda.array(value)
    return ts.cuda.array(value.view(torch.uint8).cpu().numpy().view(ml_dtypes.float8_e4m3fn))


def sides(torch: Any, form: str, size: Sequence[int]) -> tuple[Any, Any, list[Any]]:
    """Random operands of a matmul, and what else its function takes."""
    m, n, k = size
    shapes = (m, k), ((k, n) if form in ("nn", "by_hand") else (n, k))
    if form == "i8":
        x, w = (torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8) for shape in shapes)
        return x, w, []
    names = {"e4m3": "float8_e4m3fn", "f16": "float16", "tf32": "float32"}
    x, w = (torch.randn(*shape, device="cuda").to(getattr(torch, names.get(form, "bfloat16"))) for shape in shapes)
    if form == "gelu":
        return x, w, [torch.randn(n, device="cuda").bfloat16()]
    return x, w, [torch.full((), scale, device="cuda") for scale in (0.5, 2.0)] if form == "e4m3" else []


_DTYPES: dict[str, Any] = {"e4m3": ml_dtypes.float8_e4m3fn, "f16": np.float16, "i8": np.int8, "tf32": np.float32}


def compiled(form: str, size: Sequence[int]) -> str:
    """Compile a matmul into the cache of programs, and say where it came from; nothing runs, nor takes memory."""
    m, n, k = size
    shapes = [(m, k), (k, n) if form in ("nn", "by_hand") else (n, k), *[(n,)] * (form == "gelu")]
    element = np.zeros((), _DTYPES.get(form, ml_dtypes.bfloat16))
    given = [np.broadcast_to(element, shape) for shape in shapes]
    given += [np.zeros((), np.float32)] * (2 if form == "e4m3" else 0)
    jitted = FUNCTIONS[form]
    tape: Tape = jitted.trace(*given).tape
    return load(tape, jitted.options)[1].source


def compile_ahead(plan: Sequence[tuple[str, Sequence[int]]], jobs: int) -> None:
    """Compile all matmuls of a plan, so many at a time: a GPU that waits for a compiler is time that somebody paid."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, *zip(*plan, strict=True)))


def peer_of(torch: Any, form: str, x: Any, right: Any, more: Sequence[Any]) -> Run:
    """The same matmul by cuBLAS."""
    if form == "gelu":
        return lambda: torch._addmm_activation(more[0], x, right, use_gelu=True)
    if form == "e4m3":
        return lambda: torch._scaled_mm(x, right, *more, out_dtype=torch.bfloat16, use_fast_accum=False)
    if form == "i8":
        return lambda: torch._int_mm(x, right)
    out = torch.empty(len(x), right.shape[1], device="cuda", dtype=x.dtype)
    torch.backends.cuda.matmul.allow_tf32 = form == "tf32"
    return lambda: torch.mm(x, right, out=out)


def product_row(torch: Any, form: str, size: Sequence[int]) -> dict[str, Any]:
    """One matmul beside cuBLAS."""
    (m, n, k), jitted = size, FUNCTIONS[form]
    x, w, more = sides(torch, form, size)
    right = w if form in ("nn", "by_hand") else w.T
    given = [shared(torch, value) for value in (x, w, *more)]
    wanted = x.double() @ right.double()
    if form == "gelu":
        wanted = torch.nn.functional.gelu((wanted.bfloat16() + more[0]).double(), approximate="tanh")
    first = jitted(*given)
    again = jitted(*given)
    torch.cuda.synchronize()
    same = bool((torch.from_dlpack(first) == torch.from_dlpack(again)).all())
    error = error_of(torch, first, wanted)
    del wanted, first, again
    flops = 2.0 * m * n * k
    runs = {"tessera": lambda: jitted(*given), "torch": peer_of(torch, form, x, right, more)}
    times = timed(torch, runs, flops)
    return {
        "form": form,
        "size": list(size),
        "error": error,
        "same_bits": same,
        **{name: flops / seconds / 1e12 for name, seconds in times.items()},
        "ratio": times["torch"] / times["tessera"],
    }


def show(row: dict[str, Any]) -> dict[str, Any]:
    """Print a row as it comes."""
    print(
        f"{row['form']:7} {'x'.join(map(str, row['size'])):18} {row['tessera']:7.1f} {row['torch']:7.1f} TFLOP/s "
        f"ratio {row['ratio']:.3f} error {row['error']:.2e} {'' if row['same_bits'] else 'BITS DIFFER'}",
        flush=True,
    )
    return row


def product_plan() -> list[tuple[str, tuple[int, int, int]]]:
    """All rows of matmuls."""
    plan = [("nt", size) for size in (*SQUARE, *RAGGED, *SKINNY, *UNNAMED)]
    plan += [("nn", size) for size in (*SQUARE, *SKINNY)]
    plan += [(form, size) for form in ("gelu", "by_hand", "e4m3") for size in SQUARE[1:3]]
    return plan + [(form, SQUARE[1]) for form in ("f16", "i8", "tf32")]


def write_down(torch: Any, rows: Sequence[dict[str, Any]], out: str) -> None:
    """All rows to a file, with the machine and the versions they were measured on; nothing where it has no name."""
    facts = describe()
    facts["hardware"]["gpu"] = torch.cuda.get_device_name()
    facts["versions"]["cuda"] = torch.version.cuda
    facts["versions"]["cudnn"] = torch.backends.cudnn.version()
    if out:
        Path(out).write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


def main() -> None:
    """Run all rows and write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", default="")
    parser.add_argument("--jobs", type=int, default=1, help="products to compile at a time, before the first is timed")
    asked = parser.parse_args()
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer, not a dependency
    plan = product_plan()
    if asked.quick:
        plan = [("nt", SQUARE[1]), ("nn", SQUARE[1]), ("gelu", SQUARE[1]), ("nt", RAGGED[0]), ("nt", SKINNY[3])]
    if asked.jobs > 1:
        compile_ahead(plan, asked.jobs)
    rows = [show(product_row(torch, form, size)) for form, size in plan]
    write_down(torch, rows, asked.out)


if __name__ == "__main__":
    main()
