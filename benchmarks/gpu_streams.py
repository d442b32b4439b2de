"""What it gains on a GPU to run launches that do not need each other side by side, in CUDA streams of their own.

    python -m benchmarks.gpu streams [--bursts N] [--only NAMES] [--out FILE]

Each program is compiled for one CUDA stream and for several, which has to give the same bits. Then CUDA graphs of
them are replayed in bursts that are interleaved, timed by events of the device, and calls of their functions too:
those that come again with the same memory, which are replayed as CUDA graphs, and those whose results are kept,
which are not.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_record import chosen, need_gpu, options, write

STREAMS = (1, 2, 4, 8)
KINDS = ("replay", "call", "kept")
KEPT = 50
"""Results of other memory: more than calls are told apart by."""
RUNS = 20
"""Runs of one burst, which are timed together."""


def experts(x: Any, weights: Any) -> Any:
    """Matmuls that have nothing in common but their A operand."""
    return tuple(ts.ops.relu(ts.ops.matmul(x, one)) for one in weights)


def block(x: Any, weights: Any) -> Any:
    """Attention of one head and a layer behind it: three matmuls at a time, then one after the other."""
    query, key, value, out, up, down = weights
    q, k, v = (ts.ops.matmul(x, one) for one in (query, key, value))
    h = x + ts.ops.matmul(ts.ops.matmul(ts.ops.softmax(ts.ops.matmul(q, ts.ops.transpose(k))), v), out)
    return h + ts.ops.matmul(ts.ops.relu(ts.ops.matmul(h, up)), down)


CASES: dict[str, tuple[Callable[..., Any], tuple[int, int], list[tuple[int, int]]]] = {
    "small": (experts, (128, 1024), [(1024, 1024)] * 8),
    "large": (experts, (2048, 2048), [(2048, 2048)] * 8),
    "block": (block, (256, 1024), [(1024, 1024)] * 4 + [(1024, 4096), (4096, 1024)]),
}


def given(name: str, rng: np.random.Generator) -> tuple[Any, list[Any]]:
    """Random elements for a case, on the device."""

    def normal(shape: tuple[int, int]) -> Any:
        values = rng.standard_normal(shape).astype(np.float32) / np.sqrt(shape[0])
        return ts.cuda.array(values.astype(ml_dtypes.bfloat16))

    _, left, weights = CASES[name]
    return normal(left), [normal(shape) for shape in weights]


def bits(made: Any) -> bytes:
    """All results, one after the other."""
    parts: list[Any] = list(made) if isinstance(made, tuple) else [made]  # pyright: ignore[reportUnknownArgumentType]
    return b"".join([np.asarray(part).tobytes() for part in parts])


def timed(runs: Mapping[str, Callable[[], Any]], bursts: int) -> dict[str, float]:
    """Median microseconds of one run of each; bursts are interleaved, each after a pause."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(bursts):
        for name, run in runs.items():
            time.sleep(0.005)
            kept = run()
            ts.cuda.synchronize()
            begun, ended = ts.cuda.Event(), ts.cuda.Event()
            begun.record()
            for _ in range(RUNS):
                kept = run()
            ended.record()
            found[name].append(ended.milliseconds_since(begun) * 1000 / RUNS)
            del kept
    return {name: round(statistics.median(samples), 2) for name, samples in found.items()}


def measured(name: str, bursts: int) -> dict[str, Any]:
    """The row of a case."""
    rng = np.random.default_rng(0)
    function, arguments = CASES[name][0], given(name, rng)
    results: set[bytes] = set()
    runs: dict[str, Callable[[], Any]] = {}
    for streams in STREAMS:
        jitted = ts.jit(function, backend="cuda", overrides={"launch.streams": streams})
        results.add(bits(jitted(*arguments)))
        with ts.cuda.capture() as graph:
            made = jitted(*arguments)
        graph.replay()
        results.add(bits(made))
        runs[f"replay {streams}"] = graph.replay
        runs[f"call {streams}"] = lambda jitted=jitted: jitted(*arguments)
        runs[f"kept {streams}"] = partial(_keep, jitted, arguments, deque(maxlen=KEPT))
    return row_of(name, timed(runs, bursts), same_bits=len(results) == 1)


def _keep(function: Callable[..., Any], arguments: Sequence[Any], kept: deque[Any]) -> None:
    """A call whose results live on for some iterations, so that their memory is not that of the last ones."""
    kept.append(function(*arguments))


def row_of(name: str, times: Mapping[str, float], *, same_bits: bool) -> dict[str, Any]:
    """What is kept of a case: times of replays and calls by streams, and the best of both against one stream."""
    by_kind = {kind: {str(n): times[f"{kind} {n}"] for n in STREAMS} for kind in KINDS}
    gains = {kind: round(by["1"] / min(by.values()), 3) for kind, by in by_kind.items()}
    return {"case": name, "same_bits": same_bits, "microseconds": by_kind, "gain": gains}


def line_of(row: Mapping[str, Any]) -> str:
    """A row as it is printed."""
    times: Mapping[str, Mapping[str, float]] = row["microseconds"]
    parts = [f"{kind} " + ", ".join(f"{n}: {time:.1f}" for n, time in by.items()) for kind, by in times.items()]
    return f"{row['case']}: {'; '.join(parts)} us by streams, same bits {row['same_bits']}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = options("streams", __doc__)
    parser.add_argument("--bursts", type=int, default=9, help="how often each is timed")
    asked = parser.parse_args(arguments)
    names = chosen(asked.only, list(CASES), parser)
    need_gpu()
    ts.jit(ts.ops.relu)(np.zeros(4, np.float32))  # the native code that tensors of the host need
    rows = [measured(name, asked.bursts) for name in names]
    for row in rows:
        print(line_of(row))
    write(asked.out, {"rows": rows})
    raise SystemExit(0 if all(row["same_bits"] for row in rows) else 1)


if __name__ == "__main__":
    main()
