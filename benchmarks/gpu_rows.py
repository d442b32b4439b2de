"""Kernels that memory bounds, on a GPU: the compiler's own path against a copy of the same bytes and against torch.

Run it where there is an NVIDIA GPU and torch: `python -m benchmarks.gpu rows --out benchmarks/results/gpu-rows.json`.
Everything is in one process, interleaved, by events of the device; medians. Values are checked against f64 first.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tessera as ts
from benchmarks.environment import describe
from benchmarks.gpu_launch import launch_cost
from benchmarks.gpu_record import need_gpu
from benchmarks.harness import time_on_device
from tessera.stdlib import efficient_layernorm, rotary_embedding, stable_softmax

ROWS, COLUMNS = 32768, 4096
HEADS = (8, 32, 4096, 128)
"""As many elements: sequences, heads, positions, and what a head has of each."""
CHECKED = 64
"""Rows whose values are compared with f64."""
LARGEST_ERROR = 4e-3
"""Of the norm: a bf16 result is off by 2**-9 of each element at most."""


@dataclass(frozen=True)
class Work:
    """One function, how torch says it, and the shapes of its arguments."""

    name: str
    function: Callable[..., Any]
    peer: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    overrides: tuple[tuple[str, str], ...] = ()
    wide: tuple[int, ...] = ()
    """Arguments that are f32."""


def _add(a: Any, b: Any) -> Any:
    return a + b


def _relu(a: Any) -> Any:
    return ts.ops.relu(a)


def _biased_silu(a: Any, b: Any) -> Any:
    return ts.ops.silu(a + b)


def _gelu(a: Any) -> Any:
    return ts.ops.gelu(a)


def _gelu_tanh(a: Any) -> Any:
    return ts.ops.gelu(a, approximate="tanh")


def _library_softmax(a: Any) -> Any:
    return stable_softmax(a)


def _library_layernorm(a: Any, w: Any, b: Any) -> Any:
    return efficient_layernorm(a, w, b)


def _library_rotary(a: Any, c: Any, s: Any) -> Any:
    return rotary_embedding(a, c, s)


def _rotary(a: Any, c: Any, s: Any) -> Any:
    return ts.ops.rotary(a, c, s)


def softmax(x: Any) -> Any:
    """Exponentials of a row, divided by their sum."""
    return ts.ops.softmax(x, axis=-1)


def rmsnorm(x: Any, w: Any) -> Any:
    """A row over the root of its mean square."""
    return ts.ops.rmsnorm(x, w)


def layernorm(x: Any, w: Any, b: Any) -> Any:
    """A row less its mean, over its deviation."""
    return ts.ops.layernorm(x, w, b)


def _row_sums(a: Any) -> Any:
    return a.sum(axis=1)


def _column_sums(a: Any) -> Any:
    return a.sum(axis=0)


class Peer:
    """The same functions as torch has them."""

    def __init__(self, torch: Any) -> None:
        self.of, self.join = torch.nn.functional, torch.cat

    def biased_silu(self, a: Any, b: Any) -> Any:
        return self.of.silu(a + b)

    def gelu_tanh(self, a: Any) -> Any:
        return self.of.gelu(a, approximate="tanh")

    def rotary(self, a: Any, c: Any, s: Any) -> Any:
        first, second = a.chunk(2, -1)
        return self.join((first * c - second * s, second * c + first * s), -1)

    def softmax(self, a: Any) -> Any:
        return self.of.softmax(a, -1)

    def rmsnorm(self, a: Any, w: Any) -> Any:
        return self.of.rms_norm(a, (COLUMNS,), w, 1e-6)

    def layernorm(self, a: Any, w: Any, b: Any) -> Any:
        return self.of.layer_norm(a, (COLUMNS,), w, b, 1e-5)


def works(torch: Any) -> list[Work]:
    """What is measured; `torch` is passed in, since it is imported where there is one alone."""
    matrix, line, peer = (ROWS, COLUMNS), (COLUMNS,), Peer(torch)
    heads, angles = (HEADS[0] * HEADS[1], *HEADS[2:]), (HEADS[2], HEADS[3] // 2)
    hardware = (("math.exp", "hardware"),)
    return [
        Work("add", _add, _add, (matrix, matrix)),
        Work("relu", _relu, torch.relu, (matrix,)),
        Work("bias + silu", _biased_silu, peer.biased_silu, (matrix, line)),
        Work("gelu", _gelu, peer.of.gelu, (matrix,)),
        Work("gelu, tanh", _gelu_tanh, peer.gelu_tanh, (matrix,)),
        Work("softmax", softmax, peer.softmax, (matrix,)),
        Work("softmax, hardware exp", softmax, peer.softmax, (matrix,), hardware),
        Work("rmsnorm", rmsnorm, peer.rmsnorm, (matrix, line)),
        Work("layernorm", layernorm, peer.layernorm, (matrix, line, line)),
        Work("rotary", _rotary, peer.rotary, (HEADS, angles, angles)),
        Work("stable_softmax", _library_softmax, peer.softmax, (matrix,)),
        Work("efficient_layernorm", _library_layernorm, peer.layernorm, (matrix, line, line)),
        Work("rotary_embedding", _library_rotary, peer.rotary, (heads, angles, angles), (), (1, 2)),
        Work("row sums", _row_sums, _row_sums, (matrix,)),
        Work("column sums", _column_sums, _column_sums, (matrix,)),
    ]


def measured(torch: Any, run: Callable[[], Any], calls: int) -> Callable[[], float]:
    """A function that times a burst of calls, after the first ones, in microseconds for one."""
    for _ in range(3):
        run()

    def burst() -> float:
        torch.cuda.synchronize()
        time.sleep(0.02)
        return 1e6 * time_on_device(torch, run, calls)

    return burst


def row_of(torch: Any, work: Work, rounds: int, calls: int) -> dict[str, Any]:
    """Check one work, then time it, torch and a copy interleaved."""
    arrays = [torch.randn(*shape, device="cuda") for shape in work.shapes]
    arrays = [array if at in work.wide else array.to(torch.bfloat16) for at, array in enumerate(arrays)]
    function = ts.jit(work.function, backend="cuda", overrides=dict(work.overrides))
    tensors = [ts.cuda.array(array) for array in arrays]
    found = torch.from_dlpack(function(*tensors))
    error = _error(torch, work, arrays, found)
    source, target = arrays[0], torch.empty_like(arrays[0])
    runs = {
        "tessera": measured(torch, lambda: function(*tensors), calls),
        "torch": measured(torch, lambda: work.peer(*arrays), calls),
        "copy": measured(torch, lambda: target.copy_(source), calls),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    medians = {name: statistics.median(one) for name, one in times.items()}
    moved = sum(array.numel() * array.element_size() for array in (*arrays, found))
    bandwidth, copied = moved / medians["tessera"], 4 * source.numel() / medians["copy"]
    return {
        "name": work.name,
        "microseconds": medians,
        "terabytes_per_second": bandwidth / 1e6,
        "ratio_to_copy": bandwidth / copied,
        "ratio_to_torch": medians["torch"] / medians["tessera"],
        "error": error,
        "samples": times,
    }


def _error(torch: Any, work: Work, arrays: list[Any], found: Any) -> float:
    wide = [array.double() for array in arrays]
    if work.name == "column sums":
        expected = work.peer(*wide)
    else:
        rows = len(wide[0])
        expected = work.peer(*[array[:CHECKED] if len(array) == rows else array for array in wide])
    given = found[: expected.shape[0]].double()
    error = float((given - expected).norm() / expected.norm())
    if not error < LARGEST_ERROR:
        raise SystemExit(f"{work.name} is wrong: the error is {error}")
    assert torch.isfinite(given).all()
    return error


def main() -> None:
    """Measure all works, print a table, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=10)
    given = parser.parse_args()
    need_gpu()
    torch: Any = importlib.import_module("torch")  # a peer: only here
    rows = [row_of(torch, work, given.rounds, given.calls) for work in works(torch)]
    cost = launch_cost(torch)
    for row in rows:
        print(
            f"{row['name']:24} {row['microseconds']['tessera']:8.1f} us  {row['ratio_to_copy']:.3f} of a copy  ", end=""
        )
        print(f"{row['ratio_to_torch']:.2f} x torch  error {row['error']:.1e}")
    print("a call costs the host, in us:", ", ".join(f"{name} {cost[name]:.2f}" for name in cost))
    if given.out is not None:
        device = torch.cuda.get_device_name()
        found = {"device": device, "shape": [ROWS, COLUMNS], "dtype": "bf16", "rows": rows, "launch_us": cost}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({**describe(), **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
