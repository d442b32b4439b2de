"""Two programs at every level: an MLP and a transformer block compiled, run at several sizes, checked, shown, timed."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table

import tessera as ts
from examples.transformer import Layer, block, random_layer

ops = ts.ops
LEVELS = {
    "graph": "what is computed",
    "schedule": "what is fused, and in which order it runs",
    "tile": "how each kernel walks over its tiles",
    "target": "which machine instructions a tile becomes",
    "llvm": "the text that becomes machine code",
}


def mlp(
    x: ts.Tensor["B", "I", ts.f32],
    w1: ts.Tensor["I", "F", ts.f32],
    b1: ts.Tensor["F", ts.f32],
    w2: ts.Tensor["F", "O", ts.f32],
    b2: ts.Tensor["O", ts.f32],
) -> Any:
    """Two matmuls, gelu between them, softmax at the end; all five dims are symbolic."""
    return ops.softmax(ops.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2)


def transformer_block(x: ts.Tensor["B", "S", "D", ts.f32], layer: Layer) -> Any:
    """Layer norm, causal attention with 8 heads, layer norm, MLP, with both residuals."""
    return block(x, layer, 8)


def mlp_arguments(batch: int, D: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """Activations, then weights and biases."""

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(shape[0]))

    return rng.standard_normal((batch, D), np.float32), normal(D, 4 * D), normal(4 * D), normal(4 * D, 100), normal(100)


def compile_and_check(console: Console, name: str, function: Any, calls: Sequence[tuple[Any, ...]]) -> Any:
    """Compile at the first call, run every call, and compare each with the reference backend."""
    jitted: Any = ts.jit(function)
    reference = ts.jit(function, backend="reference")
    start = time.perf_counter()
    jitted(*calls[0])
    console.print(f"[bold]{name}[/] compiled and run in {time.perf_counter() - start:.2f} s")
    for arguments in calls:
        expected = np.asarray(reference(*arguments))
        error = float(np.max(np.abs(np.asarray(jitted(*arguments)) - expected)))
        # Both sum in f32, in two orders: a random walk over the longest sum, on values of the output's size.
        allowed = 8 * 2.0**-24 * math.sqrt(4 * arguments[0].shape[-1]) * max(1.0, float(np.max(np.abs(expected))))
        shape = "x".join(str(size) for size in arguments[0].shape)
        console.print(f"  input {shape:<12} output within {error:.1e} of the reference (allowed {allowed:.1e})")
        if not error <= allowed:
            raise SystemExit(f"{name} is wrong by {error}")
    console.print(f"  {len(calls)} sizes, {jitted.cache_info().misses} compilation")
    return jitted


def show_lowering(console: Console, jitted: Any, arguments: tuple[Any, ...], lines: int) -> None:
    """The first lines of the program at every level, and what was chosen."""
    lowered = jitted.lower(*arguments)
    for level, meaning in LEVELS.items():
        text = getattr(lowered, level).strip().splitlines()
        console.print(Rule(f"{level}: {meaning} ({len(text)} lines)", align="left"))
        shown = [line if len(line) <= 150 else f"{line[:147]}..." for line in text[:lines]]
        console.print(Syntax("\n".join(shown), "llvm", theme="ansi_dark", background_color="default"))
    console.print(Rule("explain(): what ran, and why", align="left"))
    console.print(str(jitted.explain(*arguments)), highlight=False, markup=False, soft_wrap=True)


def numpy_mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """The MLP as one writes it in NumPy."""
    logits = numpy_gelu(x @ w1 + b1) @ w2 + b2
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def numpy_gelu(x: Any) -> Any:
    """Gelu in its tanh form."""
    return 0.5 * x * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)))


def numpy_layernorm(x: Any, weight: Any, bias: Any) -> Any:
    """Layer norm over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, -1, keepdims=True) + np.float32(1e-5)) * weight + bias


def numpy_block(x: Any, p: Layer) -> Any:
    """The transformer block as one writes it in NumPy."""
    B, S, D = x.shape
    qkv = numpy_layernorm(x, p.norm1, p.shift1) @ p.qkv + p.qkv_bias
    q, k, v = qkv.reshape(B, S, 3, 8, D // 8).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(D // 8))
    scores = np.where(np.tri(S, dtype=bool), scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(B, S, D)
    x = x + (mixed @ p.out + p.out_bias)
    return x + (numpy_gelu(numpy_layernorm(x, p.norm2, p.shift2) @ p.up + p.up_bias) @ p.down + p.down_bias)


def median_times(functions: Sequence[Callable[..., Any]], arguments: tuple[Any, ...], rounds: int) -> list[float]:
    """Seconds of a call of each function, interleaved, after three to warm up."""
    times: list[list[float]] = [[] for _ in functions]
    for number in range(rounds + 3):
        for function, found in zip(functions, times, strict=True):
            start = time.perf_counter()
            function(*arguments)
            found += [time.perf_counter() - start] if number >= 3 else []
    return [statistics.median(found) for found in times]


def show_times(console: Console, rows: Sequence[tuple[str, Any, Any, tuple[Any, ...]]], rounds: int) -> None:
    """A small table against NumPy."""
    table = Table(title="medians, one process, all threads")
    for column in ("program", "input", "tessera", "NumPy", "speed-up"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for name, jitted, plain, arguments in rows:
        ours, theirs = median_times((jitted, plain), arguments, rounds)
        shape = "x".join(str(size) for size in arguments[0].shape)
        table.add_row(name, shape, f"{ours * 1e3:.2f} ms", f"{theirs * 1e3:.2f} ms", f"{theirs / ours:.1f}x")
    console.print(table)
    busy, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if busy > 0.75 * cpus and os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        # Measured on two shared CPUs, NumPy's matmuls with two threads took over ten times as long as with one.
        console.print(f"the load is {busy:.1f} on {cpus} CPUs, which can make NumPy look far slower than it is;")
        console.print("time it when nothing else runs, or with OPENBLAS_NUM_THREADS=1")


def main(
    *, D: int = 256, batches: Sequence[int] = (1, 7, 256), lengths: Sequence[int] = (256, 33), rounds: int = 10
) -> None:
    """From nothing to two programs that run natively."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    rng = np.random.default_rng(0)
    mlp_calls = [mlp_arguments(batch, D, rng) for batch in batches]
    layer = random_layer(D, rng)
    block_calls = [(rng.standard_normal((2, length, D), np.float32), layer) for length in lengths]
    fast_mlp = compile_and_check(console, "MLP", mlp, mlp_calls)
    fast_block = compile_and_check(console, "transformer block", transformer_block, block_calls)
    show_lowering(console, fast_mlp, mlp_calls[-1], lines=12)
    rows = (
        ("MLP", fast_mlp, numpy_mlp, mlp_calls[-1]),
        ("transformer block", fast_block, numpy_block, block_calls[0]),
    )
    show_times(console, rows, rounds)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
