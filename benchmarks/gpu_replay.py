"""What it costs the host to run a recorded step of decoding again, beside calling its function.

    python -m benchmarks.gpu replay [--layers N] [--rounds N] [--out FILE]

A step takes one position through some layers of a transformer, with attention to all keys so far. The CUDA graph is
replayed on new elements and has to give the bits of the call. Then the host's clock is read around single calls and
replays, which are interleaved, with the device idle before each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_record import need_gpu, options, write

GOAL = 10.0
"""Microseconds of the host that a replay may take."""
WIDTH, HEADS, SHARED, KEYS = 2048, 16, 8, 1024
HEAD = WIDTH // HEADS


def decode(x: Any, layers: Any) -> Any:
    """One position of one sequence through all layers: each a tuple of its weights, its keys and its values."""
    for norm, query, out, gate, up, down, keys, values in layers:
        rows = ts.ops.rmsnorm(x, norm)
        q = ts.ops.reshape(ts.ops.matmul(rows, query), (1, HEADS, 1, HEAD))
        mixed = ts.ops.reshape(ts.ops.attention(q, keys, values), (1, WIDTH))
        x = x + ts.ops.matmul(mixed, out)
        rows = ts.ops.rmsnorm(x, norm)
        x = x + ts.ops.matmul(ts.ops.silu(ts.ops.matmul(rows, gate)) * ts.ops.matmul(rows, up), down)
    return x


def weights(layers: int, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Random layers."""

    def normal(*shape: int) -> Any:
        scale = 1.0 / np.sqrt(shape[0])
        return (rng.standard_normal(shape).astype(np.float32) * scale).astype(ml_dtypes.bfloat16)

    cached = (1, SHARED, KEYS, HEAD)
    shapes = ((WIDTH,), *[(WIDTH, WIDTH)] * 2, *[(WIDTH, 4 * WIDTH)] * 2, (4 * WIDTH, WIDTH), cached, cached)
    return [tuple(normal(*shape) for shape in shapes) for _ in range(layers)]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, and the tenths at both ends, in microseconds."""
    ordered = sorted(samples)
    ends = {"p10": ordered[len(ordered) // 10], "p90": ordered[-1 - len(ordered) // 10]}
    return {name: round(value * 1e6, 3) for name, value in {"median": statistics.median(ordered), **ends}.items()}


def timed(runs: dict[str, Callable[[], Any]], rounds: int, wait: Callable[[], None]) -> dict[str, dict[str, float]]:
    """The host's time in single runs of each, which are interleaved; the device has nothing to do when one begins."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            wait()
            begun = time.perf_counter()
            kept = run()
            found[name].append(time.perf_counter() - begun)
            del kept
    wait()
    return {name: spread(samples) for name, samples in found.items()}


def record_of(times: dict[str, dict[str, float]], layers: int, same_bits: bool) -> dict[str, Any]:
    """The record but for where it was made."""
    size = {"layers": layers, "width": WIDTH, "heads": [HEADS, SHARED], "keys": KEYS, "dtype": "bf16"}
    is_reached = same_bits and times["replay"]["median"] < GOAL
    return {"step": size, "same_bits": same_bits, "microseconds": times, "goal": GOAL, "is_reached": is_reached}


def main() -> None:
    """The command line."""
    parser = options("replay", __doc__)
    parser.add_argument("--layers", type=int, default=4, help="layers of a step")
    parser.add_argument("--rounds", type=int, default=300, help="how often each is timed")
    asked = parser.parse_args()
    if asked.layers < 1 or asked.rounds < 10:
        parser.error("a step has a layer at least, and is timed ten times at least")
    need_gpu()
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((1, WIDTH)).astype(np.float32).astype(ml_dtypes.bfloat16) for _ in range(3)]
    x, layers = ts.cuda.array(values[0]), [tuple(map(ts.cuda.array, one)) for one in weights(asked.layers, rng)]
    function = ts.jit(decode, backend="cuda")
    function(x, layers)
    with ts.cuda.capture() as graph:
        y = function(x, layers)
    same = True
    for value in values:
        ts.cuda.write(x, value)
        graph.replay()
        same &= np.asarray(y).tobytes() == np.asarray(function(ts.cuda.array(value), layers)).tobytes()
    times = timed({"call": lambda: function(x, layers), "replay": graph.replay}, asked.rounds, ts.cuda.synchronize)
    record = record_of(times, asked.layers, same)
    print(f"call {times['call']['median']:.2f} us, replay {times['replay']['median']:.2f} us, goal {GOAL:g} us")
    write(asked.out, record)
    raise SystemExit(0 if record["is_reached"] else 1)


if __name__ == "__main__":
    main()
