"""Programs with symbolic dims on a GPU against programs compiled for the exact sizes: bits and times.

Run it where there is an NVIDIA GPU and torch: `python -m benchmarks.gpu symbolic [--seed 7] [--count 6]`. One
compilation of each program serves every size that is drawn; its results are compared with those of the static program,
bit for bit, before both are timed: in turns, by events of the device around replays of CUDA graphs (the host's part of
a call is no part of this), medians. A ratio is the time of the static program over that of the symbolic one.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from benchmarks.gpu_record import chosen, need_gpu, need_torch, options, write
from tessera import nn

ROUNDS, CALLS = 5, 10
BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Work:
    """A program, the ranges of its sizes, and the shapes of its arguments, by names of sizes."""

    function: Callable[..., Any]
    ranges: Mapping[str, tuple[int, int]]
    shapes: tuple[tuple[str | int, ...], ...]
    dtype: Any = BF16
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def draw(self, rng: random.Random) -> dict[str, int]:
        """Sizes with uniform logarithms: half of them multiples of 64, the others as they come."""
        sizes: dict[str, int] = {}
        for name, (low, high) in self.ranges.items():
            size = round(math.exp(rng.uniform(math.log(low), math.log(high))))
            sizes[name] = max(low, size // 64 * 64) if rng.random() < 0.5 and size >= 64 else size
        return sizes

    def free(self) -> Any:
        """The program with its sizes as symbols."""
        dtype = {BF16: ts.bf16, np.float32: ts.f32, np.int32: ts.i32}[self.dtype]
        types = [ts.Tensor[(*shape, dtype)] for shape in self.shapes]
        return self.jit(_annotated(self.function, types))

    def jit(self, function: Any = None) -> Any:
        """The program for the sizes that it is called with, or another function in its place."""
        return ts.jit(function or self.function, backend="cuda", **self.options)

    def arrays(self, sizes: Mapping[str, int]) -> list[Any]:
        """Arguments of some sizes, on the device."""
        rng = np.random.default_rng(5)
        shapes = [[sizes[size] if isinstance(size, str) else size for size in shape] for shape in self.shapes]
        made = [rng.integers(0, 50000, s) if self.dtype is np.int32 else rng.standard_normal(s) for s in shapes]
        return [ts.cuda.array(one.astype(self.dtype)) for one in made]


def _annotated(function: Any, types: Sequence[Any]) -> Any:
    """The function with these types of its parameters."""
    made = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    made.__annotations__ = dict(zip(names, types, strict=True))
    return made


def _softmax(x: Any) -> Any:
    return ts.ops.softmax(x, axis=-1)


def _layernorm(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.layernorm(x, w, b)


def _layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(x @ w + b)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def _mean(x: Any) -> Any:
    return x.mean()


def _columns(x: Any) -> Any:
    return x.sum(axis=0)


def _swiglu(x: Any, a: Any, c: Any) -> Any:
    return ts.ops.silu(x @ a) * (x @ c)


def _gpt() -> Work:
    """The forward pass of GPT-2-small over tokens, of any batch and length."""
    with ts.device(ts.gpu[0]):
        model = nn.GPT.init(
            ts.random.key(0), nn.GPTConfig(vocabulary=50257, length=1024, width=768, depth=12, heads=12)
        )

    def forward(tokens: Any) -> Any:
        return model(tokens)

    return Work(forward, {"B": (1, 8), "S": (16, 1024)}, (("B", "S"),), np.int32, {"policy": ts.Training()})


ROW = {"M": (1024, 32768), "N": (128, 16384)}
WORKS: dict[str, Callable[[], Work]] = {
    "softmax": lambda: Work(_softmax, ROW, (("M", "N"),)),
    "layernorm": lambda: Work(_layernorm, ROW, (("M", "N"), ("N",), ("N",))),
    "columns": lambda: Work(_columns, ROW, (("M", "N"),)),
    "mean": lambda: Work(_mean, ROW, (("M", "N"),)),
    "layer": lambda: Work(_layer, {"M": (1, 8192), "K": (64, 8192), "N": (64, 8192)}, (("M", "K"), ("K", "N"), ("N",))),
    "swiglu": lambda: Work(
        _swiglu, {"M": (16, 8192), "K": (256, 4096), "N": (256, 8192)}, (("M", "K"), ("K", "N"), ("K", "N"))
    ),
    "attention": lambda: Work(_attention, {"B": (1, 8), "S": (64, 4096)}, (("B", 12, "S", 64),) * 3),
    "gpt2-small": _gpt,
}


def _replays(torch: Any, program: Any, given: Sequence[Any]) -> Callable[[], float]:
    """Microseconds of a call among several that a CUDA graph holds."""
    with ts.cuda.capture() as graph:
        for _ in range(CALLS):
            program(*given)
    graph.replay()

    def measure() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / CALLS

    return measure


def row_of(torch: Any, name: str, work: Work, free: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """One program at one size: times of both, and whether bits are equal."""
    given = work.arrays(sizes)
    programs = {"static": work.jit(), "symbolic": free}
    results = [np.asarray(program(*given).cpu()) for program in programs.values()]
    equal = results[0].tobytes() == results[1].tobytes()
    runs = {kind: _replays(torch, program, given) for kind, program in programs.items()}
    times: dict[str, list[float]] = {kind: [] for kind in runs}
    for _ in range(ROUNDS):
        for kind, run in runs.items():
            times[kind].append(run())
    medians = {kind: round(statistics.median(found), 2) for kind, found in times.items()}
    ratio = statistics.median([one / two for one, two in zip(times["static"], times["symbolic"], strict=True)])
    return {"name": name, "sizes": dict(sizes), "ratio": round(ratio, 4), "equal": equal, "microseconds": medians}


def main() -> None:
    """Measure, print a table with geometric means, and write what was found."""
    parser = options("symbolic", __doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=6, help="sizes of each program")
    asked = parser.parse_args()
    need_gpu()
    torch = need_torch()
    torch.zeros(1, device="cuda")
    works = {name: WORKS[name]() for name in chosen(asked.only, list(WORKS), parser)}
    draws = {name: _draws(work, asked.seed, asked.count) for name, work in works.items()}
    _compile_ahead(works, draws)
    rows: list[dict[str, Any]] = []
    for name, work in works.items():
        free = work.free()
        for sizes in draws[name]:
            rows.append(row_of(torch, name, work, free, sizes))
            shown = ", ".join(f"{key} {value}" for key, value in sizes.items())
            print(f"{rows[-1]['ratio']:6.3f} {name:11} {shown:32} {rows[-1]['microseconds']}", flush=True)
            if not rows[-1]["equal"]:
                print(f"  its bits differ from those of the static program: {name}, {shown}", flush=True)
        found = [row["ratio"] for row in rows if row["name"] == name]
        print(f"{name}: geometric mean {statistics.geometric_mean(found):.3f}, least {min(found):.3f}", flush=True)
    print(f"all: geometric mean {statistics.geometric_mean([row['ratio'] for row in rows]):.3f}")
    write(asked.out, {"device": torch.cuda.get_device_name(), "seed": asked.seed, "rows": rows})
    if not all(row["equal"] for row in rows):
        raise SystemExit("some bits differ between symbolic and static programs")


def _draws(work: Work, seed: int, count: int) -> list[dict[str, int]]:
    rng = random.Random(seed)
    return [work.draw(rng) for _ in range(count)]


def _compile_ahead(works: Mapping[str, Work], draws: Mapping[str, Sequence[Mapping[str, int]]]) -> None:
    """Fill the disk cache from several threads: assemblers run beside each other."""

    def compile_one(item: tuple[Work, Mapping[str, int]]) -> None:
        work, sizes = item
        work.jit().prepare(*work.arrays(sizes))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(compile_one, [(works[name], sizes) for name in works for sizes in draws[name]]))


if __name__ == "__main__":
    main()
